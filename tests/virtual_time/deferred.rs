//! Deferred calls of `memory://`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lockmacro_runtime::defer::{DeferredFn, JobState, NewJob, Worker, argument};
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
    let (locks, start) = (LockManager::memory(), Instant::now());
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

#[tokio::test(start_paused = true)]
async fn a_reset_forgets_deferred_calls() {
    let locks = LockManager::memory();
    defer_an_hour(&locks).await;
    assert_eq!(waiting(&locks).await, 1);
    locks.reset();
    assert_eq!(waiting(&locks).await, 0);
}
