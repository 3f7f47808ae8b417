//! How long a lease lives: with and without `ttl`, `renew`, `max_hold` and `min_hold`.

use std::future::pending;
use std::time::{Duration, Instant};

use lockmacro_runtime::{LockError, LockGuard, LockManager, LossCause, distributed_lock};

use crate::{TEST_TIMEOUT, cause, held, held_blocking, until};

const TTL: Duration = Duration::from_millis(900);
const MORE_THAN_A_TTL: Duration = Duration::from_millis(1_300);

#[tokio::test]
async fn a_renewed_lock_outlives_its_ttl() {
    #[distributed_lock(key = "order", ttl = "900ms", renew, manager = locks)]
    async fn audit(locks: &LockManager) -> Result<u32, LockError> {
        let start = Instant::now();
        let mut attempts = 0;
        while start.elapsed() < MORE_THAN_A_TTL {
            assert!(held(locks, "order").await, "a rival had it after {:?}", start.elapsed());
            attempts += 1;
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        Ok(attempts)
    }
    let locks = LockManager::isolated_memory();
    assert!(audit(&locks).await.unwrap() > 3);
    assert!(!held(&locks, "order").await);
}

#[test]
fn a_renewed_lock_of_a_sync_function_outlives_its_ttl() {
    #[distributed_lock(key = "order", ttl = TTL, renew, manager = locks)]
    fn audit(locks: &LockManager) -> Result<u32, LockError> {
        let start = Instant::now();
        let mut attempts = 0;
        while start.elapsed() < MORE_THAN_A_TTL {
            assert!(held_blocking(locks, "order"), "a rival had it after {:?}", start.elapsed());
            attempts += 1;
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(attempts)
    }
    let locks = LockManager::isolated_memory();
    assert!(audit(&locks).unwrap() > 3);
    assert!(!held_blocking(&locks, "order"));
}

#[tokio::test]
async fn without_ttl_the_lease_is_the_runtimes() {
    #[distributed_lock(key = "order:<id>", manager = locks)]
    async fn audit(locks: &LockManager, id: u64) -> Result<(bool, Duration), LockError> {
        let left = LockGuard::current().map(|lock| lock.remaining());
        Ok((held(locks, "order:42").await && id == 42, left.unwrap_or_default()))
    }
    let locks = LockManager::isolated_memory();
    let (held_inside, left) = audit(&locks, 42).await.unwrap();
    assert!(held_inside && !held(&locks, "order:42").await);
    assert!((25..30).contains(&left.as_secs()), "{left:?}");
}

#[tokio::test]
async fn without_ttl_renewal_goes_on_to_max_hold() {
    #[distributed_lock(key = "order", max_hold = longest(), manager = locks)]
    async fn audit(locks: &LockManager) -> Result<(), LockError> {
        pending().await
    }
    fn longest() -> Duration {
        Duration::from_millis(100)
    }
    let locks = LockManager::isolated_memory();
    // Without renewal `max_hold` would mean nothing, and the lease ends after 30 s.
    let ended = tokio::time::timeout(TEST_TIMEOUT, audit(&locks)).await.unwrap();
    assert_eq!(cause(ended), LossCause::Expired);
}

#[tokio::test]
async fn max_hold_is_the_end_of_renewal() {
    #[distributed_lock(key = "order", ttl = "900ms", renew, max_hold = "1400ms", manager = locks)]
    async fn audit(locks: &LockManager) -> Result<(), LockError> {
        pending().await
    }
    let locks = LockManager::isolated_memory();
    let start = Instant::now();
    assert_eq!(cause(audit(&locks).await), LossCause::Expired);
    assert!(start.elapsed() > Duration::from_millis(1_300), "{:?}", start.elapsed());
    until("the key is gone", async || !held(&locks, "order").await).await;
}

#[tokio::test]
async fn ttl_is_the_longest_hold_without_renew() {
    #[distributed_lock(key = "order", ttl = "100ms", manager = locks)]
    async fn audit(locks: &LockManager) -> Result<(), LockError> {
        pending().await
    }
    assert_eq!(cause(audit(&LockManager::isolated_memory()).await), LossCause::Expired);
}

#[tokio::test]
async fn min_hold_keeps_the_key_after_a_short_body() {
    #[distributed_lock(
        key = "job", ttl = "60s", min_hold = "1200ms", on_busy = skip, manager = locks,
    )]
    async fn job(locks: &LockManager) -> Option<Instant> {
        Some(Instant::now())
    }
    let locks = LockManager::isolated_memory();
    let first = job(&locks).await.unwrap();
    assert_eq!(job(&locks).await, None, "a second machine has run the job too");
    // Long before the ttl.
    let mut again = None;
    until("the key is gone", async || {
        again = job(&locks).await;
        again.is_some()
    })
    .await;
    let kept = again.unwrap().duration_since(first);
    assert!(kept > Duration::from_millis(1_150), "{kept:?}");
}

#[test]
fn min_hold_keeps_the_key_after_a_short_sync_body() {
    #[distributed_lock(key = "job", ttl = "60s", min_hold = TTL, manager = locks)]
    fn job(locks: &LockManager) -> Result<(), LockError> {
        Ok(())
    }
    let locks = LockManager::isolated_memory();
    job(&locks).unwrap();
    assert!(job(&locks).unwrap_err().is_busy());
}

#[tokio::test]
async fn every_argument_of_a_lease_at_once() {
    struct Orders {
        locks: LockManager,
        longest: Duration,
    }
    impl Orders {
        #[distributed_lock(
            manager = self.locks,
            min_hold = "50ms",
            max_hold = self.longest,
            on_lost = error,
            renew,
            ttl = TTL * 2,
            key = "order:<id>",
            fence = fence,
            guard = lock,
        )]
        async fn audit(&self, id: u64) -> Result<u64, LockError> {
            lock.check()?;
            Ok(u64::from(fence).min(id))
        }
    }
    let orders = Orders { locks: LockManager::isolated_memory(), longest: Duration::from_secs(60) };
    assert_eq!(orders.audit(42).await.unwrap(), 42);
}
