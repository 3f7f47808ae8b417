//! Callers that block a thread, while the clock of their runtime is paused.

use std::sync::mpsc;

use tokio::sync::oneshot;
use tokio::task::spawn_blocking;
use tokio::time::{advance, sleep};

use super::*;

/// The clock stands still while `spawn_blocking` works, unless the test moves it on.
#[tokio::test(start_paused = true)]
async fn a_blocking_wait_ends_by_virtual_time() {
    let locks = LockManager::memory();
    let held = acquired(lock(&locks, 2 * HOUR)).await;
    let waiting = lock(&locks, MINUTE).wait(HOUR);
    let waiter = spawn_blocking(move || waiting.acquire_blocking());
    while !waiter.is_finished() {
        advance(MINUTE).await;
        // Lets the thread look at the clock.
        spawn_blocking(|| std::thread::sleep(std::time::Duration::from_millis(1))).await.unwrap();
    }
    let late = waiter.await.expect("no panic");
    assert!(matches!(late, Err(LockError::TimedOut { .. })), "{late:?}");
    held.release().await.expect("held");
}

#[tokio::test(start_paused = true)]
async fn a_blocking_caller_holds_a_lease_of_virtual_time() {
    let locks = LockManager::memory();
    let (begun, has_begun) = oneshot::channel();
    let (go_on, waits) = mpsc::channel();
    let wanted = lock(&locks, HOUR);
    let body = spawn_blocking(move || {
        wanted.run_blocking(|| {
            begun.send(()).expect("the test waits");
            waits.recv().expect("the test goes on");
            Locked::Ok(7)
        })
    });
    has_begun.await.expect("it begins");
    assert!(!is_free(&locks).await);
    advance(HOUR).await;
    assert!(is_free(&locks).await);
    go_on.send(()).expect("the body waits");
    let lost = body.await.expect("no panic");
    assert!(matches!(lost, Err(LockError::Lost(_))), "{lost:?}");
}

#[tokio::test(start_paused = true)]
async fn a_guard_is_not_released_by_blocking_the_thread_of_the_runtime() {
    let locks = LockManager::memory();
    let refused = acquired(lock(&locks, HOUR)).await.release_blocking();
    assert_eq!(refused, Err(LockError::BlockingInAsync));
    // It is released in the background instead.
    sleep(SECOND).await;
    assert!(is_free(&locks).await);
}
