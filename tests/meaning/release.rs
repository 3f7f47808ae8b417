//! However a body ends, its lock is free afterwards, and only its own lock.

use std::panic::AssertUnwindSafe;

use futures::FutureExt;
use lockmacro_runtime::Lock;
use lockmacro_tests::{Backend, eventually, on};

use crate::{Failure, Locked, TEST_TIMEOUT, lock, ms};

#[on(memory, redis, cluster, redlock, both_runtimes)]
async fn a_body_that_returns_ok_frees_the_lock_and_gives_its_value(backend: &Backend) {
    let manager = backend.manager().await;
    let key = backend.key("order:42");
    let result: Locked<u32> = lock(&manager, &key)
        .run(async {
            assert!(!backend.is_free(&key).await);
            Ok(7)
        })
        .await;
    assert_eq!(result, Ok(7));
    assert!(backend.is_free(&key).await);
}

#[on(memory, redis, cluster, redlock, both_runtimes)]
async fn a_body_that_returns_an_error_frees_the_lock_and_gives_its_error(backend: &Backend) {
    let manager = backend.manager().await;
    let key = backend.key("order:42");
    let result: Result<u32, Failure> = lock(&manager, &key).run(async { Err(Failure::Own) }).await;
    assert_eq!(result, Err(Failure::Own));
    assert!(backend.is_free(&key).await);
}

#[on(memory, redis, cluster, redlock, both_runtimes)]
async fn a_body_that_returns_early_frees_the_lock(backend: &Backend) {
    let manager = backend.manager().await;
    let key = backend.key("order:42");
    let early = |leave: bool| {
        lock(&manager, &key).run(async move {
            if leave {
                return Ok("early");
            }
            Err(Failure::Own)?;
            Ok("late")
        })
    };
    assert_eq!(early(true).await, Ok("early"));
    assert!(backend.is_free(&key).await);
    assert_eq!(early(false).await, Err(Failure::Own));
    assert!(backend.is_free(&key).await);
}

#[on(memory, redis, cluster, redlock, both_runtimes)]
async fn a_body_that_panics_frees_the_lock(backend: &Backend) {
    let manager = backend.manager().await;
    let key = backend.key("order:42");
    let body = lock(&manager, &key).run(async {
        tokio::task::yield_now().await;
        if !key.is_empty() {
            panic!("as planned");
        }
        Locked::Ok(())
    });
    AssertUnwindSafe(body).catch_unwind().await.expect_err("the panic reaches the caller");
    backend.becomes_free(&key, TEST_TIMEOUT).await;
}

#[on(memory, redis, cluster, redlock, both_runtimes)]
async fn a_released_guard_frees_the_lock(backend: &Backend) {
    let manager = backend.manager().await;
    let key = backend.key("order:42");
    let guard = lock(&manager, &key).acquire().await.expect("free");
    assert!(!backend.is_free(&key).await);
    guard.release().await.expect("released");
    assert!(backend.is_free(&key).await);
}

#[on(memory, redis, cluster, redlock, both_runtimes)]
async fn a_dropped_guard_frees_the_lock(backend: &Backend) {
    let manager = backend.manager().await;
    let key = backend.key("order:42");
    let guard = lock(&manager, &key).acquire().await.expect("free");
    assert!(!backend.is_free(&key).await);
    drop(guard);
    backend.becomes_free(&key, TEST_TIMEOUT).await;
}

#[on(memory, redis, cluster, redlock, both_runtimes)]
async fn a_guards_body_frees_the_lock(backend: &Backend) {
    let manager = backend.manager().await;
    let key = backend.key("order:42");
    let guard = lock(&manager, &key).acquire().await.expect("free");
    let result: Result<u32, Failure> = guard.run(async { Err(Failure::Own) }).await;
    assert_eq!(result, Err(Failure::Own));
    assert!(backend.is_free(&key).await);
}

#[on(memory, redis, cluster, redlock, both_runtimes)]
async fn a_guard_outlives_the_last_handle_of_its_manager(backend: &Backend) {
    let key = backend.key("order:42");
    let manager = backend.manager().await;
    let guard = lock(&manager, &key).acquire().await.expect("free");
    drop(manager);
    assert!(!backend.is_free(&key).await);
    guard.release().await.expect("released");
    let manager = backend.manager().await;
    let guard = lock(&manager, &key).acquire().await.expect("free");
    drop(manager);
    drop(guard);
    backend.becomes_free(&key, TEST_TIMEOUT).await;
}

#[on(memory, redis, cluster, redlock, both_runtimes)]
async fn a_late_release_frees_nobody_elses_lock(backend: &Backend) {
    let (late, next) = (backend.manager().await, backend.manager().await);
    let key = backend.key("order:42");
    let guard = Lock::new(&*key).ttl(ms(60)).manager(&late).acquire().await.expect("free");
    backend.becomes_free(&key, TEST_TIMEOUT).await;
    let theirs = lock(&next, &key).acquire().await.expect("free");
    // The result does not matter here: the lock is gone.
    let _ = guard.release().await;
    assert!(!backend.is_free(&key).await);
    theirs.release().await.expect("still theirs");
}

#[on(memory, redis, cluster, redlock, both_runtimes)]
async fn a_late_drop_frees_nobody_elses_lock(backend: &Backend) {
    let (late, next) = (backend.manager().await, backend.manager().await);
    let (key, marker) = (backend.key("order:42"), backend.key("marker"));
    let guard = Lock::new(&*key).ttl(ms(60)).manager(&late).acquire().await.expect("free");
    backend.becomes_free(&key, TEST_TIMEOUT).await;
    let theirs = lock(&next, &key).acquire().await.expect("free");
    // The marker is dropped after the guard: when it is free, the guard's release is over too.
    let marked = lock(&late, &marker).acquire().await.expect("free");
    drop(guard);
    drop(marked);
    eventually("the drops are carried out", TEST_TIMEOUT, || backend.is_free(&marker)).await;
    assert!(!backend.is_free(&key).await);
    theirs.release().await.expect("still theirs");
}

#[on(memory, redis, cluster, redlock, both_runtimes)]
async fn a_bodys_error_survives_the_loss_of_its_lock(backend: &Backend) {
    let manager = backend.manager().await;
    let key = backend.key("order:42");
    let short = || Lock::new(&*key).ttl(ms(60)).manager(&manager);
    let result: Result<(), Failure> = short()
        .run(async {
            // One poll that outlasts the lease: there is no await at which to stop it.
            std::thread::sleep(ms(90));
            Err(Failure::Own)
        })
        .await;
    assert_eq!(result, Err(Failure::Own));
    backend.becomes_free(&key, TEST_TIMEOUT).await;
}
