//! A manager for one task, so that functions which name none can be tested side by side. Nothing is
//! installed in this process.

use std::future::pending;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Poll;

use futures::FutureExt;
use lockmacro_runtime::{Lock, LockError, LockGuard, LockManager, distributed_lock};
use lockmacro_tests::{Backend, drop_after_polls, on, on_a_plain_thread};
use tokio::sync::oneshot;
use tokio::task::LocalSet;

#[distributed_lock(key = "order:<id>", ttl = "60s")]
async fn audit(id: u64) -> Result<bool, LockError> {
    Ok(LockManager::current()?.guard_of(format!("order:{id}")).is_some())
}

#[distributed_lock(key = "order:<id>", ttl = "60s")]
fn audit_blocking(id: u64) -> Result<bool, LockError> {
    Ok(LockManager::current()?.guard_of(format!("order:{id}")).is_some())
}

fn is_outside() -> bool {
    matches!(LockManager::current(), Err(LockError::NotInstalled { .. }))
}

/// Whether a lock here is asked for at `locks`.
async fn is_inside(locks: &LockManager) -> bool {
    let held = Lock::new("order:1").manager(locks).acquire().await.expect("free");
    let found = tokio::time::timeout(
        crate::TEST_TIMEOUT,
        LockManager::current()
            .map(|here| async move {
                Lock::new("order:1").manager(&here).wait(std::time::Duration::ZERO).acquire().await
            })
            .expect("inside"),
    )
    .await
    .expect("it answers");
    let joins = found.is_err_and(|error| error.is_busy());
    held.release().await.expect("still held");
    joins
}

#[on(memory, redis, redlock, postgres, both_runtimes)]
async fn an_annotated_function_is_locked_by_the_manager_of_its_task(backend: &Backend) {
    let prefix = backend.key("");
    let locks = backend
        .manager_from(LockManager::builder().timeout(crate::LONG_TTL).key_prefix(&prefix))
        .await;
    locks
        .scope(async {
            let held = Lock::new("order:42").acquire().await.expect("free");
            assert!(audit(42).await.expect_err("held").is_busy());
            held.release().await.expect("still held");
            assert_eq!(audit(42).await, Ok(true));
        })
        .await;
    assert!(matches!(audit(42).await, Err(LockError::NotInstalled { .. })));
}

#[tokio::test]
async fn tests_side_by_side_do_not_see_each_other() {
    let test = |locks: LockManager| {
        locks.scope(async move {
            let held = Lock::new("order:42").acquire().await.expect("free in this one");
            tokio::task::yield_now().await;
            assert!(audit(42).await.expect_err("held").is_busy());
            held.release().await.expect("still held");
            tokio::task::yield_now().await;
            audit(42).await
        })
    };
    let both =
        tokio::join!(test(LockManager::isolated_memory()), test(LockManager::isolated_memory()));
    assert_eq!(both, (Ok(true), Ok(true)));
    // A task of its own for each works as well.
    let tasks = [(); 4].map(|()| tokio::spawn(test(LockManager::isolated_memory())));
    for task in tasks {
        assert_eq!(task.await.expect("no panic"), Ok(true));
    }
    assert!(is_outside());
}

#[tokio::test]
async fn the_innermost_scope_holds_and_a_named_manager_goes_before_it() {
    let (outer, inner) = (LockManager::isolated_memory(), LockManager::isolated_memory());
    outer
        .scope(async {
            assert!(is_inside(&outer).await);
            inner.scope(async { assert!(is_inside(&inner).await) }).await;
            let held = Lock::new("order:42").manager(&inner).acquire().await.expect("free");
            assert_eq!(audit(42).await, Ok(true), "it is another store's");
            inner.scope(async { assert!(audit(42).await.expect_err("held").is_busy()) }).await;
            held.release().await.expect("still held");
            assert!(is_inside(&outer).await);
        })
        .await;
    assert!(is_outside());
}

#[tokio::test]
async fn a_scope_ends_when_its_work_is_dropped_or_panics() {
    let locks = LockManager::isolated_memory();
    drop_after_polls(locks.scope(pending::<()>()), 1).await;
    assert!(is_outside());
    let panics = locks.scope(async {
        tokio::task::yield_now().await;
        panic!("on purpose")
    });
    assert!(AssertUnwindSafe(panics).catch_unwind().await.is_err());
    assert!(is_outside());
    let panics = || locks.scope_blocking(|| panic!("on purpose"));
    assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
    assert!(is_outside());
}

#[tokio::test]
async fn what_a_body_hands_on_by_its_guard_is_inside_and_what_it_spawns_is_not() {
    let locks = LockManager::isolated_memory();
    let body = async {
        let lock = LockGuard::current().expect("it has the lock");
        let bare = tokio::spawn(async { is_outside() });
        assert!(bare.await.expect("no panic"));
        let handed = tokio::spawn(async move {
            let joined = lock.scope(async { (audit(42).await, audit(7).await) }).await;
            (joined, is_outside())
        });
        assert_eq!(handed.await.expect("no panic"), ((Ok(true), Ok(true)), true));
        Ok(())
    };
    let done: Result<(), LockError> = locks.scope(Lock::new("order:42").run(body)).await;
    assert_eq!(done, Ok(()));
    // A scope of the task itself goes before the guard's.
    let guard = locks.scope(Lock::new("order:42").acquire()).await.expect("free");
    let other = LockManager::isolated_memory();
    other.scope(guard.scope(async { assert!(is_inside(&other).await) })).await;
    guard.scope(async { assert!(is_inside(&locks).await) }).await;
    guard.release().await.expect("still held");
}

#[tokio::test]
async fn another_task_that_is_polled_within_is_outside() {
    let locks = LockManager::isolated_memory();
    let local = LocalSet::new();
    let (asked, answer) = oneshot::channel();
    local.spawn_local(async move { asked.send(is_outside()) });
    let answer = locks.scope(local.run_until(answer)).await;
    assert_eq!(answer, Ok(true), "whoever polls it may be another one next time");
}

#[tokio::test]
async fn a_future_that_moves_to_another_task_takes_its_scope_along() {
    let locks = LockManager::isolated_memory();
    let mut work = Box::pin(locks.scope(async {
        tokio::task::yield_now().await;
        audit(42).await
    }));
    let first = futures::poll!(&mut work);
    assert!(matches!(first, Poll::Pending));
    assert_eq!(tokio::spawn(work).await.expect("no panic"), Ok(true));
}

#[tokio::test]
async fn blocking_code_has_a_scope_too() {
    let locks = LockManager::isolated_memory();
    on_a_plain_thread(move || {
        let held = locks.scope_blocking(|| Lock::new("order:42").acquire_blocking()).expect("free");
        assert!(locks.scope_blocking(|| audit_blocking(42)).expect_err("held").is_busy());
        held.release_blocking().expect("still held");
        assert_eq!(locks.scope_blocking(|| audit_blocking(42)), Ok(true));
        let inner = LockManager::isolated_memory();
        locks.scope_blocking(|| {
            assert_eq!(inner.scope_blocking(|| audit_blocking(42)), Ok(true));
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            assert_eq!(runtime.expect("a runtime").block_on(audit(42)), Ok(true));
        });
        assert!(is_outside());
    })
    .await;
}
