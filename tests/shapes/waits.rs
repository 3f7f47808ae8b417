//! Functions that wait in the queue: `wait`, and what `on_busy` makes of its end.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use lockmacro_runtime::{LockError, LockGuard, LockManager, distributed_lock};
use tokio::sync::oneshot;

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

/// The holder of the lock while a call waited in vain, and how many waiters were before it.
fn holder_and_rank<T>(result: Result<T, OrderError>) -> (String, u32) {
    match result.map(drop) {
        Err(OrderError::Lock(LockError::TimedOut { holder, rank, .. })) => {
            (holder.owner.unwrap(), rank)
        }
        other => panic!("not timed out: {other:?}"),
    }
}

#[tokio::test]
async fn the_second_caller_waits_and_gets_it() {
    #[distributed_lock(key = "account:<id>", ttl = "30s", wait = "20s", manager = locks)]
    async fn book(
        locks: &LockManager,
        id: u64,
        inside: oneshot::Sender<()>,
        end: oneshot::Receiver<()>,
    ) -> Result<(bool, Instant, u64), OrderError> {
        let entered = Instant::now();
        inside.send(()).map_err(|()| OrderError::Unknown)?;
        end.await.map_err(|_| OrderError::Unknown)?;
        Ok((held(locks, "account:42").await, entered, id))
    }
    let locks = LockManager::isolated_memory();
    let (first_in, first_is_in) = oneshot::channel();
    let (second_in, mut second_is_in) = oneshot::channel();
    let (end_first, first_ends) = oneshot::channel();
    let (end_second, second_ends) = oneshot::channel();
    let first = tokio::spawn({
        let locks = locks.clone();
        async move { book(&locks, 42, first_in, first_ends).await }
    });
    first_is_in.await.unwrap();
    end_second.send(()).unwrap();
    let second = tokio::spawn({
        let locks = locks.clone();
        async move { book(&locks, 42, second_in, second_ends).await }
    });
    tokio::time::timeout(SHORT, &mut second_is_in).await.expect_err("it has to wait");
    let freed = Instant::now();
    end_first.send(()).unwrap();
    assert!(first.await.unwrap().unwrap().0);
    let (held_inside, entered, id) = second.await.unwrap().unwrap();
    assert!(entered >= freed && id == 42);
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
    let waiting = {
        let locks = locks.clone();
        std::thread::spawn(move || done.send(book(&locks, 7)))
    };
    result.recv_timeout(SHORT).expect_err("it has to wait");
    let freed = Instant::now();
    guard.release_blocking().unwrap();
    let (held_inside, entered) = result.recv().unwrap().unwrap();
    waiting.join().unwrap().unwrap();
    assert!(entered >= freed);
    assert_locked!(blocking, &locks, "account:7", held_inside);
}

#[tokio::test]
async fn a_wait_that_runs_out_reports_the_holder_and_the_rank() {
    #[distributed_lock(key = "account", ttl = "30s", wait = "80ms", manager = locks)]
    async fn book(locks: &LockManager) -> Result<(), OrderError> {
        unreachable!("somebody else has it")
    }
    let locks = LockManager::builder().label("desk").isolated_memory();
    let guard = hold(&locks, "account").await;
    let start = Instant::now();
    assert_eq!(holder_and_rank(book(&locks).await), ("desk:holder".to_owned(), 0));
    assert!(start.elapsed() >= Duration::from_millis(80), "{:?}", start.elapsed());
    guard.release().await.unwrap();
    assert!(!held(&locks, "account").await);
    // Another one in the queue counts.
    let locks = LockManager::isolated_memory();
    let guard = hold(&locks, "account").await;
    let mut first = Box::pin(probe(&locks, "account").wait_forever().acquire());
    assert!(futures::poll!(&mut first).is_pending());
    assert_eq!(holder_and_rank(book(&locks).await).1, 1);
    let (first, released) = tokio::join!(first, guard.release());
    released.unwrap();
    first.unwrap().release().await.unwrap();
    assert!(!held(&locks, "account").await);
}

#[test]
fn a_wait_of_a_sync_function_runs_out_too() {
    #[distributed_lock(key = "account", ttl = "30s", wait = SHORT, manager = locks)]
    fn book(locks: &LockManager) -> Result<(), OrderError> {
        unreachable!("somebody else has it")
    }
    let locks = LockManager::builder().label("desk").isolated_memory();
    let guard = hold_blocking(&locks, "account");
    let start = Instant::now();
    assert_eq!(holder_and_rank(book(&locks)), ("desk:holder".to_owned(), 0));
    assert!(start.elapsed() >= SHORT, "{:?}", start.elapsed());
    guard.release_blocking().unwrap();
    assert!(!held_blocking(&locks, "account"));
}

#[tokio::test]
async fn a_wait_that_runs_out_shows_the_message() {
    #[distributed_lock(
        key = "account",
        wait = SHORT,
        message = "account <id> is booked",
        manager = locks
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
            key = "account:<id>",
            wait = self.patience,
            on_busy = fallback(Self::later),
            manager = self.locks
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
fn a_sync_fallback_comes_after_the_wait() {
    #[distributed_lock(
        key = "account",
        wait = SHORT,
        on_busy = fallback(later),
        manager = locks,
        guard = lock,
        fence = fence
    )]
    fn book(locks: &LockManager) -> Result<bool, OrderError> {
        Ok(lock.is_held() && u64::from(fence) > 0)
    }
    fn later(_: &LockManager) -> Result<bool, OrderError> {
        Ok(false)
    }
    let locks = LockManager::isolated_memory();
    let guard = hold_blocking(&locks, "account");
    assert!(!book(&locks).unwrap());
    guard.release_blocking().unwrap();
    assert!(book(&locks).unwrap());
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
    let (guard, before) = probe(&locks, "account").acquire_fenced().await.unwrap();
    let (fence, released) = tokio::join!(book(&locks), guard.release());
    released.unwrap();
    assert!(fence.unwrap() > u64::from(before[0]));
}
