//! However a body ends, its lock is free afterwards, and only its own lock.

use std::panic::AssertUnwindSafe;

use futures::FutureExt;
use lockmacro_runtime::Lock;
use lockmacro_tests::{Backend, on};

use crate::{Failure, Locked, TEST_TIMEOUT, lock, ms};

#[on(memory, redis, cluster, redlock, postgres, both_runtimes)]
async fn a_body_that_returns_frees_the_lock_and_gives_its_result(backend: &Backend) {
    let (manager, key) = (backend.manager().await, backend.key("order:42"));
    for is_ok in [true, false] {
        let result = || if is_ok { Ok(7) } else { Err(Failure::Own) };
        let body = async || {
            assert!(!backend.is_free(&key).await, "{:?}", result());
            result()
        };
        assert_eq!(lock(&manager, &key).run(body()).await, result());
        assert!(backend.is_free(&key).await, "{:?}", result());
        let guard = lock(&manager, &key).acquire().await.expect("free");
        assert_eq!(guard.run(body()).await, result());
        assert!(backend.is_free(&key).await, "{:?} under a guard", result());
    }
}

#[on(memory, redis, cluster, redlock, postgres, both_runtimes)]
async fn a_body_that_panics_frees_the_lock(backend: &Backend) {
    let (manager, key) = (backend.manager().await, backend.key("order:42"));
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

#[on(memory, redis, cluster, redlock, postgres, both_runtimes)]
async fn a_guard_outlives_the_last_handle_of_its_manager(backend: &Backend) {
    let (key, manager) = (backend.key("order:42"), backend.manager().await);
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

#[on(memory, redis, cluster, redlock, postgres, both_runtimes)]
async fn a_late_end_of_a_guard_frees_nobody_elses_lock(backend: &Backend) {
    let (late, next, key) = backend.two_managers("order:42").await;
    let marker = backend.key("marker");
    for drops in [false, true] {
        let guard = Lock::new(&*key).ttl(ms(60)).manager(&late).acquire().await.expect("free");
        backend.becomes_free(&key, TEST_TIMEOUT).await;
        let theirs = lock(&next, &key).acquire().await.expect("free");
        // The marker is dropped after the guard: when it is free, the guard's release is over too.
        let marked = lock(&late, &marker).acquire().await.expect("free");
        match drops {
            true => drop(guard),
            // The result does not matter here: the lock is gone.
            false => drop(guard.release().await),
        }
        drop(marked);
        backend.becomes_free(&marker, TEST_TIMEOUT).await;
        assert!(!backend.is_free(&key).await, "dropped: {drops}");
        theirs.release().await.expect("still theirs");
    }
}

#[on(memory, redis, cluster, redlock, postgres, both_runtimes)]
async fn a_bodys_error_survives_the_loss_of_its_lock(backend: &Backend) {
    let (manager, key) = (backend.manager().await, backend.key("order:42"));
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
