//! Deferred calls of `memory://`.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lockmacro_runtime::defer::{
    DeferredFn, JobState, NewJob, Settled, TakeOptions, Worker, argument,
};
use tokio::time::{Instant, sleep};

use super::*;

/// Stores a call that is due in an hour.
async fn defer_an_hour(locks: &LockManager) {
    let mut new = NewJob::new("orders::audit", "first", "[42]", "order:42");
    (new.delay, new.attempts) = (HOUR, 3);
    locks.deferrer().put(new).await.expect("stored");
}

async fn waiting(locks: &LockManager) -> usize {
    let page = locks.deferrer().list("orders::audit".into(), JobState::Waiting, 0, 1).await;
    page.expect("in memory").total
}

#[tokio::test(start_paused = true)]
async fn a_deferred_call_runs_when_it_is_due() {
    let (locks, start) = (LockManager::isolated_memory(), Instant::now());
    let ran = Arc::new(AtomicU64::new(0));
    let (seen, manager) = (Arc::clone(&ran), locks.clone());
    let audits = DeferredFn::new("orders::audit", (argument("id"),), move |(id,): (u64,)| {
        let (seen, audited) = (Arc::clone(&seen), lock(&manager, MINUTE).renew());
        async move {
            let hours = async move {
                // Longer than the lease of the lock, and than the lease of the call.
                sleep(HOUR).await;
                seen.fetch_add(id, Ordering::Relaxed);
                Locked::Ok(())
            };
            audited.run(hours).await
        }
    });
    defer_an_hour(&locks).await;
    let working = tokio::spawn(Worker::new(&locks).register(audits).run());
    sleep(HOUR - MINUTE).await;
    assert_eq!((ran.load(Ordering::Relaxed), waiting(&locks).await), (0, 1));
    sleep(HOUR + 2 * MINUTE).await;
    assert_eq!((ran.load(Ordering::Relaxed), waiting(&locks).await), (42, 0));
    assert!(start.elapsed() < 3 * HOUR);
    locks.shutdown(5 * SECOND).await.expect("nothing is held");
    working.await.expect("no panic").expect("it ends with the manager");
}

/// They are of one moment, and their ids are in another order.
#[tokio::test(start_paused = true)]
async fn dead_letters_of_one_moment_are_in_the_order_in_which_they_were_given_up() {
    const IDS: [&str; 6] = ["e", "b", "f", "a", "d", "c"];
    let locks = LockManager::isolated_memory();
    let (deferrer, function) = (locks.deferrer(), Arc::<str>::from("orders::dead"));
    for id in IDS {
        let new = NewJob::new(Arc::clone(&function), id, "[42]", "order:42");
        deferrer.put(new).await.expect("stored");
        let order = TakeOptions::new([Arc::clone(&function)], 1, HOUR);
        let taken = deferrer.take(order, Box::pin(pending())).await.expect("due");
        let settled =
            deferrer.settle(taken[0].clone(), Settled::Dead { error: "out of stock".into() }).await;
        assert_eq!(settled, Ok(true));
    }
    let dead = async || {
        let page = deferrer.list(Arc::clone(&function), JobState::Dead, 0, 10).await;
        page.expect("in memory").jobs.into_iter().map(|job| job.id).collect::<Vec<_>>()
    };
    assert_eq!(dead().await, IDS);
    assert_eq!(deferrer.remove_dead(Arc::clone(&function), 2).await, Ok(2));
    assert_eq!(dead().await, IDS[2..]);
    assert_eq!(deferrer.retry_dead(Arc::clone(&function), 2).await, Ok(2));
    assert_eq!(dead().await, IDS[4..]);
}
