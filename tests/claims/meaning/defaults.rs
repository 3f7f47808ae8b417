//! Defaults of a manager for all of its locks: lease, wait and prefix.

use std::future::ready;
use std::time::Duration;

use lockmacro_runtime::{Lock, LockError, LockKey, LockManager, Lost};
use lockmacro_tests::AcquireFenced as _;
use lockmacro_tests::{Backend, eventually, on};
use tokio::time::timeout;

use crate::{LONG_TTL, Locked, TEST_TIMEOUT, lock, ms};

fn builder() -> lockmacro_runtime::LockManagerBuilder {
    LockManager::builder().timeout(LONG_TTL)
}

/// A manager with a prefix.
async fn shop(backend: &Backend) -> LockManager {
    backend.manager_from(builder().key_prefix("shop:")).await
}

/// Awaits what does not wait for the lock.
async fn at_once<F: Future>(run: F) -> F::Output {
    timeout(TEST_TIMEOUT, run).await.expect("it does not wait")
}

fn unnamed(manager: &LockManager, key: &str) -> Lock {
    Lock::new(key).manager(manager)
}

#[on(memory, redis, redlock, postgres, both_runtimes)]
async fn a_prefix_is_a_part_of_the_key_for_everybody(backend: &Backend) {
    let (ours, theirs) = (shop(backend).await, backend.manager().await);
    let key = backend.key("order:42");
    let whole = format!("shop:{key}");
    let guard = lock(&ours, &key).acquire().await.expect("free");
    assert_eq!(guard.key().as_str(), whole);
    for mut admin in backend.admins() {
        // The last node of a Redlock may be late.
        let has_it = || ready(admin.get(&whole).is_some());
        eventually("it has the whole key", TEST_TIMEOUT, has_it).await;
        assert_eq!(admin.get(&key), None);
    }
    // The key without it is another one, and the whole key is the same.
    lock(&theirs, &key).acquire().await.expect("free").release().await.expect("released");
    let error = lock(&theirs, &whole).acquire().await.expect_err("held");
    assert!(error.is_busy() && error.to_string().contains(&whole), "{error}");
    let error = lock(&shop(backend).await, &key).acquire().await.expect_err("held");
    let LockError::Busy { key: busy, .. } = &error else { panic!("not busy: {error}") };
    assert_eq!(busy.as_str(), whole);
    guard.release().await.expect("released");
}

#[on(memory, redis, redlock, postgres, both_runtimes)]
async fn a_key_from_a_managers_error_gets_no_second_prefix(backend: &Backend) {
    let manager = shop(backend).await;
    let key = backend.key("order:42");
    let guard = lock(&manager, &key).acquire().await.expect("free");
    let key = guard.key().clone();
    let again = Lock::new(&key).ttl(LONG_TTL).manager(&manager);
    assert!(again.acquire().await.expect_err("held").is_busy());
    guard.release().await.expect("released");
    let guard = again.acquire().await.expect("free");
    assert_eq!(guard.key(), &key);
    guard.release().await.expect("released");
}

#[on(memory, redis, redlock, postgres, both_runtimes)]
async fn a_body_under_a_prefix_knows_its_key_without_it(backend: &Backend) {
    let manager = shop(backend).await;
    let key: LockKey = backend.key("order:42").into();
    let outer = Lock::new(&key).ttl(LONG_TTL).manager(&manager);
    let inner = outer.clone();
    let joined: Locked<bool> = outer
        .run(async {
            assert!(manager.guard_of(&key).is_some() && manager.guard_of("another").is_none());
            let guard = inner.acquire().await?;
            Ok(guard.is_joined() && guard.key().as_str() == format!("shop:{key}"))
        })
        .await;
    assert_eq!(joined, Ok(true));
}

#[on(memory, redis, redlock, postgres, both_runtimes)]
async fn several_keys_have_the_prefix_each(backend: &Backend) {
    let manager = shop(backend).await;
    let [one, two] = ["{bank}:1", "{bank}:2"].map(|name| backend.key(name));
    let both = Lock::many([&two, &one]).ttl(LONG_TTL).manager(&manager);
    let (guard, fences) = both.acquire_fenced().await.expect("free");
    assert_eq!(guard.keys().len(), 2);
    assert!(guard.keys().iter().all(|key| key.as_str().starts_with("shop:")), "{guard:?}");
    assert_eq!(guard.fence_of(&two), Some(fences[0]));
    assert_eq!(guard.fence_of(&guard.keys()[0]), Some(fences[1]));
    let error = lock(&manager, &one).acquire().await;
    assert!(error.expect_err("held").is_busy());
    guard.release().await.expect("released");
    for mut admin in backend.admins() {
        let counters = admin.keys();
        assert!(counters.iter().all(|key| key.contains("shop:")), "{counters:?}");
        counters.iter().for_each(|key| admin.ask::<()>(&["DEL", key]));
    }
}

#[on(memory, redis, redlock, postgres, both_runtimes)]
async fn a_lock_that_names_no_ttl_has_the_managers(backend: &Backend) {
    let manager = backend.manager_from(builder().default_ttl(LONG_TTL * 5)).await;
    let key = backend.key("order:42");
    let guard = unnamed(&manager, &key).acquire().await.expect("free");
    assert!(guard.remaining() > LONG_TTL * 4, "{:?}", guard.remaining());
    guard.release().await.expect("released");
    let named = unnamed(&manager, &key).ttl(LONG_TTL).acquire().await.expect("free");
    assert!(named.remaining() <= LONG_TTL);
    named.release().await.expect("released");

    // It is renewed, as the built-in one is.
    let short = backend.manager_from(builder().default_ttl(Duration::from_secs(2))).await;
    let guard = unnamed(&short, &key).acquire().await.expect("free");
    let mut least = guard.remaining();
    eventually("it is renewed", TEST_TIMEOUT, || {
        let before = std::mem::replace(&mut least, guard.remaining());
        std::future::ready(guard.remaining() > before)
    })
    .await;
    guard.release().await.expect("released");
}

#[on(memory, redis, redlock, postgres, both_runtimes)]
async fn a_lock_that_names_no_wait_waits_as_its_manager_says(backend: &Backend) {
    let key = backend.key("order:42");
    let patient = backend.manager_from(builder().default_wait(LONG_TTL)).await;
    let held = lock(&patient, &key).acquire().await.expect("free");
    let mut waiting = tokio::spawn(lock(&patient, &key).acquire());
    timeout(ms(30), &mut waiting).await.expect_err("it waits");
    let error = lock(&patient, &key).wait(Duration::ZERO).acquire().await.expect_err("held");
    assert!(
        matches!(error, LockError::Busy { .. }),
        "it asks once whatever the default: {error:?}"
    );
    held.release().await.expect("released");
    waiting.await.expect("it ends").expect("its turn").release().await.expect("released");

    let brief = backend.manager_from(builder().default_wait(ms(20))).await;
    let held = lock(&patient, &key).acquire().await.expect("free");
    let error = lock(&brief, &key).acquire().await.expect_err("held");
    assert!(matches!(error, LockError::TimedOut { .. }), "{error:?}");
    held.release().await.expect("released");
}

#[on(memory, redis, redlock, postgres, both_runtimes)]
async fn what_is_skipped_when_busy_does_not_wait_by_itself(backend: &Backend) {
    let key = backend.key("report");
    let patient = backend.manager_from(builder().default_wait(LONG_TTL)).await;
    let held = lock(&patient, &key).acquire().await.expect("free");
    let skipping = || lock(&patient, &key).skip_when_busy();
    let done = at_once(skipping().run(async { Some(1) })).await;
    assert_eq!(done, None, "another machine does it right now");
    let keep = |_: Lost, value: Option<u32>| value;
    let recovering = lock(&patient, &key).recovering(keep).skip_when_busy();
    let done = at_once(recovering.run(async { Some(1) })).await;
    assert_eq!(done, None, "nor where a loss is recovered from");
    let mapped = skipping().map_err(|error| error.to_string());
    let done = at_once(mapped.run(async { Ok::<_, String>(Some(1)) })).await;
    assert_eq!(done, Ok(None), "nor where errors are mapped");
    // A job that says so waits.
    let waiting = lock(&patient, &key).wait(LONG_TTL).skip_when_busy().run(async { Some(1) });
    let mut waiting = tokio::spawn(waiting);
    timeout(ms(30), &mut waiting).await.expect_err("it waits");
    held.release().await.expect("released");
    assert_eq!(waiting.await.expect("it ends"), Some(1));
}

#[tokio::test]
async fn a_redlock_has_no_default_that_is_longer_than_its_locks_may_be() {
    let minutes = |minutes: u64| Duration::from_secs(minutes * 60);
    let longer =
        builder().default_ttl(minutes(11)).redlock(["redis://a", "redis://b", "redis://c"]);
    let error = longer.await.expect_err("refused before anybody is asked");
    assert!(error.to_string().contains("`longest_ttl` of 600s"), "{error}");
}

#[on(memory, redis, redlock, postgres, both_runtimes)]
async fn settings_that_cannot_be_are_refused_by_name(backend: &Backend) {
    let day = Duration::from_secs(24 * 60 * 60);
    for (bad, name) in [
        (builder().default_ttl(ms(49)), "default_ttl"),
        (builder().default_ttl(day + ms(1)), "default_ttl"),
        (builder().default_wait(Duration::MAX), "default_wait"),
        (builder().key_prefix("{shop}:"), "key_prefix"),
        (builder().key_prefix("shop}"), "key_prefix"),
        (builder().key_prefix("lm1:shop:"), "key_prefix"),
        (builder().timeout(ms(19)), "timeout"),
        (builder().timeout(Duration::MAX), "timeout"),
        (builder().fence_retention(day - ms(1)), "fence_retention"),
        (builder().longest_ttl(day + ms(1)), "longest_ttl"),
        (builder().node_timeout(Duration::ZERO), "node_timeout"),
    ] {
        let error = bad.clone().connect(backend.url()).await.expect_err("refused");
        let LockError::InvalidSetting { setting, .. } = &error else { panic!("{error:?}") };
        assert_eq!(*setting, name);
        // A manager that is made without asking anybody gives no lock.
        let error = unnamed(&bad.isolated_memory(), "x").acquire().await.expect_err("refused");
        assert!(matches!(error, LockError::InvalidSetting { .. }), "{error:?}");
    }
    let (url, and) = (backend.url(), if backend.url().contains('?') { '&' } else { '?' });
    let says = format!("{url}{and}default_ttl=5m&default_wait=500ms&key_prefix=shop%3A");
    let manager = builder().key_prefix("other:").connect(&says).await.expect("it is there");
    let guard = unnamed(&manager, &backend.key("x")).acquire().await.expect("free");
    assert!(guard.remaining() > LONG_TTL * 4 && guard.key().as_str().starts_with("shop:"));
    let error = unnamed(&manager, &backend.key("x")).acquire().await.expect_err("held");
    assert!(matches!(error, LockError::TimedOut { .. }), "{error:?}");
    guard.release().await.expect("released");
    let error = builder().connect(&format!("{url}{and}default_ttl=soon")).await;
    assert!(matches!(error, Err(LockError::InvalidSetting { .. })), "{error:?}");
}

#[tokio::test]
async fn a_wait_beyond_its_limits_is_refused_by_every_method_that_sets_it() {
    const HOUR: Duration = Duration::from_secs(60 * 60);
    let locks = LockManager::isolated_memory();
    let refused = |error: LockError| match error {
        LockError::InvalidSetting { setting, .. } => setting,
        other => panic!("{other}"),
    };
    for wait in [Duration::from_micros(1), Duration::from_micros(999), 48 * HOUR] {
        let asked = lock(&locks, "order:42").wait(wait).acquire().await;
        assert_eq!(refused(asked.expect_err("no such wait")), "wait", "{wait:?}");
        let built = LockManager::builder().default_wait(wait).connect("memory://").await;
        assert_eq!(refused(built.expect_err("no such wait")), "default_wait", "{wait:?}");
    }
    for wait in [Duration::ZERO, Duration::from_millis(1), 24 * HOUR, Duration::MAX] {
        let guard = lock(&locks, "order:42").wait(wait).acquire().await.expect("free");
        guard.release().await.expect("released");
    }
}
