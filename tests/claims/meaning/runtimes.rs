//! Runtimes that end, follow one another, and share a manager.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use lockmacro_runtime::LockManager;
use lockmacro_tests::{Backend, on, on_a_plain_thread};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;

use crate::{Locked, TEST_TIMEOUT, granted, lock, ms};

fn current_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

fn multi_thread() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}

#[on(memory, redis, redlock, postgres, both_runtimes)]
async fn a_runtime_that_ends_in_mid_body_leaves_no_lock(backend: &Backend) {
    let (manager, key) = (backend.manager().await, backend.key("order:42"));
    for runtime in [current_thread, multi_thread] {
        for end in [drop::<Runtime>, Runtime::shutdown_background] {
            let lock = lock(&manager, &key);
            on_a_plain_thread(move || {
                let (runtime, (started, in_body)) = (runtime(), oneshot::channel());
                runtime.spawn(lock.run(async move {
                    started.send(()).expect("the test goes on");
                    std::future::pending::<Locked<()>>().await
                }));
                runtime.block_on(in_body).expect("the body starts");
                end(runtime);
            })
            .await;
            backend.becomes_free(&key, TEST_TIMEOUT).await;
        }
    }
}

#[on(memory, redis, redlock, postgres, both_runtimes)]
async fn a_runtime_that_ends_holding_a_guard_leaves_no_lock(backend: &Backend) {
    let (manager, key) = (backend.manager().await, backend.key("order:42"));
    let name = key.clone();
    on_a_plain_thread(move || {
        // The guard is dropped as the last thing inside, right before the runtime.
        current_thread().block_on(async move {
            let guard = lock(&manager, &name).acquire().await;
            assert!(guard.expect("free").is_held());
        });
    })
    .await;
    backend.becomes_free(&key, TEST_TIMEOUT).await;
}

#[on(memory, redis, redlock, postgres, both_runtimes)]
async fn a_guard_outlives_the_runtime_it_was_acquired_in(backend: &Backend) {
    let (manager, key) = (backend.manager().await, backend.key("order:42"));
    let name = key.clone();
    let guard =
        on_a_plain_thread(move || current_thread().block_on(lock(&manager, &name).acquire()));
    let guard = guard.await.expect("free");
    assert!(guard.is_held());
    assert!(!backend.is_free(&key).await);
    guard.release().await.expect("released in another runtime");
    assert!(backend.is_free(&key).await);
}

#[on(memory, redis, redlock, postgres, both_runtimes)]
async fn one_manager_serves_runtimes_one_after_another(backend: &Backend) {
    let address = backend.url().to_owned();
    let key = backend.key("order:42");
    let name = key.clone();
    on_a_plain_thread(move || {
        // Connected in a runtime that is gone when the manager is used.
        let manager = current_thread().block_on(LockManager::connect(&address)).expect("there");
        for n in 0..5 {
            let runtime = if n % 2 == 0 { current_thread() } else { multi_thread() };
            for _ in 0..2 {
                let result = runtime.block_on(lock(&manager, &name).run(async { Locked::Ok(n) }));
                assert_eq!(result, Ok(n));
            }
        }
    })
    .await;
    assert!(backend.is_free(&key).await);
}

#[on(memory, redis, redlock, postgres, both_runtimes)]
async fn one_manager_serves_runtimes_at_the_same_time(backend: &Backend) {
    let (manager, key) = (backend.manager().await, backend.key("order:42"));
    let inside = Arc::new(AtomicU32::new(0));
    let threads: Vec<_> = (0..3)
        .map(|_| {
            let (manager, key, inside) = (manager.clone(), key.clone(), Arc::clone(&inside));
            on_a_plain_thread(move || current_thread().block_on(count(&manager, &key, &inside)))
        })
        .collect();
    futures::future::join_all(threads).await;
    assert!(backend.is_free(&key).await);
}

/// Runs ten bodies, asking again while the lock is busy.
async fn count(manager: &LockManager, key: &str, inside: &AtomicU32) {
    for _ in 0..10 {
        let body = async {
            assert_eq!(inside.fetch_add(1, SeqCst), 0, "two bodies at once");
            tokio::time::sleep(Duration::from_micros(200)).await;
            inside.fetch_sub(1, SeqCst);
            Locked::Ok(())
        };
        granted(lock(manager, key)).await.run(body).await.expect("still held");
        // For the others.
        tokio::time::sleep(ms(2)).await;
    }
}

/// A lock of another runtime, whose connections belong to a runtime that is blocked by then.
#[on(redis, postgres)]
async fn a_release_is_answered_although_the_runtime_that_connected_is_blocked(backend: &Backend) {
    let key = backend.key("order:42");
    let name = key.clone();
    let url = backend.url().to_owned();
    let (unblock, blocked) = std::sync::mpsc::channel::<()>();
    let (given, taken) = oneshot::channel();
    let blocking = on_a_plain_thread(move || {
        current_thread().block_on(async move {
            let manager = LockManager::connect(&url).await.expect("there");
            let guard = lock(&manager, &name).acquire().await.expect("free");
            given.send((manager, guard)).expect("the test goes on");
            let _ = blocked.recv();
        });
    });
    let blocking = tokio::spawn(blocking);
    let (manager, guard) = taken.await.expect("held");
    guard.release().await.expect("over a connection of this runtime");
    let guard = lock(&manager, &key).acquire().await.expect("free");
    guard.release().await.expect("released");
    drop(unblock);
    blocking.await.expect("no panic");
    backend.keeps_nothing().await;
}
