//! `policy`: settings of many functions in one constant, and arguments beside it that win.

use std::time::Duration;

use lockmacro_runtime::{
    Lock, LockError, LockGuard, LockManager, LockPolicy, LossCause, OnLost, distributed_lock,
};
use tokio::time::Instant;

use crate::{block_until_lost, cause, held, ms, probe, stays, until_lost};

const SHORT: LockPolicy = LockPolicy::new().ttl(ms(100));
const PATIENT: LockPolicy = LockPolicy::new().wait(Duration::from_secs(60));

fn remaining() -> Duration {
    LockGuard::current().map(|lock| lock.remaining()).unwrap_or_default()
}

#[tokio::test]
async fn a_policy_sets_what_the_attribute_does_not_name() {
    #[distributed_lock(key = "order:<id>", policy = SHORT, manager = locks)]
    async fn audit(locks: &LockManager, id: u64) -> Result<(), LockError> {
        assert!(remaining() <= ms(100) && held(locks, "order:42").await && id == 42);
        stays().await
    }
    #[distributed_lock(key = "order:<id>", policy = SHORT, ttl = "60s", manager = locks)]
    async fn longer(locks: &LockManager, id: u64) -> Result<(Duration, u64), LockError> {
        Ok((remaining(), id))
    }
    let locks = LockManager::isolated_memory();
    assert_eq!(cause(audit(&locks, 42).await), LossCause::Expired);
    let (remaining, _) = longer(&locks, 42).await.unwrap();
    assert!(remaining > Duration::from_secs(50), "{remaining:?}");
}

#[test]
fn a_sync_function_has_it_too() {
    #[distributed_lock(key = "order", policy = crate::policies::SHORT, manager = locks)]
    fn audit(locks: &LockManager) -> Result<Duration, LockError> {
        Ok(remaining())
    }
    let remaining = audit(&LockManager::isolated_memory()).unwrap();
    assert!(remaining > Duration::ZERO && remaining <= ms(100), "{remaining:?}");
}

const RENEWED: LockPolicy = LockPolicy::new().renew();

#[tokio::test(start_paused = true)]
async fn a_policy_that_renews_renews_a_ttl_of_the_attribute() {
    #[distributed_lock(key = "order", ttl = "900ms", policy = RENEWED, manager = locks)]
    async fn audit(locks: &LockManager) -> Result<u32, LockError> {
        Ok(outlasts(ms(1_300)).await)
    }
    #[distributed_lock(key = "import", renew, policy = SHORT, manager = locks)]
    async fn import(locks: &LockManager) -> Result<u32, LockError> {
        Ok(outlasts(ms(300)).await)
    }
    #[distributed_lock(
        key = "export", ttl = "100ms", max_hold = "300ms", policy = RENEWED, manager = locks
    )]
    async fn export(locks: &LockManager) -> Result<(), LockError> {
        stays().await
    }
    /// More than the ttl, during which the body has its lock.
    async fn outlasts(ttl: Duration) -> u32 {
        tokio::time::sleep(ttl).await;
        7
    }
    let locks = LockManager::isolated_memory();
    assert_eq!(tokio::join!(audit(&locks), import(&locks)), (Ok(7), Ok(7)));
    let start = Instant::now();
    assert_eq!(cause(export(&locks).await), LossCause::Expired);
    assert!(start.elapsed() > ms(250) && start.elapsed() < ms(1_000), "{:?}", start.elapsed());
}

#[tokio::test]
async fn a_wait_of_the_attribute_wins() {
    #[distributed_lock(key = "order", policy = PATIENT, manager = locks)]
    async fn waits(locks: LockManager) -> Result<u32, LockError> {
        Ok(7)
    }
    #[distributed_lock(key = "order", policy = PATIENT, wait = never, manager = locks)]
    async fn never(locks: &LockManager) -> Result<u32, LockError> {
        Ok(7)
    }
    #[distributed_lock(key = "order", policy = PATIENT, wait = ms(1), manager = locks)]
    async fn briefly(locks: &LockManager) -> Result<u32, LockError> {
        Ok(7)
    }
    let locks = LockManager::isolated_memory();
    let guard = probe(&locks, "order").acquire().await.unwrap();
    let start = Instant::now();
    assert!(matches!(never(&locks).await, Err(LockError::Busy { .. })));
    assert!(matches!(briefly(&locks).await, Err(LockError::TimedOut { .. })));
    assert!(start.elapsed() < Duration::from_secs(30));
    let mut waiting = tokio::spawn(waits(locks.clone()));
    tokio::time::timeout(ms(30), &mut waiting).await.expect_err("it waits");
    guard.release().await.unwrap();
    assert_eq!(waiting.await.unwrap(), Ok(7));
}

/// The manager's default does not apply to them, and that of a policy does.
#[tokio::test]
async fn jobs_that_are_skipped_when_busy_wait_as_their_policy_says() {
    const BRIEF: LockPolicy = LockPolicy::new().wait(ms(1));
    #[distributed_lock(key = "job", on_busy = skip, policy = PATIENT, manager = locks)]
    async fn job(locks: LockManager) -> Option<u32> {
        Some(7)
    }
    #[distributed_lock(
        key = "job", on_busy = skip, guard = lock, policy = PATIENT, manager = locks
    )]
    async fn guarded(locks: LockManager) -> Option<bool> {
        Some(lock.is_held())
    }
    #[distributed_lock(key = "job", on_busy = skip, guard = lock, policy = SHORT, manager = locks)]
    async fn at_once(locks: &LockManager) -> Option<bool> {
        Some(lock.is_held())
    }
    #[distributed_lock(key = "job", on_busy = skip, policy = BRIEF, manager = locks)]
    fn briefly(locks: &LockManager) -> Option<u32> {
        Some(7)
    }
    let locks = LockManager::builder().default_wait(Duration::from_secs(60)).isolated_memory();
    let held = probe(&locks, "job").acquire().await.unwrap();
    let start = Instant::now();
    assert_eq!(at_once(&locks).await, None);
    let other = locks.clone();
    assert_eq!(std::thread::spawn(move || briefly(&other)).join().unwrap(), None);
    assert!(start.elapsed() < Duration::from_secs(30));
    let mut waiting = tokio::spawn(job(locks.clone()));
    tokio::time::timeout(ms(30), &mut waiting).await.expect_err("it waits");
    let mut guarded = tokio::spawn(guarded(locks.clone()));
    tokio::time::timeout(ms(30), &mut guarded).await.expect_err("it waits");
    held.release().await.unwrap();
    assert_eq!((waiting.await.unwrap(), guarded.await.unwrap()), (Some(7), Some(true)));
}

const KEPT: LockPolicy = SHORT.on_lost(OnLost::Finish);

#[tokio::test]
async fn a_loss_is_handled_as_the_policy_or_the_attribute_says() {
    #[distributed_lock(key = "<id>", policy = KEPT, manager = locks)]
    async fn finish(locks: &LockManager, id: u64) -> Result<u64, LockError> {
        until_lost().await;
        Ok(id)
    }
    #[distributed_lock(key = "<id>", policy = KEPT, on_lost = cancel, manager = locks)]
    async fn cancel(locks: &LockManager, id: u64) -> Result<(), LockError> {
        stays().await
    }
    #[distributed_lock(key = "<id>", policy = KEPT, on_lost = error, manager = locks)]
    fn error(locks: LockManager, id: u64) -> Result<u64, LockError> {
        block_until_lost();
        Ok(id)
    }
    #[distributed_lock(key = "<id>", policy = KEPT, on_lost = undone, manager = locks)]
    async fn recovered(locks: &LockManager, id: u64) -> Result<u64, LockError> {
        until_lost().await;
        Ok(id)
    }
    fn undone(_: lockmacro_runtime::Lost, _: Result<u64, LockError>) -> Result<u64, LockError> {
        Ok(0)
    }
    let locks = LockManager::isolated_memory();
    let other = locks.clone();
    let blocking = std::thread::spawn(move || error(other, 3));
    let (finished, cancelled, recovered) =
        tokio::join!(finish(&locks, 1), cancel(&locks, 2), recovered(&locks, 4));
    assert_eq!((finished, recovered), (Ok(1), Ok(0)));
    assert_eq!(cause(cancelled), LossCause::Expired);
    assert_eq!(cause(blocking.join().unwrap()), LossCause::Expired);
}

/// Times that are known only when the function is called.
#[tokio::test]
async fn a_computed_ttl_wins_over_that_of_a_policy() {
    const LATE: LockPolicy = LockPolicy::new().ttl(ms(100)).min_hold(ms(60));
    #[distributed_lock(
        key = "order", policy = LATE, ttl = ttl, min_hold = "30s", manager = locks
    )]
    async fn audit(locks: &LockManager, ttl: Duration) -> Result<Duration, LockError> {
        Ok(remaining())
    }
    let locks = LockManager::isolated_memory();
    assert!(audit(&locks, Duration::from_secs(60)).await.unwrap() > Duration::from_secs(50));
    assert!(held(&locks, "order").await, "`min_hold` is 30 s");
}

struct Shop<const SECONDS: u64> {
    locks: LockManager,
}

trait Store {
    const POLICY: LockPolicy;

    fn locks(&self) -> &LockManager;

    #[distributed_lock(key = "store", policy = Self::POLICY, manager = self.locks())]
    async fn open(&self) -> Result<Duration, LockError> {
        Ok(remaining())
    }
}

impl<const SECONDS: u64> Store for Shop<SECONDS> {
    const POLICY: LockPolicy = LockPolicy::new().ttl(Duration::from_secs(SECONDS));

    fn locks(&self) -> &LockManager {
        &self.locks
    }
}

impl<const SECONDS: u64> Shop<SECONDS> {
    #[distributed_lock(key = "shop", policy = <Self as Store>::POLICY, manager = self.locks)]
    fn open_blocking(&self) -> Result<Duration, LockError> {
        Ok(remaining())
    }
}

#[distributed_lock(key = "shop", policy = S::POLICY, manager = shop.locks())]
async fn visit<S: Store>(shop: &S) -> Result<Duration, LockError> {
    Ok(remaining())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_may_belong_to_a_type() {
    let (one, two) = (
        Shop::<40> { locks: LockManager::isolated_memory() },
        Shop::<50> { locks: LockManager::isolated_memory() },
    );
    let blocking = tokio::task::block_in_place(|| one.open_blocking());
    for remaining in [one.open().await, visit(&one).await, blocking] {
        assert_eq!(remaining.unwrap().as_secs(), 39);
    }
    for remaining in [two.open().await, visit(&two).await] {
        assert_eq!(remaining.unwrap().as_secs(), 49);
    }
}

macro_rules! audited {
    ($name:ident, $policy:path) => {
        #[distributed_lock(key = "order", policy = $policy, manager = locks)]
        async fn $name(locks: &LockManager) -> Result<Duration, LockError> {
            Ok(remaining())
        }
    };
}
audited!(by_a_macro, SHORT);

#[tokio::test]
async fn a_policy_comes_through_a_macro() {
    assert!(by_a_macro(&LockManager::isolated_memory()).await.unwrap() <= ms(100));
}

/// The attribute would not compile with it.
#[tokio::test]
async fn a_wrong_policy_by_hand_is_the_error_of_the_setting() {
    const WRONG: LockPolicy = LockPolicy::new().ttl(Duration::ZERO);
    let locks = LockManager::isolated_memory();
    let lock = Lock::new("order").policy(WRONG).manager(&locks);
    let by_policy = lock.acquire().await.unwrap_err();
    let by_setting = Lock::new("order").ttl(Duration::ZERO).manager(&locks).acquire().await;
    assert!(matches!(by_policy, LockError::InvalidSetting { setting: "ttl", .. }), "{by_policy:?}");
    assert_eq!(Some(by_policy), by_setting.err());
}
