//! Servers that are more than one plain address: encrypted ones, and groups of which one is the
//! primary.

mod encrypted;
mod logins;
mod not_ours;
mod rotating;
mod scripts;
mod sentinel;
mod settings;
mod starting;
mod tls;

use std::time::Duration;

use lockmacro_runtime::{Lock, LockError, LockManager, LockManagerBuilder, UnavailableReason};
use lockmacro_tests::times::{FAILOVER, FAILOVER_TTL};

const KEY: &str = "order:42";

/// The settings of a manager that does not give up on a loaded machine.
fn patient() -> LockManagerBuilder {
    LockManager::builder().timeout(FAILOVER)
}

fn lock(manager: &LockManager) -> Lock {
    Lock::new(KEY).ttl(FAILOVER_TTL).manager(manager)
}
