//! `LockManager::reset`, between the tests that share a manager.

use std::sync::LazyLock;

use tokio::time::{advance, sleep};

use super::*;

fn other(locks: &LockManager) -> Lock {
    Lock::new("order:43").ttl(HOUR).manager(locks)
}

#[tokio::test(start_paused = true)]
async fn a_reset_forgets_what_is_held() {
    let locks = LockManager::memory();
    let (guard, fence) = lock(&locks, HOUR).acquire_fenced().await.expect("free");
    std::mem::forget(other(&locks).acquire().await.expect("free"));
    locks.reset();
    let (next, later) = lock(&locks, HOUR).acquire_fenced().await.expect("forgotten");
    assert!(later > fence);
    assert!(other(&locks).acquire().await.is_ok());
    // The one of before is no holder any more, and does no harm.
    let late = guard.release().await;
    assert!(matches!(late, Err(LockError::Lost(_))), "{late:?}");
    assert!(next.is_held() && !is_free(&locks).await);
    next.release().await.expect("held");
}

#[tokio::test(start_paused = true)]
async fn a_reset_ends_a_renewal() {
    let locks = LockManager::memory();
    let guard = acquired(lock(&locks, 10 * SECOND).renew()).await;
    locks.reset();
    sleep(MINUTE).await;
    assert!(!guard.is_held() && is_free(&locks).await);
}

#[tokio::test(start_paused = true)]
async fn a_waiter_asks_again_after_a_reset() {
    let locks = LockManager::memory();
    let held = acquired(lock(&locks, 2 * HOUR)).await;
    let waiter = tokio::spawn(lock(&locks, HOUR).wait(HOUR).acquire());
    sleep(MINUTE).await;
    locks.reset();
    let next = waiter.await.expect("no panic").expect("nobody has it");
    assert!(next.is_held());
    drop(held);
    sleep(MINUTE).await;
    assert!(next.is_held() && !is_free(&locks).await);
}

/// Tests that share one manager, one after the other: each has its own runtime and its own clock.
#[test]
fn a_manager_in_a_static_serves_one_clock_after_the_other() {
    static LOCKS: LazyLock<LockManager> = LazyLock::new(LockManager::memory);
    for _ in 0..3 {
        paused().block_on(async {
            LOCKS.reset();
            let kept = lock(&LOCKS, 10 * SECOND).renew().run(async {
                sleep(HOUR).await;
                Locked::Ok(())
            });
            kept.await.expect("it is renewed");
            let guard = acquired(lock(&LOCKS, HOUR)).await;
            advance(HOUR).await;
            assert!(!guard.is_held() && is_free(&LOCKS).await);
            // Still held when the test ends.
            std::mem::forget(acquired(lock(&LOCKS, HOUR).renew()).await);
        });
    }
}

/// Without a reset, background work begins again after the runtime that it was on.
#[test]
fn background_work_outlives_a_runtime() {
    static LOCKS: LazyLock<LockManager> = LazyLock::new(LockManager::memory);
    for _ in 0..3 {
        paused().block_on(async {
            drop(acquired(lock(&LOCKS, HOUR).wait(MINUTE).renew()).await);
            let kept = lock(&LOCKS, 10 * SECOND).wait(MINUTE).renew().run(async {
                sleep(HOUR).await;
                Locked::Ok(())
            });
            kept.await.expect("it is renewed");
        });
    }
}
