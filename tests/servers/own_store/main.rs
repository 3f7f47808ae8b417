//! A store of one's own, written with the public trait alone: what of the attribute works on it, what
//! is refused by name, and that the suite of stores names what is wrong with one.

mod conformance;
mod features;
mod planted;
mod refusals;
mod table;

use std::time::Duration;

use lockmacro_runtime::{Lock, LockError, LockManager};
use lockmacro_tests::times::LONG_TTL;

use crate::table::Table;

type Locked<T> = Result<T, LockError>;

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A manager of this table, as of one process.
async fn manager(table: &Table) -> LockManager {
    LockManager::builder().connect_store(table.clone()).await.expect("it is there")
}

fn lock(locks: &LockManager, key: &str) -> Lock {
    Lock::new(key).ttl(LONG_TTL).manager(locks)
}
