//! The end of a manager: no new locks, and the held ones end first.

use std::time::Instant;

use lockmacro_runtime::LockError;
use lockmacro_tests::{Backend, on, on_a_plain_thread};

use crate::{LONG_TTL, Locked, TEST_TIMEOUT, lock, ms};

#[on(memory, redis, redlock, postgres, both_runtimes)]
async fn a_manager_that_is_shut_down_grants_no_lock(backend: &Backend) {
    let (manager, key) = (backend.manager().await, backend.key("order:42"));
    lock(&manager, &key).run(async { Locked::Ok(()) }).await.expect("not yet shut down");
    manager.shutdown(TEST_TIMEOUT).await.expect("nothing is held");
    let mut ran = false;
    let result: Locked<()> = lock(&manager, &key)
        .run(async {
            ran = true;
            Ok(())
        })
        .await;
    assert_eq!(result, Err(LockError::ShutDown { held: 0 }));
    assert!(!ran);
    let clone = manager.clone();
    assert_eq!(lock(&clone, &key).acquire().await.map(drop), Err(LockError::ShutDown { held: 0 }));
    let blocking = on_a_plain_thread(move || lock(&clone, &key).run_blocking(|| Locked::Ok(())));
    assert_eq!(blocking.await, Err(LockError::ShutDown { held: 0 }));
}

#[on(memory, redis, redlock, postgres, both_runtimes)]
async fn a_manager_without_locks_shuts_down_at_once_and_may_do_so_twice(backend: &Backend) {
    let (manager, start) = (backend.manager().await, Instant::now());
    for _ in 0..2 {
        manager.shutdown(LONG_TTL).await.expect("nothing is held");
    }
    assert!(start.elapsed() < TEST_TIMEOUT);
}

#[on(memory, redis, redlock, postgres, both_runtimes)]
async fn a_shutdown_waits_for_held_locks(backend: &Backend) {
    let (manager, key) = (backend.manager().await, backend.key("order:42"));
    let (started, in_body) = tokio::sync::oneshot::channel();
    let (end, may_end) = tokio::sync::oneshot::channel();
    let held = lock(&manager, &key);
    let body = tokio::spawn(held.run(async move {
        started.send(()).expect("the test goes on");
        Locked::Ok(may_end.await.is_ok())
    }));
    in_body.await.expect("the body starts");
    let closing = manager.clone();
    let mut shutdown = tokio::spawn(async move { closing.shutdown(LONG_TTL).await });
    tokio::time::timeout(ms(60), &mut shutdown).await.expect_err("it waits for the body");
    assert_eq!(
        lock(&manager, "other").acquire().await.map(drop),
        Err(LockError::ShutDown { held: 0 })
    );
    end.send(()).expect("the body waits");
    assert_eq!(body.await.expect("no panic"), Ok(true));
    shutdown.await.expect("no panic").expect("drained");
    assert!(backend.is_free(&key).await);
}

#[on(memory, redis, redlock, postgres, both_runtimes)]
async fn a_shutdown_with_locks_held_too_long_says_how_many(backend: &Backend) {
    let manager = backend.manager().await;
    let (one, two) = (backend.key("order:1"), backend.key("order:2"));
    let first = lock(&manager, &one).acquire().await.expect("free");
    let second = lock(&manager, &two).acquire().await.expect("free");
    let start = Instant::now();
    let error = manager.shutdown(ms(50)).await.expect_err("two locks are held");
    let LockError::ShutDown { held } = error else { panic!("{error:?}") };
    assert_eq!(held, 2);
    assert!(start.elapsed() >= ms(50) && start.elapsed() < TEST_TIMEOUT);
    // They are still locks, and still end properly.
    assert!(first.is_held());
    first.release().await.expect("released after the shutdown");
    assert!(backend.is_free(&one).await);
    drop(second);
    backend.becomes_free(&two, TEST_TIMEOUT).await;
}

#[on(memory, redis, redlock, postgres, both_runtimes)]
async fn a_shutdown_waits_for_the_releases_of_dropped_guards(backend: &Backend) {
    let manager = backend.manager().await;
    let keys: Vec<String> = (0..20).map(|n| backend.key(&format!("order:{n}"))).collect();
    for key in &keys {
        drop(lock(&manager, key).acquire().await.expect("free"));
    }
    manager.shutdown(LONG_TTL).await.expect("drained");
    for key in &keys {
        assert!(backend.is_free(key).await, "{key}");
    }
}

#[on(memory, redis, redlock, postgres, both_runtimes)]
async fn a_shutdown_leaves_other_managers_alone(backend: &Backend) {
    let (closed, other, key) = backend.two_managers("order:42").await;
    let guard = lock(&other, &key).acquire().await.expect("free");
    closed.shutdown(TEST_TIMEOUT).await.expect("nothing of its own is held");
    assert!(guard.is_held());
    assert!(!backend.is_free(&key).await);
    guard.release().await.expect("released");
    lock(&other, &key).run(async { Locked::Ok(()) }).await.expect("not shut down");
}
