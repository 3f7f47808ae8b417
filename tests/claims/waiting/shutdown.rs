//! A manager that ends while somebody waits.

use std::time::Instant;

use lockmacro_runtime::LockError;
use lockmacro_tests::queue::Queue;
use lockmacro_tests::{Backend, on, on_a_plain_thread, spawn_polled};
use tokio::time::timeout;

use crate::{Held, LONG_TTL, PUSHED, handed_off, lock, ms, waiting};

/// No lock is given any more, so whoever waits for one waits in vain.
#[on(memory, redis, postgres, both_runtimes)]
async fn a_shutdown_sends_the_waiters_away(backend: &Backend) {
    let Held { theirs, key, mut queue, guard, .. } = Held::on(backend).await;
    let waiter = queue.join(waiting(&theirs, &key).acquire()).await;
    // Once its task has polled it, only an answer wakes it.
    let waiter = spawn_polled(waiter).await;
    let start = Instant::now();
    let shutdown = theirs.shutdown(LONG_TTL / 20).await;
    let took = start.elapsed();
    // Its task may end on another thread a moment later.
    let answer = timeout(LONG_TTL / 2, waiter).await;
    guard.release().await.expect("still held");
    shutdown.expect("nothing is held");
    assert!(took < PUSHED, "after {took:?}");
    let answer = answer.expect("answered while the lock is held").expect("no panic");
    assert_eq!(answer.map(drop), Err(LockError::ShutDown { held: 0 }));
}

/// It waits by the connection of the background thread.
#[on(memory, redis, postgres, both_runtimes)]
async fn a_shutdown_sends_a_waiting_thread_away(backend: &Backend) {
    let (theirs, key) = (backend.manager().await, backend.key("order:42"));
    let guard = lock(&theirs, &key).acquire().await.expect("free");
    // Once is enough: a loaded machine may take as long as it is until the thread asks again.
    for nth in 1..=5 {
        let ours = backend.manager().await;
        let (mut queue, waiter) = (Queue::of(backend, &key), waiting(&ours, &key));
        let thread = tokio::spawn(on_a_plain_thread(move || waiter.acquire_blocking().map(drop)));
        queue.reaches(1).await;
        // Time for the answer to reach the thread, which nothing tells from outside.
        tokio::time::sleep(ms(20)).await;
        let start = Instant::now();
        ours.shutdown(LONG_TTL).await.expect("nothing is held");
        let took = start.elapsed();
        assert_eq!(thread.await.expect("no panic"), Err(LockError::ShutDown { held: 0 }));
        queue.reaches(0).await;
        if took < PUSHED {
            break;
        }
        assert!(nth < 5, "after {took:?}");
    }
    guard.release().await.expect("still held");
}

#[on(memory, redis, postgres, both_runtimes)]
async fn a_shutdown_leaves_the_waiters_of_other_managers_alone(backend: &Backend) {
    let Held { ours, theirs, key, mut queue, guard } = Held::on(backend).await;
    let waiter = queue.join(waiting(&theirs, &key).acquire()).await;
    let closing = ours.clone();
    let closing = spawn_polled(async move { closing.shutdown(LONG_TTL).await }).await;
    handed_off(guard, waiter).await;
    closing.await.expect("no panic").expect("drained");
}

/// The store knows nothing of the waiter, which is in the queue of its own process.
#[on(memory, redis, redlock, postgres, both_runtimes)]
async fn a_shutdown_sends_those_away_who_wait_behind_a_holder_of_its_own(backend: &Backend) {
    let (ours, key) = (backend.manager().await, backend.key("order:42"));
    let guard = lock(&ours, &key).acquire().await.expect("free");
    // Once they have been polled, only an answer wakes them.
    let waiter = spawn_polled(waiting(&ours, &key).acquire()).await;
    let blocking = waiting(&ours, &key);
    let thread = tokio::spawn(on_a_plain_thread(move || blocking.acquire_blocking()));
    Queue::stands_in_line().await;
    let shutdown = ours.shutdown(ms(20)).await;
    assert!(matches!(shutdown, Err(LockError::ShutDown { held: 1 })), "{shutdown:?}");
    for waiter in [waiter, thread] {
        let answer = timeout(LONG_TTL / 6, waiter).await.expect("answered while the lock is held");
        assert_eq!(answer.expect("no panic").map(drop), Err(LockError::ShutDown { held: 0 }));
    }
    guard.release().await.expect("still held");
}
