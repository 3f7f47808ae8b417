//! Faults of a real server and its network, and the errors of callers.

mod access;
mod crowd;
mod down;
mod ending;
mod foreign;
mod full;
mod late;
mod logs;
mod network;
mod outages;
mod refusals;
mod secrets;
mod stalled;
mod taken;
mod wire;

use std::future::ready;
use std::time::{Duration, Instant};

use lockmacro_runtime::{Lock, LockError, LockManager, UnavailableReason};
use lockmacro_tests::times::{LONG_TTL, TEST_TIMEOUT, ms};
use lockmacro_tests::{Server, eventually, through, within};

/// How long managers wait for a server.
const TIMEOUT: Duration = Duration::from_millis(1_500);
/// The time that a loaded machine may add.
const SLACK: Duration = Duration::from_millis(4_000);

const KEY: &str = "order:42";

type Locked<T> = Result<T, LockError>;

/// A server, and a manager on it.
async fn served() -> (Server, LockManager) {
    let server = Server::start();
    let manager = manager(&server.url()).await;
    (server, manager)
}

async fn manager(url: &str) -> LockManager {
    within(TIMEOUT, url).await
}

fn lock(manager: &LockManager) -> Lock {
    Lock::new(KEY).ttl(LONG_TTL).manager(manager)
}

/// The error of the first use of the server at `url`: of connecting, or else of locking.
async fn first_error(url: &str) -> LockError {
    let start = Instant::now();
    let manager = match LockManager::builder().timeout(TIMEOUT).connect(url).await {
        Ok(manager) => manager,
        Err(error) => return error,
    };
    let error = refusal(&manager).await;
    assert!(start.elapsed() < 2 * TIMEOUT + SLACK, "after {:?}", start.elapsed());
    error
}

/// The error of a lock that must not be granted, within the manager's timeout, and whose body must
/// not run. A fault is never reported as a lock that somebody holds.
async fn refusal(manager: &LockManager) -> LockError {
    let start = Instant::now();
    let mut ran = false;
    let result: Locked<()> = lock(manager)
        .run(async {
            ran = true;
            Ok(())
        })
        .await;
    assert!(start.elapsed() < TIMEOUT + SLACK, "after {:?}", start.elapsed());
    assert!(!ran, "the body ran");
    let error = result.expect_err("not granted");
    assert!(!error.is_busy(), "{error}");
    error
}

/// The reason of an error that must be `Unavailable`.
fn reason(error: LockError) -> UnavailableReason {
    match error {
        LockError::Unavailable { reason, .. } => reason,
        other => panic!("not `Unavailable`: {other:?}"),
    }
}

/// The lock works again on a manager that has seen a fault.
async fn works(manager: &LockManager) {
    let result = lock(manager).run(async { Locked::Ok(7) }).await;
    assert_eq!(result, Ok(7));
}

/// Waits until nobody holds the lock.
async fn becomes_free(server: &Server) {
    let mut admin = server.admin();
    eventually("the key is free", TEST_TIMEOUT, || ready(admin.get(KEY).is_none())).await;
}

/// Waits until the server holds no key at all.
async fn keeps_nothing(server: &Server) {
    let mut admin = server.admin();
    eventually("the server is empty", TEST_TIMEOUT, || ready(admin.keys().is_empty())).await;
}
