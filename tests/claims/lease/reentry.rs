//! Entering a lock again: which code is inside of a lock, and which is not.

use std::panic::AssertUnwindSafe;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use futures::FutureExt;
use lockmacro_runtime::{Lock, LockGuard, LockManager, LossCause, OnLost};
use lockmacro_tests::{Backend, in_time, on};

use crate::{LONG_TTL, Locked, SOON, cause, lock, ms, outlast, renewed, served, until_lost};

async fn recurse(manager: &LockManager, key: &str, depth: u32) -> Locked<Vec<u64>> {
    let inner = async {
        let fence = LockGuard::current().and_then(|guard| guard.fence()).expect("a fence");
        let mut fences = vec![u64::from(fence)];
        if depth > 1 {
            fences.extend(Box::pin(recurse(manager, key, depth - 1)).await?);
        }
        Ok(fences)
    };
    let guard = lock(manager, key).fenced().acquire().await?;
    guard.run(inner).await
}

#[on(memory, redis, postgres, both_runtimes)]
async fn a_recursive_body_enters_its_lock_again(backend: &Backend) {
    let (manager, key) = (backend.manager().await, backend.key("order:42"));
    let fences = recurse(&manager, &key, 5).await.expect("it enters its own lock");
    assert_eq!(fences.len(), 5);
    assert!(fences.iter().all(|fence| *fence == fences[0]), "{fences:?}");
    assert!(backend.is_free(&key).await);
    backend.forget_fences();
}

#[on(memory, redis, postgres, both_runtimes)]
async fn the_inner_release_frees_nothing(backend: &Backend) {
    let (manager, key) = (backend.manager().await, backend.key("order:42"));
    let outer = async {
        let inner = lock(&manager, &key).acquire().await?;
        assert!(inner.is_joined());
        inner.release().await?;
        assert!(!backend.is_free(&key).await);
        drop(lock(&manager, &key).acquire().await?);
        lock(&manager, &key).run(async { Locked::Ok(()) }).await?;
        let skipped = lock(&manager, &key).skip_when_busy().run(async { Some(7) });
        assert_eq!(skipped.await, Some(7), "it is not busy");
        // A drop in the background would be through by then.
        outlast(ms(10)).await;
        assert!(!backend.is_free(&key).await);
        assert!(LockGuard::current().is_some_and(|guard| guard.is_held()));
        Locked::Ok(7)
    };
    assert_eq!(lock(&manager, &key).run(outer).await, Ok(7));
    assert!(backend.is_free(&key).await);
}

#[on(memory, redis, postgres, both_runtimes)]
async fn joined_calls_are_inside(backend: &Backend) {
    let (manager, key) = (backend.manager().await, backend.key("order:42"));
    let inner = || {
        lock(&manager, &key).run(async {
            tokio::task::yield_now().await;
            Locked::Ok(1)
        })
    };
    let outer = async {
        let (one, two) = tokio::join!(inner(), inner());
        let many: u32 = futures::future::try_join_all((0..5).map(|_| inner())).await?.iter().sum();
        let either = tokio::select! { value = inner() => value, value = inner() => value };
        Locked::Ok(one? + two? + many + either?)
    };
    assert_eq!(lock(&manager, &key).run(outer).await, Ok(8));
    assert!(backend.is_free(&key).await);
}

/// How many bodies were inside at once.
#[derive(Default)]
struct Inside {
    now: AtomicUsize,
    most: AtomicUsize,
}

impl Inside {
    async fn body(&self) -> Locked<()> {
        self.most.fetch_max(1 + self.now.fetch_add(1, Relaxed), Relaxed);
        tokio::task::yield_now().await;
        self.now.fetch_sub(1, Relaxed);
        Ok(())
    }
}

#[on(memory, redis, postgres, both_runtimes)]
async fn two_joined_calls_under_the_key_of_their_caller_run_at_once_and_not_under_another_key(
    backend: &Backend,
) {
    let manager = backend.manager().await;
    let (key, label) = (backend.key("order:42"), backend.key("order:42:label"));
    let most = async |inner: &str| {
        let inside = Inside::default();
        let call = || lock(&manager, inner).wait(SOON).run(inside.body());
        let outer = async { tokio::try_join!(call(), call()) };
        lock(&manager, &key).run(outer).await.expect("both are let in");
        inside.most.into_inner()
    };
    assert_eq!(most(&key).await, 2);
    assert_eq!(most(&label).await, 1);
}

#[on(memory, redis, postgres, both_runtimes)]
async fn a_spawned_task_is_outside_until_it_runs_in_the_scope_of_the_lock(backend: &Backend) {
    let (manager, key) = (backend.manager().await, backend.key("order:42"));
    let outer = async {
        let again = lock(&manager, &key);
        let spawned = tokio::spawn(async move {
            assert!(LockGuard::current().is_none());
            again.run(async { Locked::Ok(()) }).await
        });
        assert!(spawned.await.expect("no panic").expect_err("outside").is_busy());

        let (guard, again) = (LockGuard::current().expect("held"), lock(&manager, &key));
        let spawned = tokio::spawn(async move {
            let inside = guard.scope(async {
                tokio::task::yield_now().await;
                again.run(async { Locked::Ok(7) }).await
            });
            let value = inside.await?;
            // Only the work of the scope is inside.
            assert!(again.acquire().await.expect_err("outside").is_busy());
            Locked::Ok(value)
        });
        spawned.await.expect("no panic")
    };
    assert_eq!(lock(&manager, &key).run(outer).await, Ok(7));
    assert!(backend.is_free(&key).await);
}

#[on(memory, redis, postgres, both_runtimes)]
async fn an_inner_panic_leaves_the_outer_lock_held_and_then_released(backend: &Backend) {
    let (manager, key) = (backend.manager().await, backend.key("order:42"));
    let panics = |after: usize| {
        let key = &key;
        lock(&manager, key).run(async move {
            for _ in 0..after {
                tokio::task::yield_now().await;
            }
            assert!(key.is_empty(), "as planned");
            Locked::Ok(())
        })
    };
    let outer = async {
        for after in 0..2 {
            AssertUnwindSafe(panics(after)).catch_unwind().await.expect_err("it panics");
            assert!(!backend.is_free(&key).await);
            assert!(lock(&manager, &key).acquire().await?.is_joined(), "still inside");
        }
        Locked::Ok(7)
    };
    assert_eq!(lock(&manager, &key).run(outer).await, Ok(7));
    assert!(backend.is_free(&key).await);
    assert!(LockGuard::current().is_none(), "the panic left no trace in this thread");

    let outer = lock(&manager, &key).run(panics(1));
    AssertUnwindSafe(outer).catch_unwind().await.expect_err("it panics");
    backend.becomes_free(&key, SOON).await;
}

#[on(memory, redis, postgres, both_runtimes)]
async fn another_key_and_another_manager_are_other_locks(backend: &Backend) {
    let (manager, other) = (backend.manager().await, backend.manager().await);
    let (key, second) = (backend.key("order:42"), backend.key("order:43"));
    let outer = async {
        let error = lock(&other, &key).acquire().await.expect_err("held");
        assert!(error.is_busy(), "{error}");
        let inner = lock(&manager, &second).acquire().await?;
        assert!(!inner.is_joined());
        assert!(!backend.is_free(&second).await);
        inner.release().await?;
        assert!(backend.is_free(&second).await);
        // A clone is the same manager.
        assert!(lock(&manager.clone(), &key).acquire().await?.is_joined());
        let innermost = async {
            assert!(lock(&manager, &key).acquire().await?.is_joined());
            assert!(lock(&manager, &second).acquire().await?.is_joined());
            Locked::Ok(())
        };
        lock(&manager, &second).run(innermost).await
    };
    lock(&manager, &key).run(outer).await.expect("held");
    assert!(backend.is_free(&key).await && backend.is_free(&second).await);
}

#[on(memory, redis, postgres, both_runtimes)]
async fn a_body_that_is_over_is_not_entered_again(backend: &Backend) {
    let (manager, key) = (backend.manager().await, backend.key("order:42"));
    let outer = async { Locked::Ok(LockGuard::current().expect("held")) };
    let kept = lock(&manager, &key).run(outer).await.expect("free");
    assert!(!kept.is_held(), "it was released");
    assert_eq!(kept.lost().await.cause(), LossCause::Released);
    let result = kept
        .scope(async {
            let guard = lock(&manager, &key).acquire().await?;
            assert!(!guard.is_joined(), "a lock of its own");
            guard.release().await
        })
        .await;
    assert_eq!(result, Ok(()));
    assert!(backend.is_free(&key).await);
}

#[on(memory, redis, postgres, both_runtimes)]
async fn current_is_the_innermost_lock_and_each_is_found_by_its_key(backend: &Backend) {
    fn here() -> Option<String> {
        LockGuard::current().map(|guard| guard.key().to_string())
    }
    let manager = backend.manager().await;
    let (one, two) = (backend.key("one"), backend.key("two"));
    let found = || [&one, &two].map(|key| manager.guard_of(key).is_some());
    let nothing = (None, [false, false]);
    assert_eq!((here(), found()), nothing);
    let outer = async {
        assert_eq!((here().as_ref(), found()), (Some(&one), [true, false]));
        let inner = async {
            tokio::task::yield_now().await;
            Locked::Ok((here(), found()))
        };
        let within = lock(&manager, &two).run(inner).await?;
        assert_eq!(within, (Some(two.clone()), [true, true]));
        assert_eq!((here().as_ref(), found()), (Some(&one), [true, false]));
        Locked::Ok(())
    };
    let (_, beside) = tokio::join!(lock(&manager, &one).run(outer), async {
        tokio::task::yield_now().await;
        (here(), found())
    });
    assert_eq!(beside, nothing, "only the body is inside");
    assert_eq!((here(), found()), nothing);

    let lost = Lock::new(&one).ttl(ms(500)).on_lost(OnLost::Finish).manager(&manager);
    let body = async {
        until_lost().await;
        assert_eq!(found(), [false, false]);
        Locked::Ok(())
    };
    lost.run(body).await.expect("its value stands");
}

#[tokio::test]
async fn a_key_that_two_managers_hold_is_found_at_each_of_them() {
    const KEY: &str = "order:42";
    let [one, other, third] = [(); 3].map(|()| LockManager::isolated_memory());
    let remaining = |manager: &LockManager| manager.guard_of(KEY).map(|guard| guard.remaining());
    let inner = async {
        assert!(remaining(&one).is_some_and(|remaining| remaining > LONG_TTL / 2));
        assert!(remaining(&other).is_some_and(|remaining| remaining <= ms(500)));
        assert_eq!(remaining(&third), None, "it holds nothing");
        until_lost().await;
        assert_eq!(remaining(&other), None, "it is lost");
        assert!(remaining(&one).is_some(), "the outer one is not");
        Locked::Ok(())
    };
    let outer = async {
        assert_eq!((remaining(&one).is_some(), remaining(&other)), (true, None));
        let lock = Lock::new(KEY).ttl(ms(500)).on_lost(OnLost::Finish).manager(&other);
        lock.run(inner).await?;
        assert_eq!((remaining(&one).is_some(), remaining(&other)), (true, None));
        Locked::Ok(())
    };
    lock(&one, KEY).run(outer).await.expect("held");
}

#[on(memory, redis, postgres, both_runtimes)]
async fn a_guard_that_runs_no_body_is_not_entered(backend: &Backend) {
    let (manager, key) = (backend.manager().await, backend.key("order:42"));
    let guard = lock(&manager, &key).acquire().await.expect("free");
    assert!(LockGuard::current().is_none());
    let error = lock(&manager, &key).acquire().await.expect_err("held");
    assert!(error.is_busy(), "{error}");
    let again = guard.scope(async { lock(&manager, &key).run(async { Locked::Ok(7) }).await });
    assert_eq!(again.await, Ok(7));
    guard.release().await.expect("released");
}

#[on(memory, redis, postgres)]
async fn an_outer_loss_reaches_the_inner_body(backend: &Backend) {
    let (manager, key) = (backend.manager().await, backend.key("order:42"));
    // The outer body goes on, so that it can see what becomes of the inner one.
    let outer = Lock::new(&*key).ttl(ms(800)).on_lost(OnLost::Finish);
    let result = outer.manager(&manager).run(async {
        let inner = lock(&manager, &key).run(std::future::pending::<Locked<()>>());
        assert_eq!(cause(inner.await), LossCause::Expired);
        let mut ran = false;
        let again: Locked<()> = lock(&manager, &key)
            .run(async {
                ran = true;
                Ok(())
            })
            .await;
        assert_eq!(cause(again), LossCause::Expired);
        assert!(!ran, "nothing new begins under a lost lock");
        let blocking = lock(&manager, &key).run_blocking(|| Locked::Ok(()));
        assert_eq!(cause(blocking), LossCause::Expired);
        let guard = LockGuard::current().expect("still inside");
        assert_eq!(cause(guard.check()), LossCause::Expired);
        let scoped =
            guard.scope(async { lock(&manager, &key).run(async { Locked::Ok(()) }).await });
        assert_eq!(cause(scoped.await), LossCause::Expired, "a scope does not keep a lost lock");
        Locked::Ok(7)
    });
    assert_eq!(result.await, Ok(7));
}

#[tokio::test]
async fn entering_again_is_no_traffic() {
    let (server, manager) = served().await;
    let mut admin = server.admin();
    let outer = async {
        admin.forget_calls();
        recurse(&manager, "order:42", 5).await?;
        lock(&manager, "order:42").skip_when_busy().run(async { Some(()) }).await;
        lock(&manager, "order:42").acquire().await?.release().await?;
        drop(lock(&manager, "order:42").acquire().await?);
        // Nothing comes of the drop, for as long as a release in the background would take.
        outlast(ms(20)).await;
        Locked::Ok(admin.calls())
    };
    let guard = lock(&manager, "order:42").fenced().acquire().await.expect("free");
    assert_eq!(guard.run(outer).await, Ok(Vec::new()));
}

#[tokio::test]
async fn a_lock_that_is_taken_away_stops_the_inner_body_too() {
    let (server, manager) = served().await;
    let outer = renewed(&manager, "order:42", ms(4_000)).on_lost(OnLost::Error).run(async {
        server.admin().ask::<()>(&["DEL", "order:42"]);
        let inner = lock(&manager, "order:42").run(std::future::pending::<Locked<()>>());
        assert_eq!(cause(inner.await), LossCause::Taken);
        Locked::Ok(7)
    });
    assert_eq!(cause(in_time(outer).await), LossCause::Taken);
}
