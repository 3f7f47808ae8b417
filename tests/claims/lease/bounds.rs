//! The longest and the shortest time that a lock is held, and asking for more or less of it.

use std::panic::AssertUnwindSafe;
use std::time::{Duration, Instant};

use futures::FutureExt;
use lockmacro_runtime::{Lock, LockError, LockManager, LossCause};
use lockmacro_tests::{
    Backend, Polled, drop_after_polls, eventually, on, on_a_plain_thread, spawn_polled,
};

use crate::{LONG_TTL, Locked, SOON, cause, left, lock, ms, outlast, renewed};

#[on(memory, redis, postgres)]
async fn max_hold_ends_a_lock_that_is_renewed(backend: &Backend) {
    let (manager, key) = (backend.manager().await, backend.key("order:42"));
    let start = Instant::now();
    let lock = renewed(&manager, &key, ms(2_000)).max_hold(ms(3_000));
    let result = lock.run(std::future::pending::<Locked<()>>()).await;
    let held = start.elapsed();
    assert_eq!(cause(result), LossCause::Expired);
    // Another renewal would be good for another ttl.
    assert!(held >= ms(2_950) && held < ms(4_500), "{held:?}");
    assert!(backend.is_free(&key).await, "it is released, not left to its ttl");
}

#[on(memory, redis, postgres)]
async fn a_body_shorter_than_max_hold_is_left_alone(backend: &Backend) {
    let manager = backend.manager().await;
    let lock = renewed(&manager, &backend.key("order:42"), ms(2_500)).max_hold(4 * SOON);
    let result = lock.run(async {
        outlast(ms(2_500)).await;
        Locked::Ok(7)
    });
    assert_eq!(result.await, Ok(7));
}

const MIN_HOLD: Duration = Duration::from_millis(1_500);

/// The key stays from now until `MIN_HOLD` after `start`, and no longer.
async fn stays(backend: &Backend, key: &str, start: Instant) {
    let rival = backend.manager().await;
    loop {
        let asked = start.elapsed();
        // On a machine in need it may be over by now.
        let Some(kept) = left(&rival, key).await else { break };
        let latest = start.elapsed() + kept;
        assert!(latest > MIN_HOLD - ms(2), "{latest:?}");
        // From when the lock was asked for; what a release takes in flight comes on top. Of what
        // was dropped, it may still be in flight.
        if asked + kept < 2 * MIN_HOLD {
            break;
        }
        assert!(asked < SOON, "not released: {kept:?}");
    }
    backend.becomes_free(key, SOON).await;
    assert!(start.elapsed() >= MIN_HOLD - ms(2), "free after {:?}", start.elapsed());
}

fn job(manager: &lockmacro_runtime::LockManager, key: &str) -> Lock {
    lock(manager, key).min_hold(MIN_HOLD)
}

#[on(memory, redis, postgres)]
async fn a_body_leaves_the_key_for_the_rest_of_min_hold(backend: &Backend) {
    let (manager, key) = (backend.manager().await, backend.key("job"));
    let start = Instant::now();
    assert_eq!(job(&manager, &key).run(async { Locked::Ok(7) }).await, Ok(7));
    assert!(start.elapsed() < MIN_HOLD, "the caller does not wait for it");
    stays(backend, &key, start).await;

    // Renewed or not: nobody renews it once it is released.
    let start = Instant::now();
    let renewed = renewed(&manager, &key, SOON).min_hold(MIN_HOLD);
    renewed.run(async { Locked::Ok(7) }).await.expect("free again");
    stays(backend, &key, start).await;

    let start = Instant::now();
    let panics = job(&manager, &key).run(async {
        assert!(key.is_empty(), "as planned");
        Locked::Ok(())
    });
    AssertUnwindSafe(panics).catch_unwind().await.expect_err("it panics");
    stays(backend, &key, start).await;

    let start = Instant::now();
    let fails = job(&manager, &key).run(async { Err::<(), _>(LockError::unavailable("its own")) });
    assert_eq!(fails.await, Err(LockError::unavailable("its own")));
    stays(backend, &key, start).await;

    let start = Instant::now();
    drop(job(&manager, &key).acquire().await.expect("free"));
    stays(backend, &key, start).await;

    let start = Instant::now();
    let lock = job(&manager, &key);
    assert_eq!(on_a_plain_thread(move || lock.run_blocking(|| Locked::Ok(7))).await, Ok(7));
    stays(backend, &key, start).await;

    // It is never longer than the ttl.
    let start = Instant::now();
    let long = Lock::new(&*key).ttl(MIN_HOLD).min_hold(SOON).manager(&manager);
    long.run(async { Locked::Ok(()) }).await.expect("free");
    stays(backend, &key, start).await;
}

#[on(memory, redis, postgres)]
async fn min_hold_holds_for_a_body_that_is_dropped(backend: &Backend) {
    let (manager, key) = (backend.manager().await, backend.key("job"));
    let start = Instant::now();
    let (begun, began) = tokio::sync::oneshot::channel();
    let body = job(&manager, &key).run(async {
        begun.send(()).expect("the test goes on");
        std::future::pending::<Locked<()>>().await
    });
    tokio::select! {
        _ = body => panic!("it ended"),
        began = began => began.expect("the body begins"),
    }
    stays(backend, &key, start).await;
    // Dropped while it is released, at each point.
    for polls in 1..20 {
        let start = Instant::now();
        let guard = job(&manager, &key).acquire().await.expect("free");
        let polled = drop_after_polls(guard.release(), polls).await;
        stays(backend, &key, start).await;
        if polled != Polled::Dropped {
            return;
        }
    }
    panic!("it never completed");
}

#[on(memory, redis, postgres)]
async fn a_body_longer_than_min_hold_frees_the_key_at_once(backend: &Backend) {
    let (manager, key) = (backend.manager().await, backend.key("job"));
    let result = lock(&manager, &key).min_hold(ms(50)).run(async {
        outlast(ms(50)).await;
        Locked::Ok(7)
    });
    assert_eq!(result.await, Ok(7));
    assert!(backend.is_free(&key).await);
}

#[on(memory, redis, postgres)]
async fn min_hold_is_nothing_to_an_attempt_that_was_refused(backend: &Backend) {
    let (ours, theirs) = (backend.manager().await, backend.manager().await);
    let key = backend.key("job");
    let guard = lock(&ours, &key).acquire().await.expect("free");
    let refused = job(&theirs, &key).acquire().await.expect_err("held");
    assert!(refused.is_busy());
    guard.release().await.expect("ours");
    assert!(backend.is_free(&key).await);
}

#[on(memory, redis, postgres)]
async fn an_extension_lengthens_a_lease(backend: &Backend) {
    let (manager, rival) = (backend.manager().await, backend.manager().await);
    let key = backend.key("order:42");
    let ttl = ms(1_500);
    let guard = Lock::new(&*key).ttl(ttl).manager(&manager).acquire().await.expect("free");
    let start = Instant::now();
    guard.extend(ms(9_000)).await.expect("ours");
    let remaining = guard.remaining();
    // Less 1 % and 2 ms, and counted from before the request.
    assert!(remaining + start.elapsed() > ms(8_907) && remaining < ms(8_910), "{remaining:?}");
    let left = left(&rival, &key).await.expect("held");
    assert!(left > guard.remaining(), "{left:?} of {remaining:?}");
    let body = guard.run(async {
        outlast(ttl).await;
        Locked::Ok(7)
    });
    assert_eq!(body.await, Ok(7));
}

#[on(memory, redis, postgres)]
async fn an_extension_never_shortens_a_lease(backend: &Backend) {
    let (manager, rival) = (backend.manager().await, backend.manager().await);
    let key = backend.key("order:42");
    let guard = lock(&manager, &key).acquire().await.expect("free");
    guard.extend(ms(50)).await.expect("ours");
    outlast(ms(50)).await;
    assert!(guard.remaining() > LONG_TTL - SOON);
    assert!(left(&rival, &key).await.expect("held") > LONG_TTL - SOON);
    guard.release().await.expect("ours");
}

#[on(memory, redis, postgres)]
async fn an_extension_of_a_renewed_lock_is_not_cut_by_a_renewal(backend: &Backend) {
    let (manager, rival) = (backend.manager().await, backend.manager().await);
    let key = backend.key("order:42");
    let guard = renewed(&manager, &key, ms(900)).acquire().await.expect("free");
    guard.extend(ms(30_000)).await.expect("ours");
    let start = Instant::now();
    eventually("a renewal would have cut it", SOON, async || {
        let (left, remaining) = (left(&rival, &key).await.expect("held"), guard.remaining());
        assert!(left > ms(15_000) && remaining > ms(15_000), "{left:?}, {remaining:?}");
        start.elapsed() > ms(1_000)
    })
    .await;
    guard.release().await.expect("ours");
    let guard = renewed(&manager, &key, ms(3_000)).acquire().await.expect("free");
    // Shorter than the time until the next renewal.
    guard.extend(ms(400)).await.expect("ours");
    outlast(ms(400)).await;
    guard.check().expect("it is a renewed lock");
    guard.release().await.expect("ours");
}

#[on(memory, redis, postgres)]
async fn a_ttl_that_is_no_ttl_extends_nothing(backend: &Backend) {
    let manager = backend.manager().await;
    let guard = lock(&manager, &backend.key("order:42")).acquire().await.expect("free");
    for ttl in [Duration::ZERO, ms(1), 24 * 61 * LONG_TTL] {
        let result = guard.extend(ttl).await;
        let is_refused = matches!(result, Err(LockError::InvalidSetting { setting: "ttl", .. }));
        assert!(is_refused, "{result:?}");
        assert!(guard.remaining() > LONG_TTL / 2);
    }
}

#[on(memory, redis, postgres)]
async fn lost_wakes_at_the_end_of_the_lease(backend: &Backend) {
    let (manager, key) = (backend.manager().await, backend.key("order:42"));
    let start = Instant::now();
    let guard = Lock::new(&*key).ttl(ms(900)).manager(&manager).acquire().await.expect("free");
    guard.extend(ms(1_200)).await.expect("ours");
    let others: Vec<_> = (0..3).map(|_| guard.handle()).collect();
    let all = futures::future::join_all(others.iter().map(|guard| guard.lost())).await;
    assert!(all.iter().all(|lost| lost.cause() == LossCause::Expired), "{all:?}");
    assert!(all.iter().all(|lost| lost.key().to_string() == key));
    assert!(start.elapsed() >= ms(1_180) && start.elapsed() < SOON, "{:?}", start.elapsed());
}

#[on(memory, redis, postgres)]
async fn lost_wakes_at_the_release(backend: &Backend) {
    let (manager, key) = (backend.manager().await, backend.key("order:42"));
    for dropped in [false, true] {
        let guard = lock(&manager, &key).acquire().await.expect("free");
        let shared = guard.handle();
        let waiting = spawn_polled(async move { (shared.lost().await, shared.check()) }).await;
        if dropped {
            drop(guard)
        } else {
            guard.release().await.expect("ours")
        }
        let (lost, checked) = waiting.await.expect("no panic");
        assert_eq!(lost.cause(), LossCause::Released);
        assert_eq!(cause(checked), LossCause::Released);
        backend.becomes_free(&key, SOON).await;
    }
}

#[on(memory, redis, postgres)]
async fn check_fails_after_the_loss(backend: &Backend) {
    let (manager, key) = (backend.manager().await, backend.key("order:42"));
    let name = key.clone();
    let lock = Lock::new(&*name).ttl(ms(800)).manager(&manager);
    let steps = on_a_plain_thread(move || {
        let mut steps = 0_u32;
        let result: Locked<()> = lock.run_blocking(|| {
            let guard = lockmacro_runtime::LockGuard::current().expect("held");
            loop {
                guard.check()?;
                steps += 1;
                std::thread::sleep(ms(10));
            }
        });
        assert_eq!(cause(result), LossCause::Expired);
        steps
    });
    assert!((1..=80).contains(&steps.await));
    backend.becomes_free(&key, SOON).await;
}

/// Closes all connections to the store but that of the test itself.
async fn close_connections(backend: &Backend, application: &str) {
    for mut admin in backend.admins() {
        admin.ask::<i64>(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    }
    if let Some(database) = backend.database() {
        assert!(database.terminate(application).await > 0);
    }
}

#[on(redis, redlock, postgres)]
async fn an_extension_recovers_from_a_connection_that_was_closed(backend: &Backend) {
    const APPLICATION: &str = "extends";
    let separator = if backend.url().contains('?') { '&' } else { '?' };
    let url = match backend.database() {
        Some(_) => format!("{}{separator}application_name={APPLICATION}", backend.url()),
        None => backend.url().to_owned(),
    };
    let manager = LockManager::builder().timeout(LONG_TTL).connect(&url).await.expect("there");
    let key = backend.key("order:42");
    for _ in 0..5 {
        let guard = lock(&manager, &key).ttl(LONG_TTL).acquire().await.expect("free");
        close_connections(backend, APPLICATION).await;
        guard.extend(2 * LONG_TTL).await.expect("over another connection");
        assert!(guard.remaining() > LONG_TTL);
        close_connections(backend, APPLICATION).await;
        guard.release().await.expect("over another connection");
    }
}
