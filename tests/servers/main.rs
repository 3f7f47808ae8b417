//! Servers that are more than one plain address: encrypted ones, and groups of which one is the
//! primary.

mod encrypted;
mod logins;
mod sentinel;
mod tls;

use std::time::Duration;

use lockmacro_runtime::{Lock, LockError, LockManager, Unavailability};

/// A ttl that never ends within a test.
const LONG: Duration = Duration::from_secs(600);
/// Far below `LONG`, far above what a loaded machine needs, also for a failover.
const SOON: Duration = Duration::from_secs(120);

const KEY: &str = "order:42";

fn lock(manager: &LockManager) -> Lock {
    Lock::new(KEY).ttl(LONG).manager(manager)
}
