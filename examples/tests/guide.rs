//! The statements of the guide that no other test checks.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::process::Command;
use std::rc::Rc;
use std::time::{Duration, Instant};

use lockmacro_runtime::{Lock, LockError, LockGuard, LockManager, distributed_lock};
use lockmacro_tests::{Admin, Server, on_a_plain_thread};
use tokio::time::timeout;

const PAGES: [&str; 3] = [
    include_str!("../../docs/internals/protocol.md"),
    include_str!("../../docs/redis.md"),
    include_str!("../../docs/reference/servers.md"),
];

fn line(start: &str) -> &'static str {
    let mut lines = PAGES.iter().flat_map(|page| page.lines());
    lines.find(|line| line.starts_with(start)).expect("a page has it")
}

/// The words of the line that begins with `start`; a quoted text is one word.
fn words(start: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (nth, part) in line(start).split('"').enumerate() {
        if nth % 2 == 1 {
            words.push(part.to_owned());
        } else {
            let part = part.replace("<unique value>", "theirs");
            words.extend(part.split_whitespace().map(str::to_owned));
        }
    }
    words
}

fn send<T: redis::FromRedisValue>(admin: &mut Admin, words: &[String]) -> T {
    admin.ask(&words.iter().map(String::as_str).collect::<Vec<_>>())
}

fn order(locks: &LockManager) -> Lock {
    Lock::new("order:42").ttl(Duration::from_secs(30)).name("audit_order").manager(locks)
}

#[tokio::test]
async fn the_rights_it_names_are_enough_and_each_is_needed() {
    let server = Server::start();
    let mut admin = server.admin();
    let grant = words("ACL SETUSER");
    send::<()>(&mut admin, &grant);
    let url = server.url_as("shop", "password");
    let locks = connected(&url).await;
    assert_eq!(take_refuse_and_release(&server, &locks).await, Ok(()));
    assert_eq!(admin.ask::<Vec<redis::Value>>(&["ACL", "LOG"]), [], "something was denied");

    for right in grant.iter().filter(|word| word.starts_with('+')) {
        send::<()>(&mut admin, &grant);
        // The managers have checked their rights already, so every denied command is one that is
        // used.
        let locks = connected(&url).await;
        let without = right.replace('+', "-");
        admin.ask::<()>(&["ACL", "SETUSER", "shop", &without]);
        admin.ask::<()>(&["ACL", "LOG", "RESET"]);
        // Commands that are refused without these rights have no caller: the refusal is in the
        // server's log.
        let optional = ["+ping", "+subscribe", "+publish", "+pubsub|numsub"];
        let result = take_refuse_and_release(&server, &locks).await;
        assert!(!admin.ask::<Vec<redis::Value>>(&["ACL", "LOG"]).is_empty(), "{right} is unused");
        assert_eq!(result.is_err(), !optional.contains(&&**right), "{right}: {result:?}");
        admin.ask::<()>(&["FLUSHALL"]);
    }
}

/// Three managers, each of which has had a first lock.
async fn connected(url: &str) -> Vec<LockManager> {
    let mut managers = Vec::new();
    for _ in 0..3 {
        let locks = LockManager::connect(url).await.expect("let in");
        order(&locks).acquire().await.expect("free").release().await.expect("ours");
        managers.push(locks);
    }
    managers
}

/// Uses every command that locks need.
async fn take_refuse_and_release(
    server: &Server,
    managers: &[LockManager],
) -> Result<(), LockError> {
    server.admin().ask::<()>(&["SCRIPT", "FLUSH"]);
    let [locks, next, in_vain] = managers else { panic!("three") };
    let guard = order(locks).acquire().await?;
    guard.extend(Duration::from_secs(40)).await?;
    match order(locks).acquire().await {
        Err(error) if error.is_busy() => guard.release().await?,
        Err(error) => return Err(error),
        Ok(_) => panic!("the lock was given twice"),
    }
    let guard = order(locks).fenced().acquire().await?;
    if let Ok(guard) = order(in_vain).wait(Duration::from_millis(10)).acquire().await {
        guard.release().await?;
    }
    // Until the waiter has left the queue, or has tried without the right.
    in_vain.shutdown(Duration::from_secs(1)).await?;
    let mut waiting = pin!(order(next).wait_forever().acquire());
    // The waiter repeats its request until it is in the queue.
    let mut line = server.admin();
    while line.ask::<i64>(&["EXISTS", "lm1:wq:{order:42}"]) == 0 {
        if let Ok(ended) = timeout(Duration::from_millis(10), &mut waiting).await {
            return ended.map(drop);
        }
    }
    guard.release().await?;
    waiting.await?.release().await?;
    let permit = || order(next).permits(3);
    let (first, second) = (permit().acquire().await?, permit().acquire().await?);
    let third = permit().fenced().acquire().await?;
    for permit in [first, second, third] {
        permit.release().await?;
    }
    Ok(())
}

#[tokio::test]
async fn the_two_commands_for_other_languages_exclude_and_are_excluded() {
    let server = Server::start();
    let mut admin = server.admin();
    let (take, release) = (words("SET order:42"), words("EVAL "));
    let locks = LockManager::connect(&server.url()).await.unwrap();

    assert_eq!(send::<Option<String>>(&mut admin, &take).as_deref(), Some("OK"));
    assert!(order(&locks).acquire().await.is_err_and(|error| error.is_busy()));
    assert_eq!(send::<i64>(&mut admin, &release), 1);

    let ours = order(&locks).acquire().await.unwrap();
    assert_eq!(send::<Option<String>>(&mut admin, &take), None);
    assert_eq!(send::<i64>(&mut admin, &release), 0);
    assert!(ours.release().await.is_ok());
}

/// Runs some lines of Python beside `protocol/lock.py`, connected to the server as `s`.
fn python(server: &Server, lines: &str) -> String {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../protocol");
    let port = server.port();
    let program = format!(
        "import socket, sys\nsys.path.insert(0, {folder:?})\nfrom lock import acquire, release\n\
         s = socket.create_connection((\"127.0.0.1\", {port}))\n{lines}"
    );
    let ran = Command::new("python3").args(["-B", "-c", &program]).output();
    let ran = ran.expect("this test needs python3");
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    String::from_utf8_lossy(&ran.stdout).trim().to_owned()
}

#[tokio::test]
async fn the_client_in_python_excludes_and_is_excluded() {
    let server = Server::start();
    let locks = LockManager::connect(&server.url()).await.unwrap();
    let token = python(&server, "print(acquire(s, 'order:42', 30000))");
    assert_eq!(server.admin().get("order:42").as_deref(), Some(&*token));
    assert!(order(&locks).acquire().await.is_err_and(|error| error.is_busy()));
    let released = format!("print(release(s, 'order:42', {token:?}))");
    assert_eq!(python(&server, &released), "True");

    let ours = order(&locks).acquire().await.unwrap();
    assert_eq!(python(&server, "print(acquire(s, 'order:42', 30000))"), "None");
    assert_eq!(python(&server, &released), "False");
    assert!(ours.release().await.is_ok());
}

#[tokio::test]
async fn the_key_looks_as_shown() {
    let server = Server::start();
    let locks = LockManager::builder().label("web-3:4711").connect(&server.url()).await.unwrap();
    let _guard = order(&locks).holder_note("Ann Example").acquire().await.unwrap();
    let value = server.admin().get("order:42").unwrap();
    let shown = line("\"web-3:4711:");
    let (shown, value) = (shown.trim_matches('"').split_once('/').unwrap(), value.split_once('/'));
    let (label, random) = value.unwrap();
    // The labels are compared without the time since which the lock is held.
    let without_time = |label: &str| {
        let (label, about) = label.split_once(' ').unwrap();
        let (since, note) = about.split_once(' ').unwrap();
        (label.to_owned(), since.len(), note.to_owned())
    };
    assert_eq!((without_time(label), random.len()), (without_time(shown.0), shown.1.len()));
}

#[tokio::test]
async fn a_socket_is_a_server_too() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("redis.sock");
    let server = Server::with(&["--unixsocket", socket.to_str().unwrap()]);
    let url = format!("redis+unix://{}", socket.display());
    let _guard = order(&LockManager::connect(&url).await.unwrap()).acquire().await.unwrap();
    assert_eq!(server.admin().keys(), ["order:42"]);
}

#[tokio::test]
async fn of_two_attributes_the_lower_one_locks_first() {
    #[distributed_lock(key = "upper", ttl = "30s", manager = locks)]
    #[distributed_lock(key = "lower", ttl = "30s", manager = locks)]
    async fn both(locks: &LockManager) -> Result<Option<String>, LockError> {
        Ok(LockGuard::current().map(|last| last.key().to_string()))
    }
    let locks = LockManager::isolated_memory();
    assert_eq!(both(&locks).await, Ok(Some("upper".to_owned())));
    // The lower lock refused the call, so the upper one was not acquired either.
    let held = Lock::new("lower").manager(&locks).acquire().await.unwrap();
    assert!(both(&locks).await.is_err_and(|error| error.to_string().starts_with("`lower`")));
    held.release().await.unwrap();
}

#[tokio::test]
async fn a_sync_lock_waits_for_a_stalled_server_up_to_the_timeout() {
    let server = Server::start();
    let timeout = Duration::from_secs(2);
    let builder = LockManager::builder().timeout(timeout);
    let locks = builder.connect(&server.url()).await.unwrap();
    let held = order(&locks).acquire().await.unwrap();
    server.pause();
    let start = Instant::now();
    let after = on_a_plain_thread(move || held.run_blocking(|| Ok::<_, LockError>(7))).await;
    assert_eq!(after, Ok(7));
    let quarter = timeout / 4;
    assert!(start.elapsed() >= quarter && start.elapsed() < timeout, "{:?}", start.elapsed());
    let start = Instant::now();
    let result =
        on_a_plain_thread(move || order(&locks).run_blocking(|| Ok::<_, LockError>(()))).await;
    assert!(matches!(result, Err(LockError::Unavailable { .. })), "{result:?}");
    assert!(start.elapsed() >= timeout && start.elapsed() < 3 * timeout, "{:?}", start.elapsed());
    server.resume();
}

#[test]
fn a_runtime_without_a_timer_panics_as_tokio_does() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let locked = || {
        runtime.block_on(order(&LockManager::isolated_memory()).run(async {
            tokio::task::yield_now().await;
            Ok::<_, LockError>(())
        }))
    };
    assert!(catch_unwind(AssertUnwindSafe(locked)).is_err());
}

#[test]
fn a_future_is_send_if_its_output_is() {
    /// Has the method of its own when `T` is `Send`, and else the one of the trait.
    struct Probe<T>(std::marker::PhantomData<T>);
    impl<T> Probe<T> {
        fn of(_: &T) -> Self {
            Self(std::marker::PhantomData)
        }
    }
    impl<T: Send> Probe<T> {
        fn is_send(&self) -> bool {
            true
        }
    }
    trait NotSend {
        fn is_send(&self) -> bool {
            false
        }
    }
    impl<T> NotSend for Probe<T> {}

    #[distributed_lock(key = "order:42", ttl = "30s")]
    async fn sent(name: String) -> Result<String, LockError> {
        Ok(name)
    }
    #[distributed_lock(key = "order:42", ttl = "30s")]
    async fn kept(name: String) -> Result<Rc<str>, LockError> {
        Ok(name.into())
    }
    assert!(Probe::of(&sent(String::new())).is_send());
    assert!(!Probe::of(&kept(String::new())).is_send());
}
