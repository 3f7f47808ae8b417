//! The attribute below and above the runtime's.

use lockmacro_runtime::{LockError, LockManager, distributed_lock};

/// The whole program under one lock.
#[distributed_lock(key = "migration", ttl = "30s", manager = &LockManager::isolated_memory())]
#[tokio::main]
async fn main() -> Result<(), LockError> {
    inner().await
}

#[distributed_lock(key = "migration", ttl = "30s", manager = &LockManager::isolated_memory())]
async fn inner() -> Result<(), LockError> {
    Ok(())
}

#[test]
fn a_program_is_locked_below_its_runtimes_attribute() {
    main().unwrap();
}
