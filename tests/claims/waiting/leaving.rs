//! Waiters that leave: at any step, the next one is served and nothing is left.

use lockmacro_runtime::{LockError, LockGuard, LockManager};
use lockmacro_tests::queue::Queue;
use lockmacro_tests::{Backend, Polled, drop_after_polls, on};
use tokio::time::timeout;

use crate::{Held, LONG_TTL, Locked, PUSHED, handed_off, lock, ms, served, waiting};

/// More polls than any of these futures needs.
const ENOUGH: usize = 200;

/// Acquires the lock. A request that was dropped may still be in flight, and then its grant
/// is released when it has come.
async fn free_again(manager: &LockManager, key: &str) -> LockGuard {
    lock(manager, key).wait(LONG_TTL).acquire().await.expect("free")
}

/// Has a waiter dropped after each number of polls while the lock stays held.
#[on(memory, redis, cluster, postgres, both_runtimes)]
async fn a_waiter_dropped_at_any_point_leaves_the_queue(backend: &Backend) {
    let (ours, theirs, key) = backend.two_managers("order:42").await;
    let mut queue = Queue::of(backend, &key);
    for polls in 0..ENOUGH {
        let guard = free_again(&ours, &key).await;
        // It does not ask to be polled again when it is in the queue.
        let waiter = drop_after_polls(waiting(&theirs, &key).acquire(), polls);
        let joins = timeout(ms(100), waiter).await.is_err();
        assert!(guard.is_held());
        let next = waiting(&ours, &key).acquire();
        queue.reaches(0).await;
        let next = queue.join(next).await;
        handed_off(guard, next).await;
        if joins {
            return;
        }
    }
    panic!("it never was in the queue");
}

/// Has a waiter dropped after each number of polls while the lock is handed off to it.
#[on(memory, redis, cluster, postgres, both_runtimes)]
async fn a_waiter_dropped_at_any_point_of_its_grant_passes_the_lock_on(backend: &Backend) {
    let (ours, theirs, key) = backend.two_managers("order:42").await;
    for polls in 1..ENOUGH {
        let mut queue = Queue::of(backend, &key);
        let guard = free_again(&ours, &key).await;
        let waiter = queue.join(waiting(&theirs, &key).acquire()).await;
        let next = queue.join(waiting(&ours, &key).acquire()).await;
        guard.release().await.expect("still held");
        let polled = timeout(PUSHED, drop_after_polls(waiter, polls)).await.expect("in time");
        if let Polled::Completed(guard) = polled {
            guard.expect("served").release().await.expect("still held");
            return served(PUSHED, next).await;
        }
        served(PUSHED, next).await;
    }
    panic!("it never completed");
}

#[on(memory, redis, cluster, postgres, both_runtimes)]
async fn a_body_dropped_at_any_point_after_its_wait_passes_the_lock_on(backend: &Backend) {
    let (ours, theirs, key) = backend.two_managers("order:42").await;
    for polls in 1..ENOUGH {
        let mut queue = Queue::of(backend, &key);
        let guard = free_again(&ours, &key).await;
        let body = async {
            for _ in 0..3 {
                tokio::task::yield_now().await;
            }
            Locked::Ok(())
        };
        let waiter = queue.join(waiting(&theirs, &key).run(body)).await;
        let next = queue.join(waiting(&ours, &key).acquire()).await;
        guard.release().await.expect("still held");
        let polled = timeout(PUSHED, drop_after_polls(waiter, polls)).await.expect("in time");
        served(PUSHED, next).await;
        if let Polled::Completed(result) = polled {
            return result.expect("the body ran");
        }
    }
    panic!("it never completed");
}

#[on(memory, redis, cluster, postgres, both_runtimes)]
async fn a_select_that_drops_a_waiter_leaves_nothing(backend: &Backend) {
    let Held { theirs, key, mut queue, guard, .. } = Held::on(backend).await;
    let waiter = queue.join(waiting(&theirs, &key).acquire()).await;
    let next = queue.join(waiting(&theirs, &key).acquire()).await;
    let released = tokio::select! {
        biased;
        released = guard.release() => released,
        // It has heard of its grant before the holder had an answer: then that is dropped.
        granted = waiter => granted.map(drop),
    };
    released.expect("still held");
    served(PUSHED, next).await;
    backend.becomes_free(&key, PUSHED).await;
}

#[on(memory, redis, cluster, postgres, both_runtimes)]
async fn an_aborted_waiter_leaves_nothing(backend: &Backend) {
    let Held { ours, theirs, key, mut queue, guard } = Held::on(backend).await;
    let first = tokio::spawn(queue.join(waiting(&theirs, &key).acquire()).await);
    let second = tokio::spawn(queue.join(waiting(&theirs, &key).acquire()).await);
    let third = queue.join(waiting(&theirs, &key).acquire()).await;
    first.abort();
    assert!(first.await.expect_err("aborted").is_cancelled());
    // Two are before the next one: the aborted one has left the queue of its process.
    let late = lock(&theirs, &key).wait(ms(100)).acquire().await;
    assert!(matches!(late, Err(LockError::TimedOut { rank: 2, .. })), "{late:?}");
    guard.release().await.expect("still held");
    // This one is aborted as it is being served.
    second.abort();
    drop(second.await);
    served(PUSHED, third).await;
    // And the last one of a process has left the queue.
    let guard = free_again(&ours, &key).await;
    let last = tokio::spawn(queue.join(waiting(&theirs, &key).acquire()).await);
    last.abort();
    assert!(last.await.expect_err("aborted").is_cancelled());
    queue.reaches(0).await;
    guard.release().await.expect("still held");
    backend.becomes_free(&key, PUSHED).await;
}

#[on(memory, redis, cluster, postgres, both_runtimes)]
async fn many_waiters_dropped_at_once_leave_nothing(backend: &Backend) {
    let Held { ours, theirs, key, mut queue, guard } = Held::on(backend).await;
    let all = (0..300).map(|_| waiting(&theirs, &key).acquire());
    let all = tokio::spawn(futures::future::join_all(all));
    queue.reaches(1).await;
    Queue::stands_in_line().await;
    let last = queue.join(waiting(&ours, &key).acquire()).await;
    all.abort();
    handed_off(guard, last).await;
    queue.reaches(0).await;
}

#[on(memory, redis, cluster, postgres, both_runtimes)]
async fn a_panicking_body_hands_the_lock_off(backend: &Backend) {
    let Held { ours, theirs, key, mut queue, guard } = Held::on(backend).await;
    let body = async || -> Locked<()> { panic!("as planned") };
    let first = tokio::spawn(queue.join(waiting(&ours, &key).run(body())).await);
    let next = queue.join(waiting(&theirs, &key).acquire()).await;
    guard.release().await.expect("still held");
    assert!(first.await.expect_err("it panicked").is_panic());
    served(PUSHED, next).await;
    let broken: Result<(), LockError> = Err(LockError::ShutDown { held: 0 });
    let failing = waiting(&ours, &key).wait(LONG_TTL).run(async { broken });
    assert_eq!(failing.await, Err(LockError::ShutDown { held: 0 }));
    backend.becomes_free(&key, PUSHED).await;
}
