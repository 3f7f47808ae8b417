//! Servers that are more than one plain address: encrypted ones, and groups of which one is the
//! primary.

mod encrypted;
mod logins;
mod rotating;
mod scripts;
mod sentinel;
mod starting;
mod tls;

use std::time::Duration;

use lockmacro_runtime::{Lock, LockError, LockManager, LockManagerBuilder, Unavailability};

/// A ttl that never ends within a test.
const LONG: Duration = Duration::from_secs(600);
/// Far below `LONG`, far above what a loaded machine needs, also for a failover.
const SOON: Duration = Duration::from_secs(120);

const KEY: &str = "order:42";

/// What is said to a manager that is not to give up on a loaded machine.
fn patient() -> LockManagerBuilder {
    LockManager::builder().timeout(SOON)
}

fn lock(manager: &LockManager) -> Lock {
    Lock::new(KEY).ttl(LONG).manager(manager)
}
