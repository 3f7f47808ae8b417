//! Numbers and stores that cannot be used, and the error that says so.

use lockmacro_runtime::{Lock, LockError};
use lockmacro_tests::{Backend, on};

use crate::{held, lock, released};

fn refused(result: Result<lockmacro_runtime::LockGuard, LockError>, wanted: &str, fix: &str) {
    let error = result.expect_err("refused");
    let is_right =
        matches!(&error, LockError::InvalidSetting { setting, .. } if *setting == wanted);
    assert!(is_right && error.to_string().contains(fix), "{error}");
}

#[on(memory, redis, postgres)]
async fn a_number_of_permits_out_of_bounds_is_refused(backend: &Backend) {
    let (manager, key) = (backend.manager().await, backend.key("printer"));
    for permits in [0, 10_001, u32::MAX] {
        refused(lock(&manager, &key).permits(permits).acquire().await, "permits", "1 to 10000");
        let several = Lock::many(["a", "b"]).permits(permits).manager(&manager);
        refused(several.acquire().await, "permits", "1 to 10000");
    }
    released([held(lock(&manager, &key).permits(10_000)).await]).await;
}

#[on(redlock)]
async fn a_redlock_has_exclusive_locks_only(backend: &Backend) {
    let (manager, key) = (backend.manager().await, backend.key("printer"));
    refused(lock(&manager, &key).shared().acquire().await, "shared", "Redlock");
    refused(lock(&manager, &key).permits(3).acquire().await, "permits", "Redlock");
    released([held(lock(&manager, &key).permits(1)).await]).await;
}
