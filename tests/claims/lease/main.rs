//! The life of a lease: renewal, the deadline, loss, fences, and entering a lock again.
//!
//! The tests of server and process faults need what is in Debian's `redis-server`, `util-linux` and
//! `faketime`. `LEASE_ROUNDS` is the number of races between a holder and a rival, 50 by default.

mod attribute;
mod bounds;
mod clock;
mod crowd;
mod ends;
mod events;
mod fences;
mod foreign;
mod lateness;
#[cfg(feature = "metrics")]
mod numbers;
mod outages;
mod policies;
mod quiet;
mod reentry;
mod renewal;
mod restart;
mod stopped;
mod threads;

use std::cell::RefCell;
use std::future::ready;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use lockmacro_runtime::{Lock, LockError, LockGuard, LockManager, LossCause};
use lockmacro_tests::times::{LONG_TTL, SOON, ms};
use lockmacro_tests::{
    Admin, Process, Server, block_until_lost, eventually, through, until_lost, within,
};

type Locked<T> = Result<T, LockError>;

/// An error of a body's own.
#[derive(Debug, PartialEq, thiserror::Error)]
enum Failure {
    #[error("the body's own error")]
    Own,
    #[error(transparent)]
    Lock(#[from] LockError),
}

/// A lock that is not renewed and does not end within a test.
fn lock(manager: &LockManager, key: &str) -> Lock {
    Lock::new(key).ttl(LONG_TTL).manager(manager)
}

/// A lock that is renewed.
fn renewed(manager: &LockManager, key: &str, ttl: Duration) -> Lock {
    Lock::new(key).ttl(ttl).renew().manager(manager)
}

/// The cause of a loss, which the caller must have got.
fn cause<T: std::fmt::Debug>(result: Locked<T>) -> LossCause {
    match result {
        Err(LockError::Lost(lost)) => lost.cause(),
        other => panic!("not lost: {other:?}"),
    }
}

/// Has the server learn its scripts, so that the next call of each is one command.
async fn warm_up(manager: &LockManager) {
    let guard = lock(manager, "warm").acquire().await.expect("free");
    guard.extend(LONG_TTL).await.expect("ours");
    guard.release().await.expect("ours");
}

/// A manager on a server of the test's own.
async fn connect(url: &str) -> LockManager {
    LockManager::connect(url).await.expect("there")
}

/// A server, and a manager on it.
async fn served() -> (Server, LockManager) {
    let server = Server::start();
    let manager = connect(&server.url()).await;
    (server, manager)
}

/// Asks until the lock is granted.
async fn next(rival: &LockManager, key: &str) -> LockGuard {
    let granted = RefCell::new(None);
    eventually("the lock becomes free", 2 * SOON, async || {
        match lock(rival, key).acquire().await {
            Ok(guard) => *granted.borrow_mut() = Some(guard),
            Err(error) => assert!(error.is_busy(), "{error}"),
        }
        granted.borrow().is_some()
    })
    .await;
    granted.into_inner().expect("granted")
}

/// Lasts until a lock was renewed.
async fn until_renewed(lock: &LockGuard) {
    let mut before = lock.remaining();
    let is_renewed = || {
        let now = lock.remaining();
        ready(now > std::mem::replace(&mut before, now))
    };
    eventually("the lock is renewed", 2 * SOON, is_renewed).await;
}

/// Has this time pass and some more: what would happen within it has happened then, such as the end
/// of a lease that is not renewed.
async fn outlast(ttl: Duration) {
    tokio::time::sleep(ttl * 9 / 8).await;
}

/// How long the server or the store keeps the key, as a rival learns it; `None` when it is free.
async fn left(rival: &LockManager, key: &str) -> Option<Duration> {
    match lock(rival, key).acquire().await {
        Ok(guard) => {
            guard.release().await.expect("released");
            None
        }
        Err(error) => {
            Some(error.holder().free_within.unwrap_or_else(|| panic!("not busy: {error}")))
        }
    }
}

/// A `lease-holder`.
fn holder(words: &[&str]) -> Process {
    Process::start(Command::new(env!("CARGO_BIN_EXE_lease-holder")).args(words))
}

/// When a body took its last step, seen by the process that sees its rival too.
#[derive(Clone, Default)]
struct Steps(Arc<Mutex<Vec<Instant>>>);

impl Steps {
    /// A body that takes a step every millisecond, for ever.
    async fn for_ever<T>(self) -> T {
        loop {
            self.take();
            tokio::time::sleep(ms(1)).await;
        }
    }

    fn take(&self) {
        self.0.lock().expect("the steps").push(Instant::now());
    }

    fn last(&self) -> Option<Instant> {
        self.0.lock().expect("the steps").last().copied()
    }

    async fn begin(&self) {
        eventually("the body begins", 4 * SOON, async || self.last().is_some()).await;
    }

    /// How long before a rival's grant the last step was. The body must be gone by now, so that it
    /// is known to be the last.
    fn ended_before(&self, granted: Instant) -> Duration {
        assert_eq!(Arc::strong_count(&self.0), 1, "the body is still there");
        let last = self.last().expect("it began");
        assert!(last < granted, "a step {:?} after the grant to a rival", last - granted);
        granted - last
    }
}

/// A rival on a thread and a connection of its own, that asks as fast as the server answers. It
/// gives the moment of its grant, which it keeps for 10 ms.
fn rival(url: &str, key: &str) -> std::thread::JoinHandle<Instant> {
    let (mut admin, key) = (Admin::connect(url), key.to_owned());
    std::thread::spawn(move || {
        let start = Instant::now();
        while admin.ask::<Option<String>>(&["SET", &key, "rival", "NX", "PX", "10"]).is_none() {
            assert!(start.elapsed() < 2 * SOON, "the lock never became free");
            std::thread::sleep(Duration::from_micros(100));
        }
        Instant::now()
    })
}

/// Waits for a thread without blocking the runtime.
async fn joined<T: Send + 'static>(thread: std::thread::JoinHandle<T>) -> T {
    lockmacro_tests::on_a_plain_thread(|| thread.join().expect("no panic")).await
}
