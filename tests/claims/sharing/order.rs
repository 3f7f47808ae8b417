//! Callers that share a lock wait in one queue with exclusive ones, and neither kind starves.

use std::time::Duration;

use futures::future::join_all;
use lockmacro_runtime::LockError;
use lockmacro_tests::queue::Queue;
use lockmacro_tests::times::PUSHED;
use lockmacro_tests::{Backend, eventually, on};
use tokio::time::timeout;

use crate::{TEST_TIMEOUT, held, is_busy, lock, ms, released, soon, waiting};

/// Long enough for a push that must not come.
const NOT_SERVED: Duration = ms(60);

#[on(memory, redis, slots, cluster, postgres, both_runtimes)]
async fn no_shared_caller_overtakes_an_exclusive_waiter(backend: &Backend) {
    let (ours, theirs, key) = backend.two_managers("order:42").await;
    let mut queue = Queue::of(backend, &key);
    let first = held(lock(&ours, &key).shared()).await;
    let exclusive = queue.join(waiting(&theirs, &key).acquire()).await;
    assert!(is_busy(lock(&ours, &key).shared()).await, "it would overtake");
    let mut late = queue.join(waiting(&ours, &key).shared().acquire()).await;
    // Nothing happens while the exclusive caller waits.
    assert!(timeout(NOT_SERVED, &mut late).await.is_err(), "it has overtaken");
    released([first]).await;
    let exclusive = soon(exclusive).await;
    // Nor while it holds the lock.
    assert!(timeout(NOT_SERVED, &mut late).await.is_err(), "beside an exclusive holder");
    released([exclusive]).await;
    released([soon(late).await]).await;
}

#[on(memory, redis, slots, cluster, postgres, both_runtimes)]
async fn all_shared_waiters_at_the_head_are_let_in_together(backend: &Backend) {
    let managers = [backend.manager().await, backend.manager().await];
    let key = backend.key("order:42");
    let mut queue = Queue::of(backend, &key);
    let exclusive = held(lock(&managers[0], &key)).await;
    let mut readers = Vec::new();
    for nth in 0..10 {
        readers.push(queue.join(waiting(&managers[nth % 2], &key).shared().acquire()).await);
    }
    let writer = queue.join(waiting(&managers[1], &key).acquire()).await;
    let mut late = queue.join(waiting(&managers[0], &key).shared().acquire()).await;
    released([exclusive]).await;
    // All at the same time: none is released before the last one has the lock.
    let guards = timeout(TEST_TIMEOUT, join_all(readers.into_iter().map(soon))).await;
    let guards = guards.expect("all are let in");
    assert!(timeout(NOT_SERVED, &mut late).await.is_err(), "it came after the exclusive one");
    released(guards).await;
    released([soon(writer).await]).await;
    released([soon(late).await]).await;
}

#[on(memory, redis, slots, cluster, postgres, both_runtimes)]
async fn a_permit_that_is_released_is_handed_to_the_first_waiter(backend: &Backend) {
    let (ours, theirs, key) = backend.two_managers("printer").await;
    let mut queue = Queue::of(backend, &key);
    let mut guards =
        vec![held(lock(&ours, &key).permits(2)).await, held(lock(&theirs, &key).permits(2)).await];
    let first = queue.join(waiting(&theirs, &key).permits(2).acquire()).await;
    let mut second = queue.join(waiting(&ours, &key).permits(2).acquire()).await;
    assert!(is_busy(lock(&ours, &key).permits(3)).await, "others wait");
    released(guards.pop()).await;
    guards.push(soon(first).await);
    assert!(timeout(NOT_SERVED, &mut second).await.is_err(), "two hold it");
    released(guards.pop()).await;
    guards.push(soon(second).await);
    released(guards).await;
}

#[on(memory, redis, postgres)]
async fn an_exclusive_waiter_gets_the_lock_while_shared_callers_keep_coming(backend: &Backend) {
    let (ours, theirs, key) = backend.two_managers("order:42").await;
    let mut readers = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let reader = waiting(&ours, &key).shared();
        readers.spawn(async move {
            loop {
                let body = async {
                    // So that there is always a reader.
                    tokio::time::sleep(ms(5)).await;
                    crate::Locked::Ok(())
                };
                reader.run(body).await.expect("served");
            }
        });
    }
    eventually("readers hold it", TEST_TIMEOUT, || is_busy(lock(&theirs, &key))).await;
    for _ in 0..3 {
        released([soon(waiting(&theirs, &key).acquire()).await]).await;
    }
    readers.shutdown().await;
    backend.becomes_free(&key, TEST_TIMEOUT).await;
}

#[on(memory, redis, postgres)]
async fn a_dropped_waiter_makes_room_for_those_behind_it(backend: &Backend) {
    let (ours, theirs, key) = backend.two_managers("order:42").await;
    let mut queue = Queue::of(backend, &key);
    let reader = held(lock(&ours, &key).shared()).await;
    let writer = queue.join(waiting(&theirs, &key).acquire()).await;
    let late = queue.join(waiting(&ours, &key).shared().acquire()).await;
    drop(writer);
    // By a push: its next question is later.
    let late = timeout(PUSHED, late).await.expect("let in at once").expect("let in");
    released([late, reader]).await;
}

#[on(memory, redis, slots, postgres, both_runtimes)]
async fn a_waiter_whose_wait_is_over_leaves_the_queue(backend: &Backend) {
    let (ours, theirs, key) = backend.two_managers("printer").await;
    let guards =
        [held(lock(&ours, &key).permits(2)).await, held(lock(&ours, &key).permits(2)).await];
    let late = lock(&theirs, &key).permits(2).wait(ms(50)).acquire().await.expect_err("held");
    assert!(matches!(late, LockError::TimedOut { .. }), "{late}");
    let mut queue = Queue::of(backend, &key);
    queue.reaches(0).await;
    // Nothing was handed to a caller that has left.
    released(guards).await;
    backend.becomes_free(&key, PUSHED).await;
}

#[on(memory, redis, postgres)]
async fn a_dropped_shared_waiter_leaves_nothing(backend: &Backend) {
    let (ours, theirs, key) = backend.two_managers("order:42").await;
    let mut queue = Queue::of(backend, &key);
    let writer = held(lock(&ours, &key)).await;
    for _ in 0..3 {
        drop(queue.join(waiting(&theirs, &key).shared().acquire()).await);
    }
    released([writer]).await;
    backend.becomes_free(&key, TEST_TIMEOUT).await;
}
