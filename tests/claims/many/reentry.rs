//! Keys that are held already: a part of them joins, and a set that is partly held is refused.

use lockmacro_runtime::{LockError, LockGuard, LockKey};
use lockmacro_tests::{Backend, on};

use crate::{Locked, free, keys, lock, many, two_managers};

#[on(memory, redis, postgres, both_runtimes)]
async fn a_part_of_the_held_keys_and_each_one_joins(backend: &Backend) {
    let (manager, keys) = (backend.manager().await, keys::<3>(backend));
    let outer = async {
        for part in [&keys[..], &keys[1..], &keys[..2]] {
            let inner = many(&manager, part.iter().rev()).acquire().await?;
            assert!(inner.is_joined());
            inner.release().await?;
            assert_eq!(free(backend, &keys).await, [false; 3]);
        }
        for key in &keys {
            let inner = lock(&manager, key).acquire().await?;
            assert!(inner.is_joined());
            assert_eq!(inner.key().as_str(), key);
            inner.release().await?;
            assert_eq!(manager.guard_of(key).expect("held").key().as_str(), key);
        }
        assert!(manager.guard_of("another").is_none());
        let within = many(&manager, [&keys[2], &keys[0]]).run(async {
            assert!(LockGuard::current().is_some_and(|guard| guard.keys().len() == 3));
            Locked::Ok(7)
        });
        within.await
    };
    assert_eq!(many(&manager, &keys).run(outer).await, Ok(7));
    assert_eq!(free(backend, &keys).await, [true; 3]);
}

#[on(memory, redis, postgres, both_runtimes)]
async fn a_set_that_is_partly_held_is_refused_and_takes_nothing(backend: &Backend) {
    let (manager, keys) = (backend.manager().await, keys::<3>(backend));
    // Whether the key that is missing comes before or after those that are held.
    for missing in 0..3 {
        let held = (0..3).filter(|nth| *nth != missing).map(|nth| &keys[nth]);
        let outer = async {
            for lock in [many(&manager, &keys), many(&manager, &keys).wait_forever()] {
                let error = lock.acquire().await.expect_err("partly held");
                assert!(matches!(error, LockError::Nested { .. }), "{error}");
                assert!(!error.to_string().contains(&*keys[missing]), "{error}");
            }
            assert!(backend.is_free(&keys[missing]).await);
            Locked::Ok(())
        };
        many(&manager, held).run(outer).await.expect("free");
    }
    let error =
        lock(&manager, &keys[1]).run(many(&manager, &keys[..2]).run(async { Locked::Ok(()) }));
    let error = error.await.expect_err("partly held").to_string();
    assert!(error.contains(&*keys[1]), "{error}");
}

#[on(memory, redis, postgres, both_runtimes)]
async fn keys_held_by_two_locks_are_not_joined(backend: &Backend) {
    let (manager, keys) = (backend.manager().await, keys::<2>(backend));
    let inner = async {
        let error = many(&manager, &keys).acquire().await.expect_err("held by two");
        assert!(matches!(error, LockError::Nested { .. }), "{error}");
        Locked::Ok(())
    };
    let outer = lock(&manager, &keys[0]).run(lock(&manager, &keys[1]).run(inner));
    outer.await.expect("free");
}

#[on(memory, redis, postgres, both_runtimes)]
async fn other_keys_are_a_lock_of_their_own(backend: &Backend) {
    let (manager, keys) = (backend.manager().await, keys::<4>(backend));
    let outer = async {
        let inner = many(&manager, &keys[2..]).acquire().await?;
        assert!(!inner.is_joined());
        inner.release().await?;
        Locked::Ok(free(backend, &keys).await)
    };
    let free = many(&manager, &keys[..2]).run(outer).await;
    assert_eq!(free, Ok(vec![false, false, true, true]));
}

#[on(memory, redis, postgres, both_runtimes)]
async fn another_managers_keys_are_another_lock(backend: &Backend) {
    let (ours, theirs, keys) = two_managers::<2>(backend).await;
    let outer = many(&ours, &keys).run(async {
        let error = many(&theirs, &keys).acquire().await.expect_err("busy");
        assert!(error.is_busy(), "{error}");
        Locked::Ok(())
    });
    outer.await.expect("free");
}

#[on(memory, redis, postgres, both_runtimes)]
async fn a_spawned_task_is_outside(backend: &Backend) {
    let (manager, keys) = (backend.manager().await, keys::<2>(backend));
    let (locks, others) = (manager.clone(), keys.clone());
    let outer = many(&manager, &keys).run(async {
        let task = tokio::spawn(async move { many(&locks, &others).acquire().await.map(drop) });
        let error = task.await.expect("no panic").expect_err("busy");
        assert!(error.is_busy(), "{error}");
        let lock = LockGuard::current().expect("inside");
        assert!(lock.keys().iter().map(LockKey::as_str).eq(&keys));
        let (locks, others) = (manager.clone(), keys.clone());
        let task = tokio::spawn(async move {
            lock.scope(async { many(&locks, &others).acquire().await.map(|g| g.is_joined()) }).await
        });
        task.await.expect("no panic")
    });
    assert_eq!(outer.await, Ok(true));
}
