//! No token and no password in any log line or error, and no error that is not reported.

use lockmacro_runtime::{Lock, LockError, LockManager, distributed_lock};
use lockmacro_tests::{Server, in_time, log};

use crate::{KEY, LONG_TTL, Locked, TIMEOUT, lock, ms, served};

#[tokio::test]
async fn no_log_line_shows_a_token_or_a_password() {
    log::start();
    let mut server = Server::with(&["--requirepass", "hunter2"]);
    let builder = LockManager::builder().timeout(TIMEOUT).label("log-3");
    let manager = builder.connect(&server.url()).await.expect("there");
    let guard = lock(&manager).acquire().await.expect("free");
    let token = server.admin().get(KEY).expect("held");
    lock(&manager).skip_when_busy().run(async {}).await;
    server.admin().ask::<()>(&["SET", KEY, "foreign-secret", "PX", "60000"]);
    lock(&manager).skip_when_busy().run(async {}).await;
    let _ = guard.release().await;
    server.admin().ask::<()>(&["DEL", KEY]);
    let lost =
        Lock::new(KEY).ttl(ms(60)).manager(&manager).run(std::future::pending::<Locked<()>>());
    in_time(lost).await.expect_err("lost");
    let held = Lock::new(KEY).ttl(LONG_TTL).manager(&manager).acquire().await.expect("free");
    let second = server.admin().get(KEY).expect("held");
    server.kill();
    drop(held);
    lock(&manager).skip_when_busy().run(async {}).await;
    drop(LockManager::builder().timeout(TIMEOUT).connect(&server.url()).await);

    let log = log::so_far();
    // The server that is down is logged at ERROR, for a function that cannot return it.
    assert!(log.contains("ERROR"), "{log}");
    for token in [token, second] {
        let (label, random) = token.rsplit_once('/').expect("label/random");
        assert!(label.starts_with("log-3"));
        assert!(!log.contains(random), "{log}");
    }
    assert!(!log.contains("hunter2") && !log.contains("foreign-secret"), "{log}");
}

/// Something as long as the random part of a token. The name of a script is longer, which some
/// errors of servers tell.
fn shows_a_token(text: &str) -> bool {
    let mut words = text.split(|c: char| !c.is_ascii_hexdigit()).map(str::len);
    words.any(|length| length >= 32 && length != 40)
}

fn assert_discreet(error: &LockError) {
    let shown = format!("{error} {error:?}");
    assert!(!shows_a_token(&shown) && !shown.contains("hunter2"), "{shown}");
    let LockError::Unavailable { detail, .. } = error else { return };
    // In other words where it is asked again, by a script.
    let says_so = ["unknown command", "Unknown Redis command"].iter().any(|it| detail.contains(it));
    assert!(says_so, "{detail}");
}

/// A server quotes the arguments of a command that it does not know.
#[tokio::test]
async fn a_server_without_a_command_shows_no_token() {
    log::start();
    for command in ["SET", "EVALSHA", "EVAL"] {
        let server = Server::with(&["--rename-command", command, ""]);
        let connecting = LockManager::connect(&server.url()).await;
        assert_discreet(&connecting.map(drop).expect_err(command));
        let lazy = LockManager::builder().timeout(TIMEOUT).lazy();
        let manager = lazy.connect(&server.url()).await.expect("it does not ask");
        // The server knows no script at first, so EVAL is called as well.
        let error = match lock(&manager).acquire().await {
            Ok(guard) => guard.release().await.expect_err(command),
            Err(error) => error,
        };
        assert_discreet(&error);
        // The lock that could not be released is still held, and requested again.
        assert_discreet(&lock(&manager).acquire().await.expect_err(command));
        lock(&manager).skip_when_busy().run(async {}).await;
    }
    let shown = log::lines(|line| shows_a_token(line) || line.contains("with args"));
    assert_eq!(shown, [""; 0]);
}

#[tokio::test]
async fn a_server_without_a_login_shows_no_password() {
    log::start();
    let renamed = ["--rename-command", "AUTH", "", "--rename-command", "HELLO", ""];
    let server = Server::with(&[&["--requirepass", "hunter2"], &renamed[..]].concat());
    for url in [server.url(), server.url_as("clerk", "hunter2")] {
        let error = LockManager::builder().timeout(TIMEOUT).connect(&url).await;
        assert_discreet(&error.map(drop).expect_err("no AUTH"));
    }
    // The server quotes an unknown command with its arguments.
    let server = Server::with(&["--requirepass", "hunter2", "--rename-command", "HELLO", ""]);
    let error = LockManager::builder().timeout(TIMEOUT).connect(&server.url()).await;
    assert_discreet(&error.map(drop).expect_err("no HELLO"));
    assert!(!log::so_far().contains("hunter2"));
}

#[tokio::test]
async fn an_error_that_a_function_cannot_return_is_logged_with_its_name_and_key() {
    #[distributed_lock(key = "night:<id>", ttl = "60s", on_busy = skip, manager = locks)]
    async fn nightly_report(locks: &LockManager, id: u64) {}

    #[distributed_lock(key = "night:<id>", ttl = "60s", on_busy = skip, manager = locks)]
    async fn nightly_count(locks: &LockManager, id: u64) -> Option<u64> {
        Some(id)
    }

    log::start();
    let (mut server, manager) = served().await;
    server.kill();
    nightly_report(&manager, 7).await;
    assert_eq!(nightly_count(&manager, 8).await, None);
    for (name, key) in [("nightly_report", "night:7"), ("nightly_count", "night:8")] {
        let lines = log::lines(|line| line.starts_with("ERROR") && line.contains(name));
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(lines[0].contains(key) && lines[0].contains("connection refused"), "{lines:?}");
    }
}
