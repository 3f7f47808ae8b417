//! Functions that are unsafe to call.

use std::time::Duration;

use lockmacro_runtime::{Lock, LockError, LockManager, distributed_lock};

/// # Safety
/// `id` is not null.
#[distributed_lock(key = "order", ttl = "30s", manager = locks)]
unsafe fn audit(locks: &LockManager, id: *const u64) -> Result<(bool, u64), LockError> {
    let other = Lock::new("order").ttl(Duration::from_secs(30)).manager(locks);
    let held =
        std::thread::spawn(move || other.acquire_blocking().is_err_and(|error| error.is_busy()));
    Ok((held.join().is_ok_and(|held| held), unsafe { *id }))
}

/// # Safety
/// None is needed.
#[distributed_lock(key = "order", ttl = "30s", manager = locks)]
async unsafe fn audit_async(locks: &LockManager) -> Result<bool, LockError> {
    let other = Lock::new("order").ttl(Duration::from_secs(30)).manager(locks);
    let held = tokio::spawn(other.acquire()).await;
    Ok(held.is_ok_and(|held| held.is_err_and(|error| error.is_busy())))
}

#[test]
fn an_unsafe_function_is_locked() {
    let locks = LockManager::isolated_memory();
    assert_eq!(unsafe { audit(&locks, &42) }.unwrap(), (true, 42));
    assert_eq!(unsafe { audit(&locks, &42) }.unwrap(), (true, 42));
    let runtime = tokio::runtime::Runtime::new().unwrap();
    assert!(runtime.block_on(async { unsafe { audit_async(&locks) }.await }).unwrap());
}
