//! Waiters that are not async: threads in the queue.

use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Instant;

use lockmacro_runtime::{Lock, LockError};
use lockmacro_tests::queue::Queue;
use lockmacro_tests::{Backend, on, on_a_plain_thread};
use tokio::runtime::Builder;
use tokio::sync::oneshot;
use tokio::task::LocalSet;

use crate::{Held, LONG_TTL, Locked, PUSHED, lock, ms, served, waiting};

#[on(memory, redis, postgres, both_runtimes)]
async fn waiting_threads_are_served_one_at_a_time(backend: &Backend) {
    let (manager, key) = (backend.manager().await, backend.key("order:42"));
    let guard = lock(&manager, &key).acquire().await.expect("free");
    let served = Arc::new(Mutex::new(Vec::new()));
    let inside = Arc::new(Mutex::new(()));
    let mut threads = Vec::new();
    for nth in 0..12 {
        let lock = waiting(&manager, &key);
        let (served, inside) = (Arc::clone(&served), Arc::clone(&inside));
        threads.push(thread::spawn(move || {
            lock.run_blocking(|| {
                let _alone = inside.try_lock().expect("two bodies at once");
                served.lock().unwrap().push(nth);
                thread::sleep(ms(2));
                Locked::Ok(())
            })
        }));
    }
    // Most of them, so that the lock is handed from thread to thread.
    Queue::stands_in_line().await;
    guard.release().await.expect("still held");
    let ended =
        on_a_plain_thread(|| threads.into_iter().map(|thread| thread.join().unwrap()).collect());
    let ended: Vec<Locked<()>> = ended.await;
    assert!(ended.iter().all(Result::is_ok), "{ended:?}");
    let mut served = Arc::into_inner(served).unwrap().into_inner().unwrap();
    served.sort_unstable();
    assert_eq!(served, (0..12).collect::<Vec<_>>());
}

#[on(memory, redis, postgres, both_runtimes)]
async fn a_thread_gets_the_lock_from_an_async_holder_and_hands_it_off_to_an_async_waiter(
    backend: &Backend,
) {
    let Held { ours, theirs, key, mut queue, guard } = Held::on(backend).await;
    let blocking = waiting(&theirs, &key);
    let mut thread = tokio::spawn(on_a_plain_thread(move || {
        blocking.run_blocking(|| Locked::Ok(Instant::now()))
    }));
    tokio::time::timeout(ms(50), &mut thread).await.expect_err("it has to wait");
    queue.reaches(1).await;
    let next = queue.join(waiting(&ours, &key).acquire()).await;
    let freed = Instant::now();
    guard.release().await.expect("still held");
    assert!(thread.await.expect("no panic").expect("served") >= freed);
    served(PUSHED, next).await;
}

#[on(memory, redis, postgres, both_runtimes)]
async fn a_thread_whose_wait_runs_out_gets_timed_out(backend: &Backend) {
    let Held { theirs, key, mut queue, guard, .. } = Held::on(backend).await;
    let blocking = lock(&theirs, &key).wait(ms(80));
    let start = Instant::now();
    let result = on_a_plain_thread(move || blocking.run_blocking(|| Locked::Ok(()))).await;
    assert!(matches!(result, Err(LockError::TimedOut { rank: 0, .. })), "{result:?}");
    assert!(start.elapsed() >= ms(80) && start.elapsed() < ms(80) + PUSHED);
    queue.reaches(0).await;
    guard.release().await.expect("still held");
}

#[on(memory, redis, postgres, both_runtimes)]
async fn a_thread_succeeds_a_dead_holder(backend: &Backend) {
    let (ours, theirs, key) = backend.two_managers("order:42").await;
    let dying = Lock::new(&*key).ttl(ms(300)).manager(&ours).acquire().await.expect("free");
    std::mem::forget(dying);
    let blocking = lock(&theirs, &key).wait(LONG_TTL);
    let start = Instant::now();
    let result = on_a_plain_thread(move || blocking.run_blocking(|| Locked::Ok(7))).await;
    assert_eq!(result, Ok(7));
    assert!(start.elapsed() < ms(300) + PUSHED, "after {:?}", start.elapsed());
}

/// Twice as many of them as there are workers.
#[on(memory, redis, postgres, both_runtimes)]
async fn sync_waiters_in_the_tasks_of_a_runtime_let_its_holder_go_on(backend: &Backend) {
    let (manager, key) = (backend.manager().await, backend.key("order:42"));
    for workers in [1, 2] {
        let (manager, key) = (manager.clone(), key.clone());
        on_a_plain_thread(move || {
            let runtime = Builder::new_multi_thread().worker_threads(workers).enable_all().build();
            runtime.expect("a runtime").block_on(async move {
                let (held, is_held) = oneshot::channel();
                let (go, may_go) = oneshot::channel();
                let holder = tokio::spawn(lock(&manager, &key).run(async move {
                    held.send(()).expect("the test goes on");
                    may_go.await.expect("the test goes on");
                    Locked::Ok(())
                }));
                is_held.await.expect("it is free");
                let waiter = || {
                    let lock = lock(&manager, &key).wait(LONG_TTL);
                    tokio::spawn(async move { lock.acquire_blocking()?.release_blocking() })
                };
                let mut waiters: Vec<_> = (1..2 * workers).map(|_| waiter()).collect();
                let last = lock(&manager, &key).wait(LONG_TTL);
                waiters.push(tokio::spawn(async move {
                    // A task that this worker has only itself to run, and the holder waits for.
                    tokio::spawn(async { go.send(()) });
                    last.run_blocking(|| Locked::Ok(()))
                }));
                holder.await.expect("no panic").expect("it went on");
                for waiter in waiters {
                    assert_eq!(waiter.await.expect("no panic"), Ok(()));
                }
            });
        })
        .await;
    }
}

/// Its thread has nothing to hand on, and tokio would panic if it were asked to.
#[on(memory, redis, postgres, both_runtimes)]
async fn a_sync_waiter_in_a_local_set_is_served_by_a_holder_elsewhere(backend: &Backend) {
    let (manager, key) = (backend.manager().await, backend.key("order:42"));
    let guard = lock(&manager, &key).acquire().await.expect("free");
    let blocking = waiting(&manager, &key);
    let waiter = tokio::spawn(on_a_plain_thread(move || {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let (runtime, local) = (runtime.expect("a runtime"), LocalSet::new());
        let waiter =
            local.spawn_local(async move { blocking.acquire_blocking()?.release_blocking() });
        local.block_on(&runtime, waiter).expect("no panic")
    }));
    Queue::stands_in_line().await;
    guard.release().await.expect("still held");
    assert_eq!(waiter.await.expect("no panic"), Ok(()));
}
