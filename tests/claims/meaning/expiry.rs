//! A lease ends at its ttl, for the server and for the body alike, and for the body first.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use lockmacro_runtime::{Lock, LockError, LossCause};
use lockmacro_tests::{Backend, eventually, on, watched};

use crate::{LONG_TTL, Locked, TEST_TIMEOUT, granted, lock, ms};

#[on(memory, redis, redlock, postgres, both_runtimes)]
async fn a_lock_ends_at_its_ttl_and_not_before(backend: &Backend) {
    const TTL: Duration = Duration::from_millis(300);
    let (holder, rival, key) = backend.two_managers("order:42").await;
    let before = Instant::now();
    let guard = Lock::new(&*key).ttl(TTL).manager(&holder).acquire().await.expect("free");
    let theirs = granted(lock(&rival, &key)).await;
    // The server counts from its own moment, after `before`; it keeps whole milliseconds.
    assert!(before.elapsed() >= TTL - ms(1), "after {:?}", before.elapsed());
    assert!(before.elapsed() < TTL + TEST_TIMEOUT, "after {:?}", before.elapsed());
    assert!(!guard.is_held());
    theirs.release().await.expect("released");
}

#[on(memory, redis, redlock, postgres, both_runtimes)]
async fn a_body_that_outlives_its_lease_is_dropped_before_a_rival_runs(backend: &Backend) {
    // A bit more than 1 % of it is there for the drop: enough, unless its task is seen to stand
    // still just then.
    const TTL: Duration = Duration::from_secs(3);
    let (holder, rival, key) = backend.two_managers("order:42").await;
    for chance in 1.. {
        let (started, in_body) = tokio::sync::oneshot::channel();
        let dropped = Arc::new(OnceLock::new());
        let leaving = Leaving(Arc::clone(&dropped));
        let body = async move {
            let _leaving = leaving;
            started.send(()).expect("the test goes on");
            std::future::pending::<Locked<()>>().await
        };
        let asked = Instant::now();
        let holding = Lock::new(&*key).ttl(TTL).manager(&holder).run(body);
        let holding = tokio::spawn(watched(TTL / 100, holding));
        in_body.await.expect("the body starts");
        tokio::time::sleep(TTL / 2).await;
        let theirs = granted(lock(&rival, &key)).await;
        let granted = Instant::now();
        let (result, stalled) = holding.await.expect("no panic");
        assert!(matches!(result, Err(LockError::Lost(_))), "{result:?}");
        theirs.release().await.expect("released");
        let dropped = dropped.get().copied().expect("dropped");
        assert!(dropped >= asked + TTL * 98 / 100, "too early, after {:?}", dropped - asked);
        if dropped < granted {
            return;
        }
        assert!(stalled, "too late, by {:?}", dropped - granted);
        assert!(chance < 5, "the machine stalls each time");
    }
}

/// Says when it is dropped.
struct Leaving(Arc<OnceLock<Instant>>);

impl Drop for Leaving {
    fn drop(&mut self) {
        self.0.get_or_init(Instant::now);
    }
}

#[on(memory, redis, redlock, postgres, both_runtimes)]
async fn a_lost_body_ends_as_lost_even_when_nobody_wants_its_lock(backend: &Backend) {
    let (manager, key) = (backend.manager().await, backend.key("order:42"));
    let start = Instant::now();
    let result: Locked<()> =
        Lock::new(&*key).ttl(ms(100)).manager(&manager).run(std::future::pending()).await;
    let Err(LockError::Lost(lost)) = result else { panic!("{result:?}") };
    assert_eq!((lost.key().as_str(), lost.cause()), (&*key, LossCause::Expired));
    assert!(start.elapsed() < TEST_TIMEOUT);
}

#[on(memory, redis, redlock, postgres, both_runtimes)]
async fn a_body_that_sleeps_past_its_lease_is_not_polled_again(backend: &Backend) {
    let (manager, key) = (backend.manager().await, backend.key("order:42"));
    let mut went_on = false;
    let result: Locked<()> = Lock::new(&*key)
        .ttl(ms(60))
        .manager(&manager)
        .run(async {
            // As a process that was suspended: the lease is over when the next poll is due.
            std::thread::sleep(ms(90));
            tokio::task::yield_now().await;
            went_on = true;
            Ok(())
        })
        .await;
    assert!(matches!(result, Err(LockError::Lost(_))), "{result:?}");
    assert!(!went_on);
    backend.becomes_free(&key, TEST_TIMEOUT).await;
}

#[on(memory, redis, redlock, postgres, both_runtimes)]
async fn a_guard_knows_how_long_it_holds(backend: &Backend) {
    let (manager, key) = (backend.manager().await, backend.key("order:42"));
    let guard = lock(&manager, &key).acquire().await.expect("free");
    assert!(guard.is_held());
    let first = guard.remaining();
    assert!(first <= LONG_TTL && first > LONG_TTL - ms(20_000), "{first:?}");
    eventually("time passes", TEST_TIMEOUT, async || guard.remaining() < first).await;
    guard.release().await.expect("released");
}

#[on(memory, redis, redlock, postgres, both_runtimes)]
async fn loss_ends_only_the_lock_that_was_lost(backend: &Backend) {
    let manager = backend.manager().await;
    let (outer, inner) = (backend.key("outer"), backend.key("inner"));
    let result: Locked<u32> = lock(&manager, &outer)
        .run(async {
            let lost: Locked<()> =
                Lock::new(&*inner).ttl(ms(60)).manager(&manager).run(std::future::pending()).await;
            assert!(matches!(lost, Err(LockError::Lost(_))), "{lost:?}");
            Ok(7)
        })
        .await;
    assert_eq!(result, Ok(7));
}

/// A runtime whose time is paused, or jumps, says nothing about what a server counts. The feature
/// `test-util` is for tests that want it otherwise: see the suite `virtual_time`.
#[cfg(not(feature = "test-util"))]
#[tokio::test(start_paused = true)]
async fn a_lease_ends_by_the_real_clock_and_not_by_paused_time() {
    let manager = lockmacro_runtime::LockManager::isolated_memory();
    let long = lock(&manager, "order:42").run(async {
        tokio::time::sleep(LONG_TTL * 2).await;
        Locked::Ok(7)
    });
    assert_eq!(long.await, Ok(7));
    let short = Lock::new("order:42").ttl(ms(60)).manager(&manager).run(async {
        // Longer than the ttl.
        std::thread::sleep(ms(90));
        tokio::task::yield_now().await;
        Locked::Ok(7)
    });
    let lost = short.await;
    assert!(matches!(lost, Err(LockError::Lost(_))), "{lost:?}");
}
