//! Requests that are repeated, because the answer was lost.

use lockmacro_runtime::defer::{NewJob, Settled, When};
use lockmacro_tests::{Fault, Proxy, Server};

use super::*;

/// Every request for the calls of the function `f` has this word.
const CALLS: &str = "lm1:jobs:f";

/// A manager that asks through a network.
async fn through(proxy: &Proxy) -> LockManager {
    patient().connect(&proxy.url()).await.expect("it is there")
}

#[tokio::test]
async fn a_call_whose_storing_was_not_answered_is_run_once() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let (locks, other) = (through(&proxy).await, connect(&server).await);
    let calls = Calls::default();
    let function = noting("f", &calls);
    let working = start(&other, &function);
    // The server knows the scripts.
    put(&locks, &function, 0).await;
    calls.reach(1).await;
    proxy.on_next(CALLS, Fault::CutReply);
    put(&locks, &function, 1).await;
    assert!(proxy.orders_are_done());
    calls.reach(2).await;
    nothing_is_left(&other, "f").await;
    assert_eq!(calls.all(), [0, 1], "each once");
    ends(&other, working).await;
}

#[on(memory, redis, postgres, both_runtimes)]
async fn a_call_that_is_stored_again_after_it_was_done_is_run_once(backend: &Backend) {
    let (locks, calls, name) = (manager(backend).await, Calls::default(), name("stored-again"));
    let function = noting(&name, &calls);
    let working = start(&locks, &function);
    let mut job = NewJob::new(name.as_str(), "id", "[1]", "order:1");
    job.delay = SHORT_DELAY;
    let stored = locks.deferrer().put(job.clone()).await.unwrap();
    assert_eq!((&*stored.id, stored.due), ("id", SHORT_DELAY));
    calls.reach(1).await;
    nothing_is_left(&locks, &name).await;
    // Its caller was not answered in time, or a request was held up in flight.
    let again = locks.deferrer().put(job.clone()).await.unwrap();
    assert_eq!((&*again.id, again.due), ("id", Duration::ZERO), "it is over");
    assert_eq!(count(&locks, &name, JobState::Waiting).await, 0);
    // Another one is another one.
    job.id = "other".to_owned();
    locks.deferrer().put(job).await.unwrap();
    calls.reach(2).await;
    nothing_is_left(&locks, &name).await;
    ends_on(backend, &locks, working).await;
}

/// Has this many answers lost by which a worker is given a call.
async fn lose(answers: usize, timeout: Duration, fault: Fault, functions: &[&str]) {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let other = connect(&server).await;
    let locks = LockManager::builder().timeout(timeout).connect(&proxy.url()).await.unwrap();
    let calls = Calls::default();
    // It would be a dead letter if the first time counted.
    let function = noting("f", &calls).attempts(1);
    put(&other, &function, 0).await;
    let job = take(&other, "f", LONG_TTL).await;
    assert!(other.deferrer().settle(job, Settled::Done).await.unwrap());

    put(&other, &function, 1).await;
    eventually("it is due", TEST_TIMEOUT, async || {
        first(&other, "f", JobState::Waiting)
            .await
            .is_some_and(|call| matches!(call.when, When::Ago(_)))
    })
    .await;
    let working = functions.iter().fold(worker(&locks, &function), |worker, also| {
        worker.register(noting(also, &Calls::default()))
    });
    // A look at what is due comes first when there is more than one function.
    if !functions.is_empty() {
        proxy.on_next(CALLS, Fault::DelayReply(Duration::from_millis(1)));
    }
    for _ in 0..answers {
        proxy.on_next(CALLS, fault);
    }
    // Its lease ends long after this test.
    let working = tokio::spawn(working.lease(LONG_TTL * 60).run());
    // Its manager gives up many requests on a loaded machine.
    eventually("it is run", TEST_TIMEOUT * 6, async || !calls.all().is_empty()).await;
    assert!(proxy.orders_are_done(), "its first answers were lost");
    nothing_is_left(&other, "f").await;
    assert_eq!(calls.all(), [1]);
    ends(&locks, working).await;
}

#[tokio::test]
async fn a_call_whose_reply_was_cut_off_is_handed_to_the_worker_again() {
    lose(1, TEST_TIMEOUT * 2, Fault::CutReply, &[]).await;
    lose(1, TEST_TIMEOUT * 2, Fault::CutReply, &["g", "h"]).await;
}

/// The worker has given up one request by then, and makes a pause.
#[tokio::test]
async fn a_call_whose_answer_is_late_is_handed_to_the_worker_again() {
    let impatient = Duration::from_millis(700);
    let late = Fault::DelayReply(Duration::from_secs(1));
    // More than are asked for before it gives up.
    lose(3, impatient, late, &[]).await;
    lose(1, impatient, late, &["g", "h"]).await;
    lose(3, impatient, Fault::LoseReply, &[]).await;
}

#[on(memory, redis, postgres, both_runtimes)]
async fn a_call_that_got_lost_for_good_is_due_when_its_lease_is_over(backend: &Backend) {
    let (locks, calls, name) = (manager(backend).await, Calls::default(), name("lost"));
    let function = noting(&name, &calls).attempts(1);
    put(&locks, &function, 1).await;
    // Its worker is not heard of again.
    take(&locks, &name, SHORT_DELAY).await;
    let working = start(&locks, &function);
    calls.reach(1).await;
    nothing_is_left(&locks, &name).await;
    ends_on(backend, &locks, working).await;
}

#[tokio::test]
async fn an_end_that_is_reported_twice_counts_once() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let (locks, other) = (through(&proxy).await, connect(&server).await);
    let function = noting("f", &Calls::default());
    let error = || "out of stock".to_owned();
    let ends = [
        // The server knows the scripts, then.
        (Settled::Done, None),
        (Settled::Done, None),
        (Settled::Again { delay: LONG_TTL, error: error() }, Some((JobState::Waiting, 2))),
        (Settled::Returned, Some((JobState::Waiting, 1))),
        (Settled::Busy { delay: LONG_TTL, error: error() }, Some((JobState::Waiting, 1))),
        (Settled::Dead { error: error() }, Some((JobState::Dead, 2))),
    ];
    for (nth, (how, left)) in ends.into_iter().enumerate() {
        put(&other, &function, 1).await;
        let back = take(&other, "f", LONG_TTL).await;
        let once = Settled::Again { delay: Duration::ZERO, error: error() };
        assert!(other.deferrer().settle(back, once).await.unwrap());
        let job = take(&other, "f", LONG_TTL).await;
        if nth > 0 {
            proxy.on_next(CALLS, Fault::CutReply);
        }
        let settled = locks.deferrer().settle(job.clone(), how.clone()).await;
        assert_eq!(settled, Ok(true), "{how:?}");
        assert!(proxy.orders_are_done(), "{how:?}");
        if let Some((state, attempts)) = left {
            let call = first(&other, "f", state).await.expect("it is there");
            assert_eq!((&call.id, call.attempts), (&job.id, attempts), "{how:?}");
            remove(&other, "f", job.id).await;
        }
        nothing_is_left(&other, "f").await;
    }
}

/// Two calls, of which the first one's worker is not heard of any more, and it waits again.
async fn returned_jobs(locks: &LockManager, function: &DeferredFn<(u64,)>) -> (Job, Job) {
    let name = function.name();
    put(locks, function, 1).await;
    let silent = take(locks, name, SHORT_DELAY).await;
    put(locks, function, 2).await;
    for state in [JobState::Running, JobState::Waiting] {
        eventually("its time is over", TEST_TIMEOUT, async || {
            first(locks, name, state).await.is_some_and(|call| matches!(call.when, When::Ago(_)))
        })
        .await;
    }
    let other = take(locks, name, LONG_TTL).await;
    assert_ne!(silent.id, other.id, "the other one was due first");
    let waits = first(locks, name, JobState::Waiting).await.expect("it waits");
    assert_eq!(waits.id, silent.id);
    (silent, other)
}

#[on(memory, redis, postgres, both_runtimes)]
async fn a_late_worker_ends_its_call_unless_another_has_it(backend: &Backend) {
    let (locks, name) = (manager(backend).await, name("late"));
    let function = noting(&name, &Calls::default());
    let deferrer = locks.deferrer();
    let (silent, other) = returned_jobs(&locks, &function).await;
    assert!(deferrer.settle(silent, Settled::Done).await.unwrap(), "nobody else has begun it");
    assert!(deferrer.settle(other, Settled::Done).await.unwrap());
    nothing_is_left(&locks, &name).await;

    // A person has it tried again, whatever the worker says.
    let (silent, other) = returned_jobs(&locks, &function).await;
    assert!(deferrer.retry(name.as_str().into(), silent.id.clone()).await.unwrap());
    assert!(!deferrer.keep(silent.clone(), LONG_TTL).await.unwrap());
    assert!(!deferrer.settle(silent, Settled::Done).await.unwrap());
    let retried = take(&locks, &name, LONG_TTL).await;
    assert!(deferrer.settle(retried, Settled::Done).await.unwrap());
    assert!(deferrer.settle(other, Settled::Done).await.unwrap());

    // Heard of again, it goes on.
    let (silent, other) = returned_jobs(&locks, &function).await;
    assert!(deferrer.keep(silent.clone(), LONG_TTL).await.unwrap());
    assert_eq!(count(&locks, &name, JobState::Running).await, 2);
    assert_eq!(count(&locks, &name, JobState::Waiting).await, 0);
    assert!(deferrer.settle(silent, Settled::Done).await.unwrap());
    assert!(deferrer.settle(other, Settled::Done).await.unwrap());
    nothing_is_left(&locks, &name).await;
    forget(backend).await;
}

#[on(memory, redis, postgres, both_runtimes)]
async fn a_late_worker_learns_that_another_one_has_ended_its_call(backend: &Backend) {
    let (locks, name) = (manager(backend).await, name("others"));
    let function = noting(&name, &Calls::default());
    let deferrer = locks.deferrer();
    let late = || Settled::Again { delay: LONG_TTL, error: "too late".into() };
    let (silent, other) = returned_jobs(&locks, &function).await;
    let mut taken = take(&locks, &name, LONG_TTL).await;
    assert_eq!(taken.id, silent.id);
    assert!(deferrer.settle(taken.clone(), Settled::Done).await.unwrap());
    for how in [Settled::Done, late(), Settled::Returned] {
        assert_eq!(deferrer.settle(silent.clone(), how).await, Ok(false), "another one's turn");
    }
    taken.claim += 1;
    assert_eq!(deferrer.settle(taken, Settled::Done).await, Ok(false), "nobody's turn");
    assert!(deferrer.settle(other, Settled::Done).await.unwrap());

    // A person has removed it.
    let (silent, other) = returned_jobs(&locks, &function).await;
    remove(&locks, &name, silent.id.clone()).await;
    assert_eq!(deferrer.settle(silent, late()).await, Ok(false), "it is gone");
    assert!(deferrer.settle(other, Settled::Done).await.unwrap());
    nothing_is_left(&locks, &name).await;
    forget(backend).await;
}

#[on(memory, redis, postgres, both_runtimes)]
async fn a_late_worker_does_not_end_what_others_count_on(backend: &Backend) {
    let (locks, name) = (manager(backend).await, name("count-on"));
    let function = noting(&name, &Calls::default()).unique();
    let deferrer = locks.deferrer();
    let (silent, other) = returned_jobs(&locks, &function).await;
    // Another caller may rely on the call being run later.
    assert!(!deferrer.settle(silent, Settled::Done).await.unwrap());
    assert!(deferrer.settle(other, Settled::Done).await.unwrap());
    let again = take(&locks, &name, LONG_TTL).await;
    assert!(deferrer.settle(again, Settled::Done).await.unwrap());
    nothing_is_left(&locks, &name).await;
    forget(backend).await;
}
