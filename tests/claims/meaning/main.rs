//! The meaning of a lock, claim by claim; every claim holds on `memory://` and on a Redis server,
//! and most also on a Redlock.

mod background;
mod blocking;
mod crowd;
mod defaults;
mod disabled;
mod dropped;
mod exclusion;
mod expiry;
mod holders;
mod leading;
mod misuse;
mod outcomes;
mod release;
mod reuse;
mod runtimes;
mod scopes;
mod shutdown;

use std::time::Instant;

use lockmacro_runtime::{Lock, LockError, LockGuard, LockManager};
use lockmacro_tests::times::{LONG_TTL, TEST_TIMEOUT, ms};

type Locked<T> = Result<T, LockError>;

fn lock(manager: &LockManager, key: &str) -> Lock {
    Lock::new(key).ttl(LONG_TTL).manager(manager)
}

/// Asks again and again until the lock is granted.
async fn granted(lock: Lock) -> LockGuard {
    let start = Instant::now();
    loop {
        match lock.acquire().await {
            Ok(guard) => return guard,
            Err(error) => assert!(error.is_busy(), "{error}"),
        }
        assert!(start.elapsed() < TEST_TIMEOUT, "the lock never became free");
        tokio::time::sleep(ms(1)).await;
    }
}

/// An error of a body's own.
#[derive(Debug, PartialEq, thiserror::Error)]
enum Failure {
    #[error("the body's own error")]
    Own,
    #[error(transparent)]
    Lock(#[from] LockError),
}
