//! The runtime is not in this package's Cargo.toml: another package re-exports it.

use std::time::Duration;

use company::lockmacro_runtime::{Lock, LockError, LockManager};

/// Both are imported by name.
mod by_name {
    use company::{distributed_lock, lockmacro_runtime};
    use lockmacro_runtime::{LockError, LockManager};

    #[distributed_lock(key = "order:<id>", ttl = "30s", manager = manager)]
    pub async fn audit(manager: &LockManager, id: u64) -> Result<u64, LockError> {
        Ok(id)
    }
}

/// Both are imported with all else.
mod by_glob {
    use company::lockmacro_runtime::{LockError, LockManager};
    use company::*;

    #[distributed_lock(key = "order:<id>", ttl = "30s", manager = manager)]
    pub async fn audit(manager: &LockManager, id: u64) -> Result<u64, LockError> {
        Ok(id)
    }

    #[distributed_lock(key = "order:<id>", ttl = "30s", on_busy = defer("30s"))]
    pub async fn assign(id: u64) -> Result<u64, LockError> {
        Ok(id)
    }
}

/// The runtime is not in scope.
mod by_path {
    use company::distributed_lock;
    use company::lockmacro_runtime::{LockError, LockManager};

    #[distributed_lock(
        key = "order:<id>",
        ttl = "30s",
        manager = manager,
        crate = company::lockmacro_runtime
    )]
    pub async fn audit(manager: &LockManager, id: u64) -> Result<u64, LockError> {
        Ok(id)
    }
}

#[tokio::test]
async fn functions_are_locked_by_a_runtime_that_another_package_re_exports() {
    let manager = LockManager::isolated_memory();
    let _ = (by_glob::assign, by_glob::assign_deferred());
    let held = Lock::new("order:7").ttl(Duration::from_secs(30)).manager(&manager);
    let held = held.acquire().await.unwrap();
    assert!(by_name::audit(&manager, 7).await.is_err_and(|error: LockError| error.is_busy()));
    assert!(by_glob::audit(&manager, 7).await.is_err_and(|error: LockError| error.is_busy()));
    assert!(by_path::audit(&manager, 7).await.is_err_and(|error: LockError| error.is_busy()));
    held.release().await.unwrap();
    assert_eq!(by_name::audit(&manager, 7).await.unwrap(), 7);
    assert_eq!(by_glob::audit(&manager, 7).await.unwrap(), 7);
    assert_eq!(by_path::audit(&manager, 7).await.unwrap(), 7);
}
