//! Functions that wait in the queue: `wait`, and what `on_busy` makes of its end.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use lockmacro_runtime::{LockError, LockGuard, LockManager, distributed_lock};

use crate::{OrderError, assert_locked, held, held_blocking, probe};

const SHORT: Duration = Duration::from_millis(60);

/// Takes `key`, as a caller does that is longer at it than anybody waits.
async fn hold(locks: &LockManager, key: &str) -> LockGuard {
    probe(locks, key).name("holder").acquire().await.unwrap()
}

/// The same on a plain thread.
fn hold_blocking(locks: &LockManager, key: &str) -> LockGuard {
    probe(locks, key).name("holder").acquire_blocking().unwrap()
}

#[tokio::test]
async fn the_second_caller_waits_and_gets_it() {
    #[distributed_lock(key = "account:<id>", ttl = "30s", wait = "20s", manager = locks)]
    async fn book(locks: LockManager, id: u64) -> Result<(bool, Instant), OrderError> {
        let entered = Instant::now();
        Ok((held(&locks, &format!("account:{id}")).await, entered))
    }
    let locks = LockManager::isolated_memory();
    let guard = hold(&locks, "account:42").await;
    let mut waiting = tokio::spawn(book(locks.clone(), 42));
    tokio::time::timeout(SHORT, &mut waiting).await.expect_err("it has to wait");
    let freed = Instant::now();
    guard.release().await.unwrap();
    let (held_inside, entered) = waiting.await.unwrap().unwrap();
    assert!(entered >= freed);
    assert_locked!(&locks, "account:42", held_inside);
}

#[test]
fn the_second_caller_of_a_sync_function_waits_and_gets_it() {
    #[distributed_lock(key = "account:<id>", ttl = "30s", wait = forever, manager = locks)]
    fn book(locks: &LockManager, id: u64) -> Result<(bool, Instant), OrderError> {
        Ok((held_blocking(locks, &format!("account:{id}")), Instant::now()))
    }
    let locks = LockManager::isolated_memory();
    let guard = hold_blocking(&locks, "account:7");
    let (done, result) = mpsc::channel();
    let other = locks.clone();
    let waiting = std::thread::spawn(move || done.send(book(&other, 7)));
    result.recv_timeout(SHORT).expect_err("it has to wait");
    let freed = Instant::now();
    guard.release_blocking().unwrap();
    let (held_inside, entered) = result.recv().unwrap().unwrap();
    waiting.join().unwrap().unwrap();
    assert!(entered >= freed);
    assert_locked!(blocking, &locks, "account:7", held_inside);
}

#[tokio::test]
async fn a_wait_that_runs_out_shows_the_message() {
    #[distributed_lock(
        key = "account", wait = SHORT, message = "account <id> is booked", manager = locks,
    )]
    async fn book(locks: &LockManager, id: u64) -> Result<(), LockError> {
        unreachable!("somebody else has it")
    }
    let locks = LockManager::isolated_memory();
    let _guard = hold(&locks, "account").await;
    assert_eq!(book(&locks, 7).await.unwrap_err().message(), Some("account 7 is booked"));
}

#[tokio::test]
async fn skip_comes_after_the_wait() {
    #[distributed_lock(key = "job", ttl = "30s", wait = "400ms", on_busy = skip, manager = locks)]
    async fn job(locks: &LockManager) -> Option<u32> {
        Some(7)
    }
    let locks = LockManager::isolated_memory();
    let guard = hold(&locks, "job").await;
    let start = Instant::now();
    assert_eq!(job(&locks).await, None);
    assert!(start.elapsed() >= SHORT, "{:?}", start.elapsed());
    // In the queue before the release, so the lock is handed off.
    let (value, released) = tokio::join!(job(&locks), guard.release());
    released.unwrap();
    assert_eq!(value, Some(7));
}

#[test]
fn skip_comes_after_the_wait_of_a_sync_function() {
    #[distributed_lock(key = "job", ttl = "30s", wait = "60ms", on_busy = skip, manager = locks)]
    fn job(locks: &LockManager) -> Option<u32> {
        Some(7)
    }
    let locks = LockManager::isolated_memory();
    let guard = hold_blocking(&locks, "job");
    let start = Instant::now();
    assert_eq!(job(&locks), None);
    assert!(start.elapsed() >= SHORT, "{:?}", start.elapsed());
    guard.release_blocking().unwrap();
    assert_eq!(job(&locks), Some(7));
}

#[tokio::test]
async fn a_fallback_comes_after_the_wait() {
    struct Desk {
        locks: LockManager,
        patience: Duration,
    }
    impl Desk {
        #[distributed_lock(
            key = "account:<id>", wait = self.patience, on_busy = fallback(Self::later),
            manager = self.locks,
        )]
        async fn book(&self, id: u64) -> Result<&'static str, OrderError> {
            Ok("booked")
        }

        async fn later(&self, id: u64) -> Result<&'static str, OrderError> {
            if id == 7 { Ok("later") } else { Err(OrderError::Unknown) }
        }
    }
    let desk = Desk { locks: LockManager::isolated_memory(), patience: SHORT * 6 };
    let guard = hold(&desk.locks, "account:7").await;
    let start = Instant::now();
    assert_eq!(desk.book(7).await.unwrap(), "later");
    assert!(start.elapsed() >= SHORT, "{:?}", start.elapsed());
    let (value, released) = tokio::join!(desk.book(7), guard.release());
    released.unwrap();
    assert_eq!(value.unwrap(), "booked");
}

#[test]
fn a_sync_fallback_comes_after_the_wait_and_goes_with_a_guard_and_a_fence() {
    #[distributed_lock(
        key = "account:<id>", wait = SHORT, on_busy = fallback(later), manager = locks,
        guard = lock, fence = fence,
    )]
    fn book(locks: &LockManager, id: String) -> Result<String, OrderError> {
        Ok(format!("{id} {}", lock.is_held() && lock.fence() == Some(fence)))
    }
    fn later(_: &LockManager, id: String) -> Result<String, OrderError> {
        Ok(format!("{id} later"))
    }
    let locks = LockManager::isolated_memory();
    let (guard, start) = (hold_blocking(&locks, "account:7"), Instant::now());
    assert_eq!(book(&locks, "7".to_owned()).unwrap(), "7 later");
    assert!(start.elapsed() >= SHORT, "{:?}", start.elapsed());
    guard.release_blocking().unwrap();
    assert_eq!(book(&locks, "7".to_owned()).unwrap(), "7 true");
}

#[tokio::test]
async fn a_waiter_with_a_guard_and_a_fence_gets_its_own() {
    #[distributed_lock(
        key = "account", wait = forever, manager = locks, guard = lock, fence = fence,
    )]
    async fn book(locks: &LockManager) -> Result<u64, OrderError> {
        lock.check()?;
        Ok(fence.into())
    }
    let locks = LockManager::isolated_memory();
    let guard = probe(&locks, "account").fenced().acquire().await.unwrap();
    let before = guard.fence().unwrap();
    let (fence, released) = tokio::join!(book(&locks), guard.release());
    released.unwrap();
    assert!(fence.unwrap() > u64::from(before));
}
