//! A manager that excludes nobody.

use lockmacro_runtime::{Lock, LockManager};
use lockmacro_tests::AcquireFenced as _;
use lockmacro_tests::{log, on_a_plain_thread};

use crate::{LONG_TTL, Locked, lock, ms};

#[tokio::test]
async fn a_disabled_manager_grants_everything_and_its_fences_grow() {
    let locks = LockManager::disabled();
    let (one, first) = lock(&locks, "order:42").acquire_fenced().await.expect("granted");
    let (other, second) = lock(&locks, "order:42").acquire_fenced().await.expect("granted");
    let waiting = lock(&locks, "order:42").wait(LONG_TTL).acquire().await.expect("granted");
    assert!(one.is_held() && other.is_held() && waiting.is_held() && first < second);
    one.extend(LONG_TTL * 2).await.expect("it is extended");
    assert!(one.remaining() > LONG_TTL);
    for guard in [one, other, waiting] {
        guard.release().await.expect("released");
    }
    let both = Lock::many(["a", "b"]).ttl(LONG_TTL).manager(&locks);
    let held = both.acquire_fenced().await.expect("granted");
    let (guard, fences) = both.acquire_fenced().await.expect("granted");
    assert!(held.1.iter().max() < fences.iter().min(), "{fences:?}");
    drop((held, guard));
}

#[tokio::test]
async fn its_locks_are_renewed_joined_and_end_as_others() {
    let locks = LockManager::disabled();
    let body = async {
        assert!(locks.guard_of("order:42").is_some());
        let joined = lock(&locks, "order:42").acquire().await?;
        // Longer than the short ttl.
        tokio::time::sleep(ms(200)).await;
        Ok(joined.is_joined() && joined.is_held())
    };
    let short = Lock::new("order:42").ttl(ms(100)).manager(&locks);
    let renewed: Locked<bool> = short.clone().renew().ttl(ms(1_000)).run(body).await;
    assert_eq!(renewed, Ok(true));
    let ended: Locked<()> = short.run(std::future::pending()).await;
    assert!(matches!(ended, Err(lockmacro_runtime::LockError::Lost(_))), "{ended:?}");
    let blocking = lock(&locks, "order:42");
    let done = on_a_plain_thread(move || blocking.run_blocking(|| Locked::Ok(7))).await;
    assert_eq!(done, Ok(7));
    locks.shutdown(LONG_TTL).await.expect("nothing is held");
}

#[tokio::test]
async fn it_says_so_once() {
    log::start();
    let warnings = || log::so_far().matches("locks are disabled").count();
    let before = warnings();
    let locks = LockManager::disabled();
    for _ in 0..3 {
        lock(&locks, "order:42").acquire().await.expect("granted").release().await.expect("done");
    }
    // Other tests of this file may make one meanwhile.
    assert!((before + 1..before + 4).contains(&warnings()), "{}", warnings());
    assert!(log::so_far().contains("WARN message=locks are disabled"), "{}", log::so_far());
}
