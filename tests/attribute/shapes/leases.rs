//! How long a lease lives: with and without `ttl`, `renew`, `max_hold` and `min_hold`.

use std::time::Duration;

use lockmacro_runtime::{LockError, LockGuard, LockManager, LossCause, distributed_lock};
use tokio::time::Instant;

use crate::{cause, held, ms, probe, stays};

const TTL: Duration = ms(900);

#[tokio::test(start_paused = true)]
async fn a_renewed_lock_outlives_its_ttl() {
    #[distributed_lock(key = "order", ttl = "900ms", renew, manager = locks)]
    async fn audit(locks: &LockManager) -> Result<(), LockError> {
        let mut looks = tokio::time::interval(ms(2));
        let start = Instant::now();
        while start.elapsed() < 2 * TTL {
            assert!(held(locks, "order").await, "a rival had it after {:?}", start.elapsed());
            looks.tick().await;
        }
        Ok(())
    }
    let locks = LockManager::isolated_memory();
    audit(&locks).await.unwrap();
    assert!(!held(&locks, "order").await);
}

#[tokio::test(start_paused = true)]
async fn ttl_is_the_longest_hold_and_max_hold_where_it_is_renewed() {
    #[distributed_lock(key = "order", ttl = "100ms", manager = locks)]
    async fn audit(locks: &LockManager) -> Result<(), LockError> {
        stays().await
    }
    #[distributed_lock(key = "order", ttl = "900ms", renew, max_hold = "1400ms", manager = locks)]
    async fn renewed(locks: &LockManager) -> Result<(), LockError> {
        stays().await
    }
    let (locks, start) = (LockManager::isolated_memory(), Instant::now());
    assert_eq!(cause(audit(&locks).await), LossCause::Expired);
    let longest = start.elapsed();
    assert!(longest > ms(50) && longest <= ms(100), "{longest:?}");
    assert_eq!(cause(renewed(&locks).await), LossCause::Expired);
    let longest = start.elapsed() - longest;
    assert!(longest > ms(1_300) && longest <= ms(1_400), "{longest:?}");
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

#[tokio::test(start_paused = true)]
async fn without_ttl_renewal_goes_on_to_max_hold() {
    #[distributed_lock(key = "order", max_hold = longest(), manager = locks)]
    async fn audit(locks: &LockManager) -> Result<(), LockError> {
        stays().await
    }
    fn longest() -> Duration {
        Duration::from_secs(40)
    }
    // Without renewal `max_hold` would mean nothing, and the lease ends after 30 s.
    let start = Instant::now();
    assert_eq!(cause(audit(&LockManager::isolated_memory()).await), LossCause::Expired);
    assert!((31..=40).contains(&start.elapsed().as_secs()), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
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
    let _next = probe(&locks, "job").wait_forever().acquire().await.unwrap();
    // Long before the ttl.
    let kept = first.elapsed();
    assert!(kept > ms(1_150) && kept < Duration::from_secs(5), "{kept:?}");
}

#[tokio::test]
async fn every_argument_of_a_lease_at_once() {
    struct Orders {
        locks: LockManager,
        longest: Duration,
    }
    impl Orders {
        #[distributed_lock(
            manager = self.locks, min_hold = "50ms", max_hold = self.longest, on_lost = error,
            renew, ttl = TTL * 2, key = "order:<id>", fence = fence, guard = lock,
        )]
        async fn audit(&self, id: u64) -> Result<u64, LockError> {
            lock.check()?;
            Ok(u64::from(fence).min(id))
        }
    }
    let orders = Orders { locks: LockManager::isolated_memory(), longest: Duration::from_secs(60) };
    assert_eq!(orders.audit(42).await.unwrap(), 42);
}
