//! Jobs of `memory://`.

use std::future::pending;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use lockmacro_runtime::defer::{
    DeferredFn, JobState, NewJob, Settled, TakeOptions, Worker, argument,
};
use tokio::time::{Instant, sleep};

use super::*;

/// Stores a call that is due in an hour.
async fn defer_an_hour(locks: &LockManager) {
    let mut new = NewJob::new("orders::audit", "first", "[42]", "order:42");
    (new.delay, new.attempts) = (HOUR, 3);
    locks.job_queue().put(new).await.expect("stored");
}

async fn waiting(locks: &LockManager) -> usize {
    let page = locks.job_queue().list("orders::audit".into(), JobState::Waiting, 0, 1).await;
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
    let (job_queue, function) = (locks.job_queue(), Arc::<str>::from("orders::dead"));
    for id in IDS {
        let new = NewJob::new(Arc::clone(&function), id, "[42]", "order:42");
        job_queue.put(new).await.expect("stored");
        let order = TakeOptions::new([Arc::clone(&function)], 1, HOUR);
        let taken = job_queue.take(order, Box::pin(pending())).await.expect("due");
        let settled = job_queue
            .settle(taken[0].clone(), Settled::Dead { error: "out of stock".into() })
            .await;
        assert_eq!(settled, Ok(true));
    }
    let dead = async || {
        let page = job_queue.list(Arc::clone(&function), JobState::Dead, 0, 10).await;
        page.expect("in memory").jobs.into_iter().map(|job| job.id).collect::<Vec<_>>()
    };
    assert_eq!(dead().await, IDS);
    assert_eq!(job_queue.remove_dead(Arc::clone(&function), 2).await, Ok(2));
    assert_eq!(dead().await, IDS[2..]);
    assert_eq!(job_queue.retry_dead(Arc::clone(&function), 2).await, Ok(2));
    assert_eq!(dead().await, IDS[4..]);
}

/// When a function ran, in seconds, and with which argument, where it is called every seven
/// seconds.
async fn runs(
    defer: impl Fn(DeferredFn<(u64,)>) -> DeferredFn<(u64,)>,
    clicks: u64,
) -> Vec<(u64, u64)> {
    let (locks, start) = (LockManager::isolated_memory(), Instant::now());
    let runs = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&runs);
    let function = DeferredFn::new("index", (argument("number"),), move |(number,): (u64,)| {
        noted.lock().expect("no panic").push((start.elapsed().as_secs(), number));
        async { Locked::Ok(()) }
    });
    let function = defer(function.delay(10 * SECOND));
    let working = tokio::spawn(Worker::new(&locks).register(function.clone()).run());
    let held = lock(&locks, HOUR).acquire().await.expect("free");
    for number in 0..clicks {
        let busy = lock(&locks, HOUR).acquire().await.expect_err("held");
        let deferred = function.clone().manager(&locks).defer(busy, (number,)).await;
        assert!(matches!(deferred, LockError::Deferred { .. }), "{deferred}");
        sleep(7 * SECOND).await;
    }
    sleep(MINUTE).await;
    held.release().await.expect("held");
    locks.shutdown(SECOND).await.expect("nothing is held");
    working.await.expect("no panic").expect("it ends with the manager");
    let runs = runs.lock().expect("no panic");
    runs.clone()
}

#[tokio::test(start_paused = true)]
async fn the_latest_call_runs_when_the_first_is_due() {
    let found = runs(DeferredFn::latest, 5).await;
    assert_eq!(found, [(10, 1), (24, 3), (38, 4)]);
}

#[tokio::test(start_paused = true)]
async fn a_debounced_call_runs_after_the_last_one_or_after_at_most() {
    let found = runs(|function| function.latest().at_most(MINUTE), 21).await;
    // The first was stored at 0 s, the next at 63 s, and the last one of all at 140 s.
    assert_eq!(found, [(60, 8), (123, 17), (150, 20)]);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_no_worker_can_read_is_a_dead_letter_after_an_hour() {
    for delay in [Duration::ZERO, SECOND, 3 * HOUR] {
        let locks = LockManager::isolated_memory();
        let new = NewJob::new("orders::audit", "first", "[\"no number\"]", "order:42");
        locks.job_queue().put(new).await.expect("stored");
        // It was busy for long: that was another reason to wait.
        let job_queue = locks.job_queue();
        for _ in 0..200 {
            let order = TakeOptions::new(["orders::audit"], 1, HOUR);
            let taken = job_queue.take(order, Box::pin(pending())).await.expect("in memory");
            let busy = Settled::Busy { delay: Duration::ZERO, error: "busy".into() };
            job_queue.settle(taken[0].clone(), busy).await.expect("in memory");
        }
        let audits = DeferredFn::new("orders::audit", (argument("id"),), |(_,): (u64,)| async {});
        let worker = Worker::new(&locks).register(audits.delay(delay).attempts(1));
        let working = tokio::spawn(worker.run());
        sleep(HOUR * 2 / 3).await;
        assert_eq!(waiting(&locks).await, 1, "another one may know how to");
        sleep(HOUR).await;
        let page = locks.job_queue().list("orders::audit".into(), JobState::Dead, 0, 1).await;
        let dead = page.expect("in memory").jobs.pop().expect("a dead job");
        assert!(dead.error.is_some_and(|error| error.contains("do not fit the function")));
        locks.shutdown(5 * SECOND).await.expect("nothing is held");
        working.await.expect("no panic").expect("it ends with the manager");
    }
}
