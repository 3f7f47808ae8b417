//! What a lock means, claim by claim; every claim holds on `memory://` and on a Redis server,
//! and most also on a Redlock.

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
mod release;
mod runtimes;
mod scopes;
mod shutdown;

use std::time::Duration;

use lockmacro_runtime::{Lock, LockError, LockManager};

/// A ttl that never ends within a test.
const LONG: Duration = Duration::from_secs(60);
/// Far below `LONG`, far above what a loaded machine needs.
const SOON: Duration = Duration::from_secs(20);

type Locked<T> = Result<T, LockError>;

fn lock(manager: &LockManager, key: &str) -> Lock {
    Lock::new(key).ttl(LONG).manager(manager)
}

/// An error of a body's own.
#[derive(Debug, PartialEq, thiserror::Error)]
enum Failure {
    #[error("the body's own error")]
    Own,
    #[error(transparent)]
    Lock(#[from] LockError),
}

fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}
