//! Misuse is refused before any request to the server.

use std::time::Duration;

use lockmacro_runtime::{Lock, LockError, LockKey, LockManager};
use lockmacro_tests::{Backend, is_no_runtime, on, on_a_plain_thread};

use crate::{LONG_TTL, Locked, lock, ms};

// Not on a Redlock: the shortest times may be over on a loaded machine before three nodes have
// answered.

#[on(memory, redis, redlock, postgres, both_runtimes)]
async fn a_ttl_outside_of_its_bounds_is_refused(backend: &Backend) {
    let (manager, key) = (backend.manager().await, backend.key("order:42"));
    let day = Duration::from_secs(24 * 60 * 60);
    let bad = [Duration::ZERO, Duration::from_nanos(1), ms(49), day + ms(1), Duration::MAX];
    for bad in bad {
        let error = Lock::new(&*key).ttl(bad).manager(&manager).acquire().await;
        let Err(LockError::InvalidSetting { setting: "ttl", detail, .. }) = error else {
            panic!("{bad:?}: {error:?}")
        };
        assert!(detail.contains(&format!("{bad:?}")), "{detail}");
    }
    assert!(backend.is_free(&key).await);
}

#[on(memory, redis, postgres, both_runtimes)]
async fn a_ttl_at_its_bounds_is_accepted(backend: &Backend) {
    let (manager, key) = (backend.manager().await, backend.key("order:42"));
    for good in [ms(50), Duration::from_secs(24 * 60 * 60)] {
        let guard = Lock::new(&*key).ttl(good).manager(&manager).acquire().await;
        guard.expect("a good ttl").release().await.expect("released");
    }
}

#[on(memory, redis, redlock, postgres, both_runtimes)]
async fn an_unusable_key_is_refused(backend: &Backend) {
    let manager = backend.manager().await;
    let empty_value = LockKey::template("order:<id>").literal("order:").value("").into();
    let bad: [LockKey; 5] = [
        "".into(),
        "x".repeat(1025).into(),
        "lm1:tq:{a}".into(),
        "订".repeat(342).into(),
        empty_value,
    ];
    for key in bad {
        let error = Lock::new(&key).ttl(LONG_TTL).manager(&manager).acquire().await;
        assert!(matches!(error, Err(LockError::InvalidKey { .. })), "{key}: {error:?}");
    }
}

#[on(memory, redis, redlock, postgres, both_runtimes)]
async fn a_key_at_its_bounds_is_accepted(backend: &Backend) {
    let manager = backend.manager().await;
    let prefix = backend.key("");
    let longest = |last: &str| format!("{prefix}{}{last}", "x".repeat(1023 - prefix.len()));
    // Other tests may have the shortest one as well. Two that differ at their end are two.
    let mut guards = Vec::new();
    for key in ["x".to_owned(), longest("a"), longest("b")] {
        assert!([1, 1024].contains(&key.len()));
        guards.push(lock(&manager, &key).wait(LONG_TTL).acquire().await.expect("a good key"));
        assert_eq!(guards.last().map(|guard| guard.key().to_string()), Some(key.clone()));
        assert!(!backend.is_free(&key).await, "it is held by all of its bytes");
    }
    for guard in guards {
        guard.release().await.expect("released");
    }
}

#[on(memory, redis, redlock, postgres, both_runtimes)]
async fn locks_that_are_never_run_leave_nothing(backend: &Backend) {
    let (manager, key) = (backend.manager().await, backend.key("order:42"));
    drop(lock(&manager, &key));
    drop(lock(&manager, &key).acquire());
    drop(lock(&manager, &key).run(async { Locked::Ok(()) }));
    assert!(backend.is_free(&key).await);
}

#[on(memory, redis, postgres, both_runtimes)]
async fn the_longest_and_the_shortest_timeout_can_be_waited_for(backend: &Backend) {
    let key = backend.key("order:42");
    let lazy =
        backend.manager_from(LockManager::builder().timeout(Duration::from_secs(60 * 60))).await;
    assert_eq!(lock(&lazy, &key).run(async { Locked::Ok(7) }).await, Ok(7));
    let hasty = LockManager::builder().timeout(ms(20)).connect(backend.url()).await;
    let result = match hasty {
        Ok(hasty) => lock(&hasty, &key).run(async { Locked::Ok(7) }).await,
        Err(error) => Err(error),
    };
    // On a loaded machine 20 ms may be too short for a server.
    assert!(matches!(result, Ok(7) | Err(LockError::Unavailable { .. })), "{result:?}");
    backend.becomes_free(&key, LONG_TTL / 2).await;
}

#[on(memory, redis, redlock, postgres, both_runtimes)]
async fn an_async_lock_outside_of_a_runtime_is_refused(backend: &Backend) {
    let (manager, key) = (backend.manager().await, backend.key("order:42"));
    let asked = on_a_plain_thread(move || {
        futures::executor::block_on(lock(&manager, &key).acquire()).map(drop)
    });
    assert!(is_no_runtime(&asked.await, "no tokio runtime"));
}

#[test]
fn connecting_outside_of_a_runtime_is_refused() {
    let connecting = LockManager::connect("redis://127.0.0.1:1");
    let connected = futures::executor::block_on(connecting);
    assert!(is_no_runtime(&connected, "no tokio runtime"), "{connected:?}");
}

#[tokio::test]
async fn an_unusable_url_is_refused_without_its_password() {
    for url in
        ["", "order", "http://127.0.0.1:1", "redis://:hunter2@:x", "redis://u:hunter2@h:99999"]
    {
        let error = LockManager::connect(url).await.expect_err("no such server");
        assert!(
            matches!(error, LockError::InvalidSetting { setting: "url", .. }),
            "{url}: {error:?}"
        );
        assert!(!format!("{error} {error:?}").contains("hunter2"), "{error:?}");
    }
}

#[tokio::test]
async fn a_private_store_is_nobody_elses() {
    let (ours, other) = (LockManager::isolated_memory(), LockManager::isolated_memory());
    let guard = lock(&ours, "order:42").acquire().await.expect("free");
    let apart = lock(&other, "order:42").acquire().await.expect("another store");
    guard.release().await.expect("released");
    apart.release().await.expect("released");
}
