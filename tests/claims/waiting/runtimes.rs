//! Waiters whose runtime ends, and waiters of several runtimes.

use lockmacro_runtime::LockManager;
use lockmacro_tests::queue::Queue;
use lockmacro_tests::{Backend, on, on_a_plain_thread};
use tokio::runtime::{Builder, Runtime};

use crate::{Held, KEY, POLLED, PUSHED, handed_off, lock, ms, served, waiting};

fn current_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

fn multi_thread() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}

#[on(memory, redis, postgres, both_runtimes)]
async fn a_waiter_whose_runtime_ends_leaves_nothing(backend: &Backend) {
    let (ours, theirs, key) = backend.two_managers(KEY).await;
    for runtime in [current_thread, multi_thread] {
        for end in [drop::<Runtime>, Runtime::shutdown_background] {
            let mut queue = Queue::of(backend, &key);
            let guard = lock(&ours, &key).acquire().await.expect("free");
            let (mut its_queue, waiter) = (Queue::of(backend, &key), waiting(&theirs, &key));
            on_a_plain_thread(move || {
                let runtime = runtime();
                let waiter = runtime.block_on(its_queue.join(waiter.acquire()));
                runtime.spawn(waiter);
                end(runtime);
            })
            .await;
            queue.reaches(0).await;
            let next = queue.join(waiting(&theirs, &key).acquire()).await;
            handed_off(guard, next).await;
        }
    }
}

/// A current-thread runtime that is not run: its waiter is first in the queue, and never looks.
#[on(memory, redis, postgres, both_runtimes)]
async fn a_waiter_whose_runtime_stalls_is_granted_and_then_skipped(backend: &Backend) {
    let Held { theirs, key, mut queue, guard, .. } = Held::on(backend).await;
    let waiter = lock(&backend.manager().await, &key).ttl(ms(400)).wait_forever();
    let mut its_queue = Queue::of(backend, &key);
    let (thaw, frozen_until) = std::sync::mpsc::channel::<()>();
    let (ready, is_ready) = tokio::sync::oneshot::channel();
    let thread = on_a_plain_thread(move || {
        let runtime = current_thread();
        let mut waiter = runtime.block_on(its_queue.join(waiter.acquire()));
        // It has its answer, so it does not stall in the middle of a request.
        let answered = async { tokio::time::timeout(ms(30), &mut waiter).await };
        assert!(runtime.block_on(answered).is_err(), "it is held");
        ready.send(()).expect("the test goes on");
        frozen_until.recv().expect("the test goes on");
        // It must not believe in the grant that it slept through.
        runtime.block_on(served(PUSHED, waiter));
    });
    let thread = tokio::spawn(thread);
    is_ready.await.expect("it is in the queue");
    let next = queue.join(waiting(&theirs, &key).acquire()).await;
    guard.release().await.expect("still held");
    // Its lease of 400 ms is lost time, and no more than that and a tick.
    served(ms(400) + POLLED, next).await;
    thaw.send(()).expect("it waits");
    thread.await.expect("no panic");
}

#[on(memory, redis, postgres, both_runtimes)]
async fn waiters_go_on_when_the_runtime_that_connected_has_ended(backend: &Backend) {
    let (ours, theirs) = (backend.manager().await, backend.manager().await);
    let (key, other) = (backend.key("order:42"), backend.key("other"));
    let url = backend.url().to_owned();
    // The connection, and what listens for grants, is a task of the runtime that made it.
    let runtime = on_a_plain_thread(current_thread).await;
    let (runtime, manager) = on_a_plain_thread(move || {
        let manager = runtime.block_on(LockManager::connect(&url)).expect("there");
        runtime.block_on(served(PUSHED, waiting(&manager, &other).acquire()));
        (runtime, manager)
    })
    .await;
    let guard = lock(&ours, &key).acquire().await.expect("free");
    let waiter = tokio::spawn(waiting(&manager, &key).acquire());
    on_a_plain_thread(move || drop(runtime)).await;
    let mut queue = Queue::of(backend, &key);
    queue.reaches(1).await;
    let next = queue.join(waiting(&theirs, &key).acquire()).await;
    guard.release().await.expect("still held");
    let waiter = async { waiter.await.expect("no panic") };
    tokio::join!(served(POLLED, waiter), served(POLLED, next));
}
