//! Every shape of function under the attribute: its body runs, and holds the lock while it does.
#![deny(warnings, clippy::all)]

mod arguments;
mod blocking;
mod defaults;
mod errors;
mod functions;
mod guards;
mod keys;
mod leases;
mod losses;
mod macros;
mod methods;
mod nesting;
mod others;
mod outcomes;
mod pairs;
mod waits;
mod without_a_prelude;

use std::time::Duration;

use lockmacro_runtime::{Lock, LockError, LockManager, LossCause};
use lockmacro_tests::times::{LONG_TTL, ms};
use lockmacro_tests::{block_until_lost, until_lost};
use tokio::time::sleep;

/// An application's error.
#[derive(Debug)]
enum OrderError {
    Lock(LockError),
    Unknown,
}

impl From<LockError> for OrderError {
    fn from(error: LockError) -> Self {
        Self::Lock(error)
    }
}

impl OrderError {
    fn is_busy(&self) -> bool {
        matches!(self, Self::Lock(error) if error.is_busy())
    }
}

fn probe(locks: &LockManager, key: &str) -> Lock {
    Lock::new(key).ttl(Duration::from_secs(30)).manager(locks)
}

/// Whether another task finds `key` locked.
async fn held(locks: &LockManager, key: &str) -> bool {
    let lock = probe(locks, key);
    let other = async move {
        match lock.acquire().await {
            Ok(guard) => guard.release().await.map(|()| false),
            Err(error) if error.is_busy() => Ok(true),
            Err(error) => Err(error),
        }
    };
    tokio::spawn(other).await.unwrap().unwrap()
}

/// Whether another thread finds `key` locked.
fn held_blocking(locks: &LockManager, key: &str) -> bool {
    let lock = probe(locks, key);
    let other = move || match lock.acquire_blocking() {
        Ok(guard) => guard.release_blocking().map(|()| false),
        Err(error) if error.is_busy() => Ok(true),
        Err(error) => Err(error),
    };
    std::thread::spawn(other).join().unwrap().unwrap()
}

/// Gives a future back that may be spawned.
fn assert_send<T: Send>(future: T) -> T {
    future
}

/// How the lock was lost that a call failed with.
fn cause<T>(ended: Result<T, impl Into<OrderError>>) -> LossCause {
    match ended.map_err(Into::into) {
        Err(OrderError::Lock(LockError::Lost(lost))) => lost.cause(),
        Err(error) => panic!("another error: {error:?}"),
        Ok(_) => panic!("no error"),
    }
}

/// Returns when the lock that the caller is under is lost.
/// A body that does not end by itself.
async fn stays<T>() -> T {
    sleep(2 * LONG_TTL).await;
    panic!("the lock of the body is lost before")
}

/// Asserts that a call had the lock while its body ran, and has it no more.
macro_rules! assert_locked {
    (blocking, $locks:expr, $key:expr, $held:expr) => {
        assert!($held, "`{}` was not held while the body ran", $key);
        assert!(!crate::held_blocking($locks, $key), "`{}` is still held after the call", $key);
    };
    ($locks:expr, $key:expr, $held:expr) => {
        assert!($held, "`{}` was not held while the body ran", $key);
        assert!(!crate::held($locks, $key).await, "`{}` is still held after the call", $key);
    };
}
use assert_locked;
