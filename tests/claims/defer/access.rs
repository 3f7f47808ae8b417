//! The rights that docs/reference/servers.md names for jobs.

use lockmacro_runtime::defer::{JobFuture, JobQueue, NewJob, Page, Settled, StopWaiting, Stored};
use lockmacro_tests::Server;

use super::*;

const ACCESS: &str = include_str!("../../../docs/reference/servers.md");

/// The words of the page's line that begins with `start` and are rights, keys or channels.
fn rights(start: &str) -> Vec<String> {
    let line = ACCESS.lines().find(|line| line.starts_with(start)).expect("the page has it");
    let words = line.split([' ', '`']).map(|word| word.trim_end_matches([',', '.', ':']));
    words.filter(|word| word.starts_with(['+', '~', '&'])).map(str::to_owned).collect()
}

async fn defer_and_run(server: &Server, patience: Duration) -> Result<(), LockError> {
    let locks = LockManager::connect(&server.url_as("shop", "password")).await?;
    let (calls, function) = (Calls::default(), Arc::new(AtomicU64::new(0)));
    let (noted, tried) = (calls.clone(), function);
    let function = DeferredFn::new("f", (argument("number"),), move |(number,): (u64,)| {
        noted.add(number);
        let fails = tried.fetch_add(1, Ordering::Relaxed) % 2 == 0;
        async move { if fails { Err("once") } else { Ok(()) } }
    });
    let function = function.delay(SHORT_DELAY).unique();
    let working = start(&locks, &function);
    let held = Lock::new("order:1").ttl(LONG_TTL).manager(&locks).acquire().await?;
    let deferred = defer(&locks, &function, "order:1", (1,)).await;
    held.release().await?;
    let LockError::Deferred { .. } = deferred else { return Err(deferred) };
    let job_queue = locks.job_queue();
    let start = Instant::now();
    while start.elapsed() < patience {
        let waiting = job_queue.list("f".into(), JobState::Waiting, 0, 10).await?;
        let running = job_queue.list("f".into(), JobState::Running, 0, 10).await?;
        if calls.all().len() == 2 && waiting.total + running.total == 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let done = calls.all().len();
    locks.shutdown(TEST_TIMEOUT).await?;
    working.await.expect("no panic")?;
    if done == 2 { Ok(()) } else { Err(LockError::unavailable("its own")) }
}

#[tokio::test]
async fn the_rights_that_the_readme_names_are_enough_and_each_is_needed() {
    let server = Server::start();
    let mut admin = server.admin();
    let more = rights("| jobs |");
    let mut words = vec!["ACL", "SETUSER", "shop", "reset", "on", ">password"];
    let locks = rights("ACL SETUSER shop");
    words.extend(locks.iter().chain(&more).map(String::as_str));
    admin.ask::<()>(&words);
    assert_eq!(defer_and_run(&server, TEST_TIMEOUT).await, Ok(()));
    let denied: Vec<redis::Value> = admin.ask(&["ACL", "LOG"]);
    assert_eq!(denied, [], "something was denied");
    for right in more.iter().filter(|right| right.starts_with('+')) {
        admin.ask::<()>(&["FLUSHALL"]);
        admin.ask::<()>(&words);
        admin.ask::<()>(&["ACL", "SETUSER", "shop", &right.replace('+', "-")]);
        let result = defer_and_run(&server, SHORT_DELAY * 10).await;
        assert!(result.is_err(), "{right} is not needed");
    }
}

/// The first errors of a worker and of a caller, as a user with the given rights.
async fn first_errors(server: &Server, words: &[&str]) -> [String; 2] {
    server.admin().ask::<()>(&[&["ACL", "SETUSER", "shop"], words].concat());
    let locks = LockManager::connect(&server.url_as("shop", "password")).await.expect("there");
    let function = DeferredFn::new("f", (argument("number"),), |(_,): (u64,)| async {});
    let works = worker(&locks, &function).run();
    let works = tokio::time::timeout(TEST_TIMEOUT, works).await.expect("it ends");
    let held = hold(&locks, "order:1").await;
    let stored = defer(&locks, &function, "order:1", (1,)).await;
    let errors = [stored, works.expect_err("a right is missing")];
    held.release().await.expect("still held");
    assert_eq!(server.admin().keys(), Vec::<String>::new(), "nothing was stored");
    errors.map(|error| {
        assert!(matches!(error, LockError::AccessDenied { .. }), "{error:?}");
        error.to_string()
    })
}

#[tokio::test]
async fn missing_rights_are_named_to_a_worker_and_to_a_call_that_is_deferred() {
    let server = Server::start();
    let mut admin = server.admin();
    let user = ["ACL", "SETUSER", "shop", "reset", "on", ">password", "~*", "&*", "+@all"];
    admin.ask::<()>(&user);
    // All are met before anything is written, also by a look that finds no call.
    let lacking = ["-hmget", "-zrangebyscore", "-hexists"];
    let [stores, works] = first_errors(&server, &lacking).await;
    for error in [stores, works] {
        assert!(error.contains("the user lacks +hexists +hmget +zrangebyscore, at"), "{error}");
    }
    admin.ask::<()>(&user);
    let keys = ["resetkeys", "~order:*", "~lm1:w?:{order:*}", "~lm1:jobs:*"];
    for error in first_errors(&server, &keys).await {
        assert!(error.contains("~lm1:jobs:f and ~lm1:w*:{lm1:jobs:f}"), "{error}");
    }
}

#[tokio::test]
async fn a_right_that_is_taken_away_for_a_while_does_not_end_a_worker() {
    let server = Server::start();
    let mut admin = server.admin();
    let user = ["ACL", "SETUSER", "shop", "reset", "on", ">password", "~*", "&*", "+@all"];
    admin.ask::<()>(&user);
    let locks = LockManager::connect(&server.url_as("shop", "password")).await.expect("there");
    let calls = Calls::default();
    let function = noting("f", &calls);
    let working = start(&locks, &function);
    put(&locks, &function, 0).await;
    calls.reach(1).await;
    admin.ask::<()>(&["ACL", "SETUSER", "shop", "-hmget"]);
    let denied = async || !admin_log(&server).is_empty();
    eventually("the worker is denied a command", TEST_TIMEOUT, denied).await;
    admin.ask::<()>(&user);
    put(&locks, &function, 1).await;
    calls.reach(2).await;
    ends(&locks, working).await;
}

/// While its password is changed, for instance. What was found meanwhile says nothing afterwards.
#[tokio::test]
async fn a_worker_of_several_functions_goes_on_soon_after_its_user_was_switched_off() {
    let server = Server::start();
    let mut admin = server.admin();
    let user = ["ACL", "SETUSER", "shop", "reset", "on", ">password", "~*", "&*", "+@all"];
    admin.ask::<()>(&user);
    let locks = LockManager::connect(&server.url_as("shop", "password")).await.expect("there");
    let calls = Calls::default();
    let functions = ["f", "g", "h", "i", "j", "k"].map(|name| noting(name, &calls));
    let worker = functions
        .iter()
        .fold(Worker::new(&locks), |worker, function| worker.register(function.clone()));
    let working = tokio::spawn(worker.run());
    put(&locks, &functions[0], 0).await;
    calls.reach(1).await;
    admin.ask::<()>(&["ACL", "SETUSER", "shop", "off"]);
    admin.ask::<()>(&["CLIENT", "KILL", "USER", "shop"]);
    // Longer than the first pauses of the worker, each of which is twice as long.
    tokio::time::sleep(Duration::from_secs(4)).await;
    admin.ask::<()>(&user);
    put(&locks, &functions[5], 1).await;
    let back = Instant::now();
    calls.reach(2).await;
    // One pause of 5 s, and what a loaded machine needs.
    assert!(back.elapsed() < Duration::from_secs(12), "{:?}", back.elapsed());
    ends(&locks, working).await;
}

/// Calls that are kept in memory, of which some requests are denied.
#[derive(Debug)]
struct Denying {
    calls: Arc<dyn JobQueue>,
    takes: AtomicU64,
    ends: AtomicU64,
}

impl Denying {
    /// Counts a denial down; `None` when there are no more.
    fn deny<'a, T: Send + 'a>(denials: &AtomicU64) -> Option<JobFuture<'a, T>> {
        let step = |left: u64| left.checked_sub(1);
        denials.fetch_update(Ordering::SeqCst, Ordering::SeqCst, step).ok()?;
        Some(Box::pin(async { Err(LockError::access_denied("not now")) }))
    }
}

impl JobQueue for Denying {
    fn put(&self, job: NewJob) -> JobFuture<'_, Stored> {
        self.calls.put(job)
    }

    fn take<'a>(&'a self, options: TakeOptions, stop: StopWaiting<'a>) -> JobFuture<'a, Vec<Job>> {
        Self::deny(&self.takes).unwrap_or_else(|| self.calls.take(options, stop))
    }

    fn keep(&self, job: Job, lease: Duration) -> JobFuture<'_, bool> {
        self.calls.keep(job, lease)
    }

    fn settle(&self, job: Job, how: Settled) -> JobFuture<'_, bool> {
        Self::deny(&self.ends).unwrap_or_else(|| self.calls.settle(job, how))
    }

    fn list(
        &self,
        of: Arc<str>,
        state: JobState,
        first: usize,
        most: usize,
    ) -> JobFuture<'_, Page> {
        self.calls.list(of, state, first, most)
    }

    fn retry(&self, function: Arc<str>, id: String) -> JobFuture<'_, bool> {
        self.calls.retry(function, id)
    }

    fn remove(&self, function: Arc<str>, id: String) -> JobFuture<'_, bool> {
        self.calls.remove(function, id)
    }
}

/// Whichever queue it is.
#[tokio::test]
async fn a_worker_that_is_denied_for_a_while_goes_on_and_runs_no_call_twice() {
    let calls = LockManager::isolated_memory().job_queue();
    let denying = Arc::new(Denying { calls, takes: 0.into(), ends: 0.into() });
    let builder = patient().job_queue(denying.clone());
    let locks = builder.connect("memory://").await.expect("there");
    let (calls, name) = (Calls::default(), name("denied"));
    let function = noting(&name, &calls);
    let working = start(&locks, &function);
    put(&locks, &function, 0).await;
    calls.reach(1).await;
    nothing_is_left(&locks, &name).await;
    denying.takes.store(3, Ordering::SeqCst);
    denying.ends.store(3, Ordering::SeqCst);
    put(&locks, &function, 1).await;
    let is_denied = async || denying.takes.load(Ordering::SeqCst) == 0;
    eventually("it asks again and again", TEST_TIMEOUT, is_denied).await;
    put(&locks, &function, 2).await;
    calls.reach(3).await;
    nothing_is_left(&locks, &name).await;
    assert_eq!(calls.all().len(), 3, "each ran once");
    ends(&locks, working).await;
}

fn admin_log(server: &Server) -> Vec<redis::Value> {
    server.admin().ask(&["ACL", "LOG"])
}
