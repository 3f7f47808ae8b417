//! Bodies without their locks: for calls that need none (`when`), and for callers that hold the
//! lock (`unlocked`).

use std::panic::AssertUnwindSafe;

use futures::FutureExt as _;
use lockmacro_runtime::{Lock, LockError, LockGuard, LockManager, distributed_lock};
use lockmacro_tests::{Backend, on, on_a_plain_thread};

use crate::{Locked, lock};

#[distributed_lock(
    key = key, ttl = "60s", when = needed, unlocked = audit_held, manager = manager
)]
async fn audit(manager: &LockManager, backend: &Backend, key: &str, needed: bool) -> Locked<bool> {
    Ok(!backend.is_free(key).await)
}

#[on(memory, redis, slots, cluster, redlock)]
async fn a_call_that_needs_no_lock_has_none(backend: &Backend) {
    let (manager, rival) = (backend.manager().await, backend.manager().await);
    let key = backend.key("order:42");
    assert_eq!(audit(&manager, backend, &key, true).await, Ok(true));
    assert_eq!(audit(&manager, backend, &key, false).await, Ok(false));
    let held = lock(&rival, &key).acquire().await.expect("free");
    assert!(audit(&manager, backend, &key, true).await.is_err_and(|error| error.is_busy()));
    // Not even this stops it.
    assert_eq!(audit(&manager, backend, &key, false).await, Ok(true));
    held.release().await.expect("released");
}

#[on(memory, redis, cluster, redlock)]
async fn a_manager_that_is_shut_down_runs_what_needs_no_lock(backend: &Backend) {
    let (manager, key) = (backend.manager().await, backend.key("order:42"));
    manager.shutdown(crate::TEST_TIMEOUT).await.expect("nothing is held");
    assert_eq!(audit(&manager, backend, &key, true).await, Err(LockError::ShutDown));
    assert_eq!(audit(&manager, backend, &key, false).await, Ok(false));
}

#[distributed_lock(
    key = key, ttl = "60s", when = needed, guard = lock, on_busy = skip, manager = manager
)]
fn tidy_up(manager: &LockManager, key: &str, needed: bool) -> Option<bool> {
    assert_eq!(LockGuard::of(key).is_some(), needed);
    Some(lock.is_some_and(LockGuard::is_held))
}

#[on(memory, redis, cluster, redlock)]
async fn a_sync_call_has_a_guard_where_it_has_the_lock(backend: &Backend) {
    let (manager, key) = (backend.manager().await, backend.key("order:42"));
    let found =
        on_a_plain_thread(move || (tidy_up(&manager, &key, true), tidy_up(&manager, &key, false)));
    assert_eq!(found.await, (Some(true), Some(false)));
}

/// What the panic of a call says.
async fn said(call: impl Future<Output = Locked<bool>>) -> String {
    let panic = AssertUnwindSafe(call).catch_unwind().await.expect_err("a panic");
    panic.downcast_ref::<String>().cloned().unwrap_or_default()
}

#[on(memory, redis, cluster, redlock)]
async fn a_caller_runs_the_body_under_a_lock_of_its_own(backend: &Backend) {
    // The lock may be another manager's.
    let (manager, other) = (backend.manager().await, backend.manager().await);
    let keys = ["{order}:42", "{order}:7"].map(|name| backend.key(name));
    let both = Lock::many(&keys).manager(&other).run(async {
        let [one, two] = &keys;
        let held = audit_held(&manager, backend, one, true).await?;
        Ok::<_, LockError>(held && audit_held(&manager, backend, two, true).await?)
    });
    assert_eq!(both.await, Ok(true));
    assert!(backend.is_free(&keys[0]).await);
}

#[on(memory, redis, cluster, redlock)]
async fn a_caller_without_the_lock_is_told_its_key(backend: &Backend) {
    let (manager, rival) = (backend.manager().await, backend.manager().await);
    let key = backend.key("order:42");
    let held = lock(&rival, &key).acquire().await.expect("free");
    let message = said(audit_held(&manager, backend, &key, true)).await;
    assert!(message.contains(&format!("hold the lock `{key}`")), "{message}");
    // It is asserted where the lock is needed.
    assert_eq!(audit_held(&manager, backend, &key, false).await, Ok(true));
    held.release().await.expect("released");
}
