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
mod misuse;
mod outcomes;
mod policies;
mod release;
mod runtimes;
mod scopes;
mod shutdown;

use lockmacro_runtime::{Lock, LockError, LockManager};
use lockmacro_tests::times::{LONG_TTL, TEST_TIMEOUT, ms};

type Locked<T> = Result<T, LockError>;

fn lock(manager: &LockManager, key: &str) -> Lock {
    Lock::new(key).ttl(LONG_TTL).manager(manager)
}

/// An error of a body's own.
#[derive(Debug, PartialEq, thiserror::Error)]
enum Failure {
    #[error("the body's own error")]
    Own,
    #[error(transparent)]
    Lock(#[from] LockError),
}
