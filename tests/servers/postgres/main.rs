//! What only a PostgreSQL server can do to its locks, and what the caller is told.

mod crash;
mod durable;
mod encrypted;
mod fence_checks;
mod fences;
mod few;
mod foreign;
mod hosts;
mod hung;
mod killed;
mod late;
mod left;
mod lost;
mod pooled;
mod refusals;
mod renewals;
mod rights;
mod schedules;
mod schemas;
mod stopped;
mod upgrade;
mod values;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Weak};
use std::time::Duration;

use lockmacro_runtime::{Fence, Lock, LockError, LockManager, UnavailableReason};
use lockmacro_tests::times::{LONG_TTL, TEST_TIMEOUT};
use lockmacro_tests::{Postgres, eventually, log, within};
use tokio::sync::Mutex;
use tokio_postgres::Client;

/// How long managers wait for a server that is to fail.
const TIMEOUT: Duration = Duration::from_secs(2);
/// The time that a loaded machine may add.
const SLACK: Duration = Duration::from_secs(4);

/// All managers of a process share its log.
const WARNINGS: [&str; 2] = [NO_PUSHES, NO_ROOM];
const NO_PUSHES: &str = "grants are not pushed";
const NO_ROOM: &str = "no room for more connections";

type Locked<T> = Result<T, LockError>;

/// A server for tests that do it no harm, which is gone with the last of them. Each has keys, users
/// and schemas of its own.
async fn shared() -> Arc<Postgres> {
    static SHARED: Mutex<Weak<Postgres>> = Mutex::const_new(Weak::new());
    let mut shared = SHARED.lock().await;
    if let Some(server) = shared.upgrade() {
        return server;
    }
    let server = Arc::new(Postgres::start().await);
    *shared = Arc::downgrade(&server);
    server
}

/// A manager that waits as long as a loaded machine needs.
async fn manager(url: &str) -> LockManager {
    within(LONG_TTL, url).await
}

fn lock(manager: &LockManager, key: &str) -> Lock {
    Lock::new(key).ttl(LONG_TTL).manager(manager)
}

/// Logs the warnings that [`warnings`] counts.
fn log_warnings() {
    log::start_of(|line| line.starts_with("WARN") && WARNINGS.iter().any(|w| line.contains(w)));
}

/// How many warnings there were of this kind about a server on this port.
fn warnings(kind: &str, port: u16) -> usize {
    assert!(WARNINGS.contains(&kind), "it is logged");
    let server = format!("127.0.0.1:{port}");
    log::lines(|line| line.contains(kind) && line.contains(&server)).len()
}

/// The lock is granted, and released.
async fn works(manager: &LockManager, key: &str) {
    let result = lock(manager, key).run(async { Locked::Ok(7) }).await;
    assert_eq!(result, Ok(7));
}

/// The error of a lock that must not be granted, within the time of a manager that waits for
/// [`TIMEOUT`]. A fault is never reported as a lock that somebody holds.
async fn refusal(manager: &LockManager, key: &str) -> LockError {
    let start = std::time::Instant::now();
    let error = lock(manager, key).acquire().await.expect_err("not granted");
    assert!(start.elapsed() < TIMEOUT + SLACK, "after {:?}", start.elapsed());
    assert!(!error.is_busy(), "{error}");
    error
}

/// The reason of an error that must be `Unavailable`.
fn reason(error: &LockError) -> UnavailableReason {
    match error {
        LockError::Unavailable { reason, .. } => *reason,
        other => panic!("not `Unavailable`: {other:?}"),
    }
}

/// Waits until somebody is in the queue of the key.
async fn is_waited_for(client: &Client, key: &str) {
    eventually("somebody waits", TEST_TIMEOUT, || async {
        let waiters = "SELECT FROM lm1.waiter WHERE key = $1";
        !client.query(waiters, &[&key]).await.expect("an answer").is_empty()
    })
    .await;
}

/// The token of the holder of a key, and when its lease ends, in milliseconds; `None` when it is
/// free.
async fn holder(client: &Client, key: &str) -> Option<(String, i64)> {
    let holder = "SELECT token, (extract(epoch FROM ends) * 1000)::bigint FROM lm1.lease
        WHERE key = $1 AND ends > clock_timestamp()";
    let row = client.query_opt(holder, &[&key]).await.expect("an answer")?;
    Some((row.get(0), row.get(1)))
}

/// Waits until the lease of a key that is held has a later end than now.
async fn is_renewed(client: &Client, key: &str) {
    let (token, ends) = holder(client, key).await.expect("it is held");
    eventually("the lease is renewed", TEST_TIMEOUT, || async {
        let (now, later) = holder(client, key).await.expect("it is held");
        assert_eq!(now, token, "the holder stays");
        later > ends
    })
    .await;
}

/// Counts who is in a body, where nobody may be beside another.
#[derive(Debug, Default)]
struct Room {
    inside: AtomicUsize,
    visits: AtomicUsize,
    fences: std::sync::Mutex<BTreeSet<Fence>>,
}

impl Room {
    /// Enters with a fence that is larger than all before, lets others run, and leaves.
    async fn visit(&self, fence: Fence) {
        assert_eq!(self.inside.fetch_add(1, SeqCst), 0, "nobody is beside another");
        let earlier = self.fences.lock().expect("no panic").last().cloned();
        assert!(earlier < Some(fence), "{fence:?} after {earlier:?}");
        self.fences.lock().expect("no panic").insert(fence);
        tokio::task::yield_now().await;
        self.inside.fetch_sub(1, SeqCst);
        self.visits.fetch_add(1, SeqCst);
    }

    fn visits(&self) -> usize {
        self.visits.load(SeqCst)
    }
}
