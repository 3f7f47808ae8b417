//! How leases end, and how they are kept.

use std::future::pending;
use std::sync::LazyLock;

use lockmacro_runtime::LossCause;
use tokio::time::{Instant, advance, sleep};

use super::*;

#[tokio::test(start_paused = true)]
async fn a_lease_of_an_hour_ends_by_an_hour_of_virtual_time() {
    let locks = LockManager::isolated_memory();
    let guard = acquired(lock(&locks, HOUR)).await;
    advance(HOUR - MINUTE).await;
    assert!(guard.is_held() && guard.remaining() < MINUTE);
    assert!(!is_free(&locks).await);
    advance(MINUTE).await;
    assert!(!guard.is_held());
    assert!(is_free(&locks).await);
    let late = guard.release().await;
    assert!(matches!(late, Err(LockError::Lost(_))), "{late:?}");
}

#[tokio::test(start_paused = true)]
async fn a_body_ends_with_its_lease() {
    let (locks, start) = (LockManager::isolated_memory(), Instant::now());
    let lost: Locked<()> = lock(&locks, HOUR).run(pending()).await;
    let Err(LockError::Lost(lost)) = lost else { panic!("{lost:?}") };
    assert_eq!(lost.cause(), LossCause::Expired);
    let after = start.elapsed();
    assert!(after <= HOUR && after > HOUR.mul_f64(0.98), "{after:?}");
}

#[tokio::test(start_paused = true)]
async fn a_renewed_lock_is_kept_for_hours() {
    let locks = LockManager::isolated_memory();
    let kept = lock(&locks, 10 * SECOND).renew().run(async {
        for _ in 0..3 {
            sleep(HOUR).await;
            assert!(!is_free(&locks).await);
        }
        Locked::Ok(7)
    });
    assert_eq!(kept.await, Ok(7));
    assert!(is_free(&locks).await);
}

#[tokio::test(start_paused = true)]
async fn renewal_ends_with_the_longest_hold() {
    let (locks, start) = (LockManager::isolated_memory(), Instant::now());
    let hanging: Locked<()> = lock(&locks, 10 * SECOND).renew().max_hold(HOUR).run(pending()).await;
    assert!(matches!(hanging, Err(LockError::Lost(_))), "{hanging:?}");
    let after = start.elapsed();
    assert!(after > HOUR - 10 * SECOND && after <= HOUR + 10 * SECOND, "{after:?}");
}

/// As on a machine that was suspended: time has gone by before any renewal could be sent.
#[tokio::test(start_paused = true)]
async fn a_renewed_lock_is_lost_by_a_jump_over_its_lease() {
    let locks = LockManager::isolated_memory();
    let guard = acquired(lock(&locks, 10 * SECOND).renew()).await;
    advance(HOUR).await;
    assert!(!guard.is_held());
    assert!(is_free(&locks).await);
}

#[tokio::test(start_paused = true)]
async fn a_lock_with_a_shortest_hold_is_kept_until_then() {
    let locks = LockManager::isolated_memory();
    let held = lock(&locks, HOUR).min_hold(MINUTE).run(async {
        sleep(20 * SECOND).await;
        Locked::Ok(())
    });
    held.await.expect("held");
    advance(39 * SECOND).await;
    assert!(!is_free(&locks).await);
    advance(2 * SECOND).await;
    assert!(is_free(&locks).await);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_lock_is_released_at_once() {
    let (locks, start) = (LockManager::isolated_memory(), Instant::now());
    drop(acquired(lock(&locks, HOUR)).await);
    let next = lock(&locks, HOUR).wait(MINUTE).acquire().await.expect("released");
    assert!(start.elapsed() < 3 * SECOND, "{:?}", start.elapsed());
    next.release().await.expect("held");
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_waits_by_virtual_time() {
    let (locks, start) = (LockManager::isolated_memory(), Instant::now());
    let guard = acquired(lock(&locks, 2 * HOUR)).await;
    let late = locks.shutdown(HOUR).await;
    assert!(matches!(late, Err(LockError::ShutDown { held: 1 })), "{late:?}");
    assert!(start.elapsed() >= HOUR);
    guard.release().await.expect("held");
}

/// Tests run side by side, each by its own clock.
#[tokio::test]
async fn a_clock_that_runs_is_the_real_one() {
    let locks = LockManager::isolated_memory();
    let guard = acquired(lock(&locks, HOUR)).await;
    let elsewhere = std::thread::spawn(|| {
        paused().block_on(async { sleep(10 * HOUR).await });
    });
    elsewhere.join().unwrap();
    assert!(guard.is_held() && guard.remaining() > 50 * MINUTE);
    guard.release().await.expect("held");
}

/// A test that pauses its clock only after its locks were made goes on by the time it had.
#[tokio::test]
async fn a_clock_is_paused_later_and_runs_on() {
    let locks = LockManager::isolated_memory();
    let guard = acquired(lock(&locks, HOUR)).await;
    tokio::time::pause();
    advance(HOUR / 2).await;
    assert!(guard.is_held() && guard.remaining() < HOUR / 2);
    tokio::time::resume();
    assert!(guard.is_held() && guard.remaining() > HOUR / 3);
    tokio::time::pause();
    advance(HOUR / 2).await;
    assert!(!guard.is_held() && is_free(&locks).await);
}

/// It begins again after the runtime that it was on.
#[test]
fn background_work_outlives_a_runtime() {
    static LOCKS: LazyLock<LockManager> = LazyLock::new(LockManager::isolated_memory);
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
