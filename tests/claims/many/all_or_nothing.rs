//! Several keys are held together, or none is.

use std::time::Duration;

use lockmacro_runtime::{Lock, LockError, LockKey};
use lockmacro_tests::{Backend, Server, on, on_a_plain_thread};

use crate::{IN_TIME, LONG_TTL, Locked, busy_key, free, keys, lock, many, two_managers};

#[on(memory, redis, slots, redlock, postgres, both_runtimes)]
async fn a_lock_on_several_keys_holds_each_of_them(backend: &Backend) {
    let (manager, keys) = (backend.manager().await, keys::<3>(backend));
    let guard = many(&manager, [&keys[2], &keys[0], &keys[1]]).acquire().await.expect("free");
    assert_eq!(free(backend, &keys).await, [false; 3]);
    assert!(guard.remaining() > LONG_TTL * 9 / 10);
    assert!(guard.keys().iter().map(LockKey::as_str).eq(&keys), "in order");
    assert_eq!(guard.key().as_str(), keys[0]);
    guard.release().await.expect("still held");
    assert_eq!(free(backend, &keys).await, [true; 3]);
}

#[on(memory, redis, slots, redlock, postgres, both_runtimes)]
async fn one_busy_key_means_that_none_is_held(backend: &Backend) {
    let (ours, theirs, keys) = two_managers::<3>(backend).await;
    for busy in 0..3 {
        let guard = lock(&theirs, &keys[busy]).acquire().await.expect("free");
        let error = many(&ours, &keys).acquire().await.expect_err("busy");
        assert!(matches!(error, LockError::Busy { .. }), "{error}");
        assert_eq!(busy_key(&error), keys[busy]);
        let others = std::array::from_fn::<_, 3, _>(|nth| nth != busy);
        assert_eq!(free(backend, &keys).await, others);
        guard.release().await.expect("still held");
    }
}

#[on(memory, redis, slots, redlock, postgres, both_runtimes)]
async fn the_first_busy_key_is_reported_with_its_holder(backend: &Backend) {
    let ours = backend.manager().await;
    let theirs =
        backend.manager_from(lockmacro_runtime::LockManager::builder().label("web-7")).await;
    let keys = keys::<3>(backend);
    let _held = many(&theirs, &keys[1..]).name("audit").acquire().await.expect("free");
    let lock = many(&ours, &keys).message("these orders are being audited");
    let error = lock.acquire().await.expect_err("busy");
    let LockError::Busy { key, message, .. } = &error else {
        panic!("{error}");
    };
    assert_eq!(key.as_str(), keys[1]);
    assert_eq!(error.holder().owner.as_deref(), Some("web-7:audit"));
    assert!(error.holder().free_within.is_some_and(|left| left > LONG_TTL / 2));
    assert_eq!(message.as_deref(), Some("these orders are being audited"));
}

#[on(memory, redis, slots, postgres, both_runtimes)]
async fn keys_that_are_given_twice_count_once(backend: &Backend) {
    let (manager, keys) = (backend.manager().await, keys::<2>(backend));
    // The places of the keys that are given; the last key is among them.
    for (given, first) in [(vec![1, 0, 1, 0], 0), (vec![1; 3], 1), (vec![1], 1)] {
        let lock = many(&manager, given.iter().map(|nth| &keys[*nth]));
        let guard = lock.acquire().await.expect("free");
        assert!(guard.keys().iter().map(LockKey::as_str).eq(&keys[first..]), "{given:?}");
        assert!(!backend.is_free(&keys[1]).await, "{given:?}");
        guard.release().await.expect("still held");
    }
}

#[on(memory, redis, slots, redlock, postgres, both_runtimes)]
async fn the_most_keys_are_held_and_released(backend: &Backend) {
    let manager = backend.manager().await;
    let keys: Vec<String> = (0..128).map(|nth| backend.key(&format!("order:{nth}"))).collect();
    let guard = many(&manager, &keys).acquire().await.expect("free");
    assert!(!free(backend, &keys).await.contains(&true));
    guard.release().await.expect("still held");
    assert!(!free(backend, &keys).await.contains(&false));
}

#[on(memory, redis, slots, redlock, postgres, both_runtimes)]
async fn a_body_runs_under_all_keys_or_not_at_all(backend: &Backend) {
    let (ours, theirs, keys) = two_managers::<2>(backend).await;
    let held = many(&ours, &keys).run(async { Locked::Ok(free(backend, &keys).await) }).await;
    assert_eq!(held, Ok(vec![false; 2]));
    let _busy = lock(&theirs, &keys[1]).acquire().await.expect("free");
    let mut ran = false;
    many(&ours, &keys).skip_when_busy().run(async { ran = true }).await;
    assert!(!ran && backend.is_free(&keys[0]).await);
}

#[on(memory, redis, slots, postgres, both_runtimes)]
async fn a_sync_body_runs_under_all_keys_or_not_at_all(backend: &Backend) {
    let (ours, theirs, keys) = two_managers::<2>(backend).await;
    let held = || {
        let (locks, others) = (ours.clone(), theirs.clone());
        let keys = keys.clone();
        on_a_plain_thread(move || {
            many(&locks, &keys).run_blocking(|| {
                let busy = |key| lock(&others, key).acquire_blocking().is_err_and(|e| e.is_busy());
                Locked::Ok(keys.iter().all(|key| busy(key)))
            })
        })
    };
    assert_eq!(held().await, Ok(true));
    let _busy = lock(&theirs, &keys[1]).acquire().await.expect("free");
    assert_eq!(busy_key(&held().await.expect_err("busy")), keys[1]);
    assert!(backend.is_free(&keys[0]).await);
}

#[on(memory, redis, slots, postgres, both_runtimes)]
async fn all_keys_stay_for_the_min_hold(backend: &Backend) {
    let (manager, keys) = (backend.manager().await, keys::<2>(backend));
    let start = std::time::Instant::now();
    let min_hold = Duration::from_millis(400);
    many(&manager, &keys).min_hold(min_hold).run(async { Locked::Ok(()) }).await.expect("free");
    let now = free(backend, &keys).await;
    assert!(now == [false; 2] || start.elapsed() >= min_hold, "{now:?}");
    for key in &keys {
        backend.becomes_free(key, IN_TIME).await;
    }
    assert!(start.elapsed() >= min_hold, "after {:?}", start.elapsed());
}

#[tokio::test]
async fn a_set_of_keys_that_is_no_lock_says_why() {
    let manager = Backend::memory().manager().await;
    let cases: [(Vec<String>, &str); 5] = [
        (vec![], "there is none"),
        ((0..129).map(|nth| nth.to_string()).collect(), "129 keys and 128 are allowed"),
        (vec!["a".to_owned(), String::new()], "it is empty"),
        (vec![String::new(), "a".to_owned()], "it is empty"),
        (vec!["a".to_owned(), "lm1:b".to_owned()], "`lm1:`"),
    ];
    for (keys, expected) in cases {
        let error = many(&manager, &keys).acquire().await.expect_err("no lock");
        assert!(matches!(error, LockError::InvalidKey { .. }), "{error}");
        assert!(error.to_string().contains(expected), "{error}");
    }
    // Doubles do not count.
    let keys = (0..256).map(|nth| (nth % 128).to_string());
    drop(many(&manager, keys).acquire().await.expect("128 keys"));
}

#[tokio::test]
async fn keys_come_from_any_iterator_and_in_any_form() {
    let manager = Backend::memory().manager().await;
    let orders = [(7, "SO-7"), (8, "SO-8")];
    let names = || orders.iter().map(|(_, name)| name.to_string());
    let forms = [
        Lock::many(["SO-7", "SO-8"]),
        Lock::many(&["SO-7".to_owned(), "SO-8".to_owned()]),
        Lock::many(names()),
        Lock::many(names().map(LockKey::from).collect::<Vec<_>>()),
        Lock::many(names().collect::<std::collections::HashSet<_>>()),
        Lock::many(orders.map(|(id, _)| LockKey::template("SO-<id>").literal("SO-").value(&id))),
    ];
    for lock in forms {
        let guard = lock.manager(&manager).acquire().await.expect("free");
        assert!(guard.keys().iter().map(LockKey::as_str).eq(["SO-7", "SO-8"]));
        guard.release().await.expect("still held");
    }
}

/// A client of another make holds one of the keys, or something that is no lock is there.
#[tokio::test]
async fn keys_of_other_programs_are_left_unchanged_and_reported() {
    let server = Server::start();
    let manager = lockmacro_runtime::LockManager::connect(&server.url()).await.expect("there");
    let mut admin = server.admin();

    admin.ask::<()>(&["SET", "order:b", "php", "NX", "PX", "60000"]);
    let error = many(&manager, ["order:a", "order:b"]).acquire().await.expect_err("busy");
    assert!(matches!(&error, LockError::Busy { .. }) && error.holder().owner.is_none(), "{error}");
    assert_eq!(busy_key(&error), "order:b");
    assert_eq!(admin.keys(), ["order:b"]);
    admin.ask::<()>(&["DEL", "order:b"]);

    admin.ask::<()>(&["RPUSH", "order:b", "a list"]);
    let error = many(&manager, ["order:a", "order:b"]).acquire().await.expect_err("no lock");
    assert!(matches!(error, LockError::KeyNotALock { .. }), "{error}");
    assert_eq!(busy_key(&error), "order:b");
    assert_eq!(admin.keys(), ["order:b"]);
}
