//! The runtime has another name in this package's Cargo.toml, where the attribute finds it.

use std::time::Duration;

use locks::{Lock, LockError, LockManager, distributed_lock};

#[distributed_lock(key = "order:<id>", ttl = "30s", manager = manager)]
async fn audit(manager: &LockManager, id: u64) -> Result<u64, LockError> {
    Ok(id)
}

#[distributed_lock(key = "order:<id>", ttl = "30s", on_busy = defer("30s"))]
async fn assign(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

#[tokio::test]
async fn a_function_is_locked_by_a_runtime_of_another_name() {
    let manager = LockManager::isolated_memory();
    let _ = (assign, assign_deferred());
    let held = Lock::new("order:7").ttl(Duration::from_secs(30)).manager(&manager);
    let held = held.acquire().await.unwrap();
    assert!(audit(&manager, 7).await.unwrap_err().is_busy());
    held.release().await.unwrap();
    assert_eq!(audit(&manager, 7).await.unwrap(), 7);
}
