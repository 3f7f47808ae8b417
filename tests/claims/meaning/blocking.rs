//! Locks of sync functions, from every place a sync function is called from.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use lockmacro_runtime::{Lock, LockError, LossCause, Lost};
use lockmacro_tests::{Backend, is_no_runtime, on, on_a_plain_thread};
use tokio::runtime::Builder;

use crate::{Failure, Locked, TEST_TIMEOUT, lock, ms};

#[on(memory, redis, redlock, postgres, both_runtimes)]
async fn a_plain_thread_locks_and_releases(backend: &Backend) {
    let (manager, key) = (backend.manager().await, backend.key("order:42"));
    let name = key.clone();
    let values = on_a_plain_thread(move || {
        let own: Result<u32, Failure> = lock(&manager, &name).run_blocking(|| Err(Failure::Own));
        (lock(&manager, &name).run_blocking(|| Locked::Ok(7)), own)
    });
    assert_eq!(values.await, (Ok(7), Err(Failure::Own)));
    assert!(backend.is_free(&key).await);
}

#[on(memory, redis, redlock, postgres, both_runtimes)]
async fn a_plain_thread_is_refused_a_held_lock_or_skips_its_body(backend: &Backend) {
    let (ours, theirs, key) = backend.two_managers("order:42").await;
    let guard = lock(&ours, &key).acquire().await.expect("free");
    let results = on_a_plain_thread(move || {
        let mut ran = false;
        let refused = lock(&theirs, &key).run_blocking(|| {
            ran = true;
            Locked::Ok(7)
        });
        lock(&theirs, &key).skip_when_busy().run_blocking(|| ran = true);
        (refused, lock(&theirs, &key).skip_when_busy().run_blocking(|| Some(7)), ran)
    });
    let (refused, skipped, ran) = results.await;
    assert!(refused.expect_err("held").is_busy());
    assert_eq!((skipped, ran), (None, false));
    guard.release().await.expect("released");
}

#[on(memory, redis, redlock, postgres, both_runtimes)]
async fn a_blocking_guard_is_released_and_dropped_on_a_plain_thread(backend: &Backend) {
    let manager = backend.manager().await;
    let (released, dropped) = (backend.key("released"), backend.key("dropped"));
    let (one, two) = (released.clone(), dropped.clone());
    let held = on_a_plain_thread(move || {
        let guard = lock(&manager, &one).acquire_blocking().expect("free");
        let held = guard.is_held();
        guard.release_blocking().expect("released");
        drop(lock(&manager, &two).acquire_blocking().expect("free"));
        held
    });
    assert!(held.await);
    assert!(backend.is_free(&released).await);
    backend.becomes_free(&dropped, TEST_TIMEOUT).await;
}

#[on(memory, redis, redlock, postgres, both_runtimes)]
async fn a_blocking_lock_works_inside_a_multi_thread_runtime(backend: &Backend) {
    let (manager, key) = (backend.manager().await, backend.key("order:42"));
    let name = key.clone();
    let values = on_a_plain_thread(move || {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build();
        runtime.expect("a runtime").block_on(async move {
            let here = lock(&manager, &name).run_blocking(|| Locked::Ok(1));
            let (in_task, in_pool) = (manager.clone(), manager.clone());
            let (key, also) = (name.clone(), name.clone());
            let task =
                tokio::spawn(async move { lock(&in_task, &key).run_blocking(|| Locked::Ok(2)) });
            let task = task.await.expect("no panic");
            let pool = tokio::task::spawn_blocking(move || {
                lock(&in_pool, &also).run_blocking(|| Locked::Ok(3))
            });
            (here, task, pool.await.expect("no panic"))
        })
    });
    assert_eq!(values.await, (Ok(1), Ok(2), Ok(3)));
    assert!(backend.is_free(&key).await);
}

#[on(memory, redis, redlock, postgres, both_runtimes)]
async fn a_blocking_lock_inside_a_current_thread_runtime_is_refused(backend: &Backend) {
    let (manager, key) = (backend.manager().await, backend.key("order:42"));
    let name = key.clone();
    let results = on_a_plain_thread(move || {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async move {
            let mut ran = false;
            let run = lock(&manager, &name).run_blocking(|| {
                ran = true;
                Locked::Ok(7)
            });
            let acquire = lock(&manager, &name).acquire_blocking().map(drop);
            (ran, run, acquire)
        })
    });
    let (ran, run, acquired) = results.await;
    assert!(!ran && is_no_runtime(&run, "spawn_blocking"));
    assert!(is_no_runtime(&acquired, "spawn_blocking"));
    assert!(backend.is_free(&key).await);
}

/// As `web::block` has it in actix: its workers are such runtimes, each in a local set.
#[on(memory, redis, redlock, postgres, both_runtimes)]
async fn a_blocking_lock_works_on_a_thread_beside_a_current_thread_runtime(backend: &Backend) {
    let (manager, key) = (backend.manager().await, backend.key("order:42"));
    let name = key.clone();
    let values = on_a_plain_thread(move || {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        let worker = tokio::task::LocalSet::new();
        worker.block_on(&runtime, async move {
            // A task of the worker holds it meanwhile, and releases it.
            let held = lock(&manager, &name).acquire().await.expect("free");
            let waiting = lock(&manager, &name).wait(TEST_TIMEOUT);
            let beside =
                tokio::task::spawn_blocking(move || waiting.run_blocking(|| Locked::Ok(1)));
            let here = lock(&manager, &name).run_blocking(|| Locked::Ok(2));
            let holder = tokio::task::spawn_local(async move {
                tokio::time::sleep(ms(20)).await;
                held.release().await
            });
            let beside = beside.await.expect("no panic");
            (beside, here, holder.await.expect("no panic"))
        })
    });
    let (beside, here, held) = values.await;
    assert_eq!((beside, held), (Ok(1), Ok(())));
    assert!(is_no_runtime(&here, "spawn_blocking"), "{here:?}");
    assert!(backend.is_free(&key).await);
}

#[on(memory, redis, redlock, postgres, both_runtimes)]
async fn a_sync_body_that_panics_frees_the_lock(backend: &Backend) {
    let (manager, key) = (backend.manager().await, backend.key("order:42"));
    let name = key.clone();
    let caught = on_a_plain_thread(move || {
        let body = || lock(&manager, &name).run_blocking(|| -> Locked<()> { panic!("as planned") });
        catch_unwind(AssertUnwindSafe(body)).is_err()
    });
    assert!(caught.await, "the panic reaches the caller");
    backend.becomes_free(&key, TEST_TIMEOUT).await;
}

#[on(memory, redis, redlock, postgres, both_runtimes)]
async fn a_sync_bodys_error_survives_the_loss_of_its_lock(backend: &Backend) {
    let (manager, key) = (backend.manager().await, backend.key("order:42"));
    let result: Result<(), Failure> = on_a_plain_thread(move || {
        Lock::new(key).ttl(ms(60)).manager(&manager).run_blocking(|| {
            std::thread::sleep(ms(90));
            Err(Failure::Own)
        })
    })
    .await;
    assert_eq!(result, Err(Failure::Own));
}

#[on(memory, redis, redlock, postgres, both_runtimes)]
async fn a_sync_body_may_lock_another_key(backend: &Backend) {
    let manager = backend.manager().await;
    let (outer, inner) = (backend.key("outer"), backend.key("inner"));
    let result = on_a_plain_thread(move || {
        lock(&manager, &outer)
            .run_blocking(|| lock(&manager, &inner).run_blocking(|| Locked::Ok(7)))
    });
    assert_eq!(result.await, Ok(7));
}

#[on(memory, redis, redlock, postgres, both_runtimes)]
async fn a_guard_may_be_released_on_another_thread(backend: &Backend) {
    let (manager, key) = (backend.manager().await, backend.key("order:42"));
    let guard = lock(&manager, &key).acquire().await.expect("free");
    on_a_plain_thread(move || guard.release_blocking()).await.expect("released");
    assert!(backend.is_free(&key).await);
}

#[on(memory, redis, redlock, postgres, both_runtimes)]
async fn a_lost_guard_stays_lost_runs_no_body_and_recovers_nothing(backend: &Backend) {
    let (manager, key) = (backend.manager().await, backend.key("order:42"));
    let (ran, recovered) = (AtomicBool::new(false), Arc::new(AtomicBool::new(false)));
    let run = || {
        ran.store(true, SeqCst);
        Locked::Ok(())
    };
    for way in 0..7 {
        let lock = Lock::new(&*key).ttl(ms(60)).manager(&manager);
        let guard = lock.acquire().await.expect("free");
        backend.becomes_free(&key, TEST_TIMEOUT).await;
        assert!(!guard.is_held() && guard.remaining().is_zero());
        let recovered = Arc::clone(&recovered);
        let recover = move |_: Lost, value: Locked<()>| {
            recovered.store(true, SeqCst);
            value
        };
        let result = match way {
            0 => guard.run_blocking(run),
            1 => guard.skip_when_busy().run_blocking(run),
            2 => guard.recovering(recover).run_blocking(run),
            3 => guard.recovering(recover).skip_when_busy().run_blocking(run),
            4 => guard.recovering(recover).run(async { run() }).await,
            5 => guard.skip_when_busy().recovering(recover).run(async { run() }).await,
            _ => guard.run(async { run() }).await,
        };
        let Err(LockError::Lost(lost)) = result else { panic!("way {way}: {result:?}") };
        assert_eq!(lost.cause(), LossCause::Expired);
    }
    assert!(!ran.into_inner() && !recovered.load(SeqCst));
}

#[on(memory, redis, redlock, postgres, both_runtimes)]
async fn a_guard_of_a_plain_thread_works_on_an_executor_of_another_kind(backend: &Backend) {
    use futures::executor::block_on;

    let (manager, key) = (backend.manager().await, backend.key("order:42"));
    let name = key.clone();
    let values = on_a_plain_thread(move || {
        let acquire = || lock(&manager, &name).acquire_blocking().expect("free");
        let (answer, asked) = futures::channel::oneshot::channel();
        let answering = std::thread::spawn(move || {
            std::thread::sleep(ms(10));
            answer.send(7)
        });
        let value = block_on(acquire().run(async { Locked::Ok(asked.await.expect("answered")) }));
        answering.join().expect("no panic").expect("asked");
        let own: Result<(), Failure> = block_on(acquire().run(async { Err(Failure::Own) }));
        // Free after each: the next one is granted at once.
        block_on(acquire().release()).expect("released");
        acquire().release_blocking().expect("released");
        (value, own)
    });
    assert_eq!(values.await, (Ok(7), Err(Failure::Own)));
    assert!(backend.is_free(&key).await);
}
