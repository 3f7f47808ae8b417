#![deny(warnings)]

use lockmacro_runtime::{LockError, LockManager, distributed_lock};

/// The whole program under one lock, below and above the runtime's attribute.
#[distributed_lock(key = "migration", ttl = "30s", manager = &LockManager::memory())]
#[tokio::main]
async fn main() -> Result<(), LockError> {
    inner().await
}

#[distributed_lock(key = "migration", ttl = "30s", manager = &LockManager::memory())]
async fn inner() -> Result<(), LockError> {
    Ok(())
}
