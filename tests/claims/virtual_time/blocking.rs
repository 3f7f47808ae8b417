//! Callers that block a thread, while the clock of their runtime is paused.

use std::sync::mpsc;

use tokio::sync::oneshot;
use tokio::task::spawn_blocking;
use tokio::time::{advance, sleep};

use super::*;

/// The clock stands still while `spawn_blocking` works, unless the test moves it on.
#[tokio::test(start_paused = true)]
async fn a_blocking_wait_ends_by_virtual_time() {
    let locks = LockManager::isolated_memory();
    let held = acquired(lock(&locks, 2 * HOUR)).await;
    let waiting = lock(&locks, MINUTE).wait(HOUR);
    let waiter = spawn_blocking(move || waiting.acquire_blocking());
    while !waiter.is_finished() {
        advance(MINUTE).await;
        blocked_briefly().await;
    }
    let late = waiter.await.expect("no panic");
    assert!(matches!(late, Err(LockError::TimedOut { .. })), "{late:?}");
    held.release().await.expect("held");
}

#[tokio::test(start_paused = true)]
async fn a_blocking_caller_holds_a_lease_of_virtual_time() {
    let locks = LockManager::isolated_memory();
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
    let locks = LockManager::isolated_memory();
    let refused = acquired(lock(&locks, HOUR)).await.release_blocking();
    assert!(lockmacro_tests::is_no_runtime(&refused, "spawn_blocking"), "{refused:?}");
    // It is released in the background instead.
    sleep(SECOND).await;
    assert!(is_free(&locks).await);
}

/// The caller is not polled, but its thread is blocked, so it is there.
#[tokio::test(start_paused = true)]
async fn a_blocking_caller_of_several_keys_keeps_its_first_one() {
    let locks = LockManager::isolated_memory();
    let held = acquired(Lock::new("b").ttl(HOUR).manager(&locks)).await;
    let both = Lock::many(["a", "b"]).ttl(HOUR).wait(2 * HOUR).manager(&locks);
    let both = spawn_blocking(move || both.acquire_blocking());
    let a = || Lock::new("a").ttl(HOUR).manager(&locks);
    while is_acquired(a().acquire().await) {
        blocked_briefly().await;
    }
    let single = tokio::spawn(a().wait(2 * HOUR).acquire());
    for _ in 0..60 {
        advance(SECOND).await;
        blocked_briefly().await;
    }
    assert!(!single.is_finished() && !is_acquired(a().acquire().await));
    held.release().await.expect("held");
    let both = both.await.expect("no panic").expect("served");
    assert!(!single.is_finished(), "it comes after the caller of both");
    both.release().await.expect("held");
    single.await.expect("no panic").expect("served").release().await.expect("held");
}

/// Lets blocked threads look at the clock.
async fn blocked_briefly() {
    // A second of virtual time each: far more than the time for which a loaded machine stops a
    // thread.
    let real = || std::thread::sleep(std::time::Duration::from_millis(10));
    spawn_blocking(real).await.expect("no panic");
}

fn is_acquired(outcome: Locked<LockGuard>) -> bool {
    match outcome {
        Ok(_guard) => true,
        Err(error) if error.is_busy() => false,
        Err(error) => panic!("{error}"),
    }
}
