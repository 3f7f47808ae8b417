//! Entering a lock again across threads, runtimes and sync code: which code is inside, and which
//! only shares the thread.

use std::panic::AssertUnwindSafe;
use std::task::{Context, Poll, Waker};

use lockmacro_runtime::{LockGuard, LockManager};
use lockmacro_tests::{Backend, is_no_runtime, on, on_a_plain_thread};

use crate::{Locked, lock, served};

#[on(memory, redis, postgres, both_runtimes)]
async fn nested_sync_bodies_are_one_lock(backend: &Backend) {
    let (manager, key) = (backend.manager().await, backend.key("order:42"));
    let name = key.clone();
    let value = on_a_plain_thread(move || {
        let inner = || lock(&manager, &name).run_blocking(|| Locked::Ok(7));
        let value = lock(&manager, &name).run_blocking(|| {
            let value = inner()?;
            assert!(
                std::panic::catch_unwind(AssertUnwindSafe(|| {
                    lock(&manager, &name).run_blocking(|| -> Locked<()> { panic!("as planned") })
                }))
                .is_err()
            );
            assert_eq!(inner()?, 7, "still inside");
            // Another thread is outside.
            let (manager, name) = (manager.clone(), name.clone());
            let outside = std::thread::spawn(move || lock(&manager, &name).acquire_blocking());
            let error = outside.join().expect("no panic").expect_err("held");
            assert!(error.is_busy(), "{error}");
            Locked::Ok(value)
        });
        assert!(LockGuard::current().is_none());
        value
    });
    assert_eq!(value.await, Ok(7));
    assert!(backend.is_free(&key).await);
}

#[tokio::test]
async fn a_task_that_moves_between_threads_stays_inside() {
    let manager = LockManager::isolated_memory();
    let mut task = Box::pin(async move {
        let outer = async {
            let mut threads = std::collections::HashSet::new();
            for _ in 0..50 {
                threads.insert(std::thread::current().id());
                tokio::task::yield_now().await;
                let inner = lock(&manager, "order:42").run(async {
                    tokio::task::yield_now().await;
                    Locked::Ok(())
                });
                inner.await?;
            }
            Locked::Ok(threads.len())
        };
        lock(&manager, "order:42").run(outer).await
    });
    // Each poll on a thread of its own, as no scheduler does it and any may.
    let runtime = tokio::runtime::Handle::current();
    let threads = loop {
        let poll = || {
            let _inside = runtime.enter();
            assert!(LockGuard::current().is_none());
            task.as_mut().poll(&mut Context::from_waker(Waker::noop()))
        };
        let polled = std::thread::scope(|scope| scope.spawn(poll).join());
        if let Poll::Ready(threads) = polled.expect("no panic") {
            break threads.expect("always inside");
        }
    };
    assert!(threads > 10, "it was on {threads} threads");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sync_function_inside_an_async_one_is_inside() {
    let (_server, manager) = served().await;
    let outer = async {
        let value = lock(&manager, "order:42").run_blocking(|| Locked::Ok(7))?;
        let moved = lock(&manager, "order:42");
        let outside = tokio::task::spawn_blocking(move || moved.run_blocking(|| Locked::Ok(7)));
        let error = outside.await.expect("no panic").expect_err("outside");
        assert!(error.is_busy(), "{error}");
        Locked::Ok(value)
    };
    assert_eq!(lock(&manager, "order:42").run(outer).await, Ok(7));
}

#[tokio::test]
async fn a_sync_function_inside_an_async_one_needs_no_second_thread() {
    let manager = LockManager::isolated_memory();
    // Nothing is asked for, so there is nothing to block on.
    let outer = async { lock(&manager, "order:42").run_blocking(|| Locked::Ok(7)) };
    assert_eq!(lock(&manager, "order:42").run(outer).await, Ok(7));
    let apart = lock(&manager, "order:42").run_blocking(|| Locked::Ok(7));
    assert!(is_no_runtime(&apart, "spawn_blocking"), "{apart:?}");
}

#[tokio::test]
async fn an_async_function_inside_a_sync_one_is_inside() {
    let value = on_a_plain_thread(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("a runtime");
        let manager = LockManager::isolated_memory();
        lock(&manager, "order:42").run_blocking(|| {
            runtime
                .block_on(async { lock(&manager, "order:42").run(async { Locked::Ok(7) }).await })
        })
    });
    assert_eq!(value.await, Ok(7));
}

/// A task that a current-thread runtime polls while a body blocks on it shares the thread of the
/// body, and is outside of the lock all the same.
#[on(memory, redis, postgres, both_runtimes)]
async fn a_task_within_a_body_that_blocks_is_outside(backend: &Backend) {
    let (manager, key) = (backend.manager().await, backend.key("order:42"));
    let joined = on_a_plain_thread(move || {
        lock(&manager, &key).run_blocking(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = runtime.expect("a runtime");
            Locked::Ok(runtime.block_on(async {
                let inside = lock(&manager, &key).acquire().await.is_ok_and(|g| g.is_joined());
                let asked = lock(&manager, &key);
                let task = tokio::spawn(async move { asked.acquire().await.map(drop) });
                (inside, task.await.expect("no panic"))
            }))
        })
    })
    .await;
    let (inside, task) = joined.expect("free");
    assert!(inside, "the future that the body blocks on is the body");
    assert!(task.is_err_and(|error| error.is_busy()), "a spawned task joined the lock");
}
