//! Requests that are repeated, because the answer was lost.

use lockmacro_runtime::defer::{Keep, NewJob, Settled, When};
use lockmacro_tests::times::ms;
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
    let stored = locks.job_queue().put(job.clone()).await.unwrap();
    assert_eq!((&*stored.id, stored.due), ("id", SHORT_DELAY));
    calls.reach(1).await;
    nothing_is_left(&locks, &name).await;
    // Its caller was not answered in time, or a request was held up in flight.
    let again = locks.job_queue().put(job.clone()).await.unwrap();
    assert_eq!((&*again.id, again.due), ("id", Duration::ZERO), "it is over");
    assert_eq!(count(&locks, &name, JobState::Waiting).await, 0);
    // Another one is another one.
    job.id = "other".to_owned();
    locks.job_queue().put(job).await.unwrap();
    calls.reach(2).await;
    nothing_is_left(&locks, &name).await;
    ends_on(backend, &locks, working).await;
}

#[tokio::test]
async fn a_call_is_superseded_though_the_answer_is_lost() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let locks = through(&proxy).await;
    let job_queue = locks.job_queue();
    let supersede = || job_queue.supersede("f".into(), "k".into(), Duration::ZERO);
    supersede().await.expect("the server knows the script");
    let mut job = NewJob::new("f", "id", "[1]", "k");
    job.keep = Keep::Latest { at_most: None };
    locks.job_queue().put(job).await.unwrap();
    apart().await;
    proxy.on_next(CALLS, Fault::CutReply);
    supersede().await.expect("it is repeated");
    assert!(proxy.orders_are_done());
    nothing_is_left(&locks, "f").await;
}

/// It was stored while the request about the older ones was in flight.
#[tokio::test]
async fn a_newer_call_is_not_superseded_by_a_request_that_is_late() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let (locks, other) = (through(&proxy).await, connect(&server).await);
    let job_queue = locks.job_queue();
    let supersede = || job_queue.supersede("f".into(), "k".into(), Duration::ZERO);
    supersede().await.expect("the server knows the script");
    proxy.on_next(CALLS, Fault::HoldCommand(ms(1_500)));
    let late = supersede();
    let newer = async {
        // Long enough for the two to have an order.
        tokio::time::sleep(ms(500)).await;
        let mut job = NewJob::new("f", "newer", "[1]", "k");
        job.keep = Keep::Latest { at_most: None };
        other.job_queue().put(job).await.expect("stored");
    };
    let (late, ()) = tokio::join!(late, newer);
    proxy.held_commands_arrive().await;
    assert_eq!(late.expect("it is answered in the end"), 0);
    assert_eq!(count(&other, "f", JobState::Waiting).await, 1);
}

/// The worker of an earlier one wakes up, whose call was removed meanwhile.
#[on(memory, redis, postgres)]
async fn a_call_that_is_stored_again_has_another_worker(backend: &Backend) {
    let (locks, name) = (manager(backend).await, name("stored-for-another"));
    let job_queue = locks.job_queue();
    let job = || NewJob::new(name.as_str(), "id", "[1]", "order:1");
    job_queue.put(job()).await.expect("stored");
    let slept = take(&locks, &name, ms(50)).await;
    // Once its lease is over, another one has it, and gives it back.
    let back = Settled::Again { delay: LONG_TTL, error: "later".into() };
    let again = take(&locks, &name, LONG_TTL).await;
    assert!(job_queue.settle(again, back).await.expect("asked"));
    remove(&locks, &name, "id").await;
    job_queue.put(job()).await.expect("stored");
    let taken = take(&locks, &name, LONG_TTL).await;
    let _unknown = job_queue.settle(slept.clone(), Settled::Done).await;
    assert!(!job_queue.keep(slept, LONG_TTL).await.expect("asked"), "it is another one's");
    assert!(job_queue.keep(taken.clone(), LONG_TTL).await.expect("asked"), "it is its own");
    assert!(job_queue.settle(taken, Settled::Done).await.expect("asked"));
    forget(backend).await;
}

/// Another request for the same thing, after a person has removed the first.
#[on(memory, redis, postgres, both_runtimes)]
async fn a_call_that_is_stored_again_after_it_was_removed_is_stored(backend: &Backend) {
    let (locks, name) = (manager(backend).await, name("removed"));
    let job = |id: &str| {
        let mut job = NewJob::new(name.as_str(), id, "[1]", "order:1");
        job.delay = LONG_TTL;
        job
    };
    let job_queue = locks.job_queue();
    job_queue.put(job("waits")).await.unwrap();
    job_queue.put(NewJob::new(name.as_str(), "dies", "[1]", "order:1")).await.unwrap();
    let taken = take(&locks, &name, LONG_TTL).await;
    let dies = Settled::Dead { error: "no".into() };
    assert!(job_queue.settle(taken, dies).await.unwrap());
    remove(&locks, &name, "waits").await;
    assert_eq!(job_queue.remove_dead(name.as_str().into(), 9).await, Ok(1));
    for id in ["waits", "dies"] {
        assert_eq!(job_queue.put(job(id)).await.unwrap().due, LONG_TTL, "{id}");
    }
    assert_eq!(count(&locks, &name, JobState::Waiting).await, 2);
    for id in ["waits", "dies"] {
        remove(&locks, &name, id).await;
    }
    forget(backend).await;
}

/// Has this many answers lost by which a worker is given a call.
async fn lose(answers: usize, timeout: Duration, fault: Fault, functions: &[&str]) {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let other = connect(&server).await;
    let locks = LockManager::builder().timeout(timeout).connect(&proxy.url()).await.unwrap();
    let calls = Calls::default();
    // It would be a dead job if the first time counted.
    let function = noting("f", &calls).attempts(1);
    put(&other, &function, 0).await;
    let job = take(&other, "f", LONG_TTL).await;
    assert!(other.job_queue().settle(job, Settled::Done).await.unwrap());

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
        assert!(other.job_queue().settle(back, once).await.unwrap());
        let job = take(&other, "f", LONG_TTL).await;
        if nth > 0 {
            proxy.on_next(CALLS, Fault::CutReply);
        }
        let settled = locks.job_queue().settle(job.clone(), how.clone()).await;
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
    let job_queue = locks.job_queue();
    let (silent, other) = returned_jobs(&locks, &function).await;
    assert!(job_queue.settle(silent, Settled::Done).await.unwrap(), "nobody else has begun it");
    assert!(job_queue.settle(other, Settled::Done).await.unwrap());
    nothing_is_left(&locks, &name).await;

    // A person has it tried again, whatever the worker says.
    let (silent, other) = returned_jobs(&locks, &function).await;
    assert!(job_queue.retry(name.as_str().into(), silent.id.clone()).await.unwrap());
    assert!(!job_queue.keep(silent.clone(), LONG_TTL).await.unwrap());
    assert!(!job_queue.settle(silent, Settled::Done).await.unwrap());
    let retried = take(&locks, &name, LONG_TTL).await;
    assert!(job_queue.settle(retried, Settled::Done).await.unwrap());
    assert!(job_queue.settle(other, Settled::Done).await.unwrap());

    // Heard of again, it goes on.
    let (silent, other) = returned_jobs(&locks, &function).await;
    assert!(job_queue.keep(silent.clone(), LONG_TTL).await.unwrap());
    assert_eq!(count(&locks, &name, JobState::Running).await, 2);
    assert_eq!(count(&locks, &name, JobState::Waiting).await, 0);
    assert!(job_queue.settle(silent, Settled::Done).await.unwrap());
    assert!(job_queue.settle(other, Settled::Done).await.unwrap());
    nothing_is_left(&locks, &name).await;
    forget(backend).await;
}

#[on(memory, redis, postgres, both_runtimes)]
async fn a_late_worker_learns_that_another_one_has_ended_its_call(backend: &Backend) {
    let (locks, name) = (manager(backend).await, name("others"));
    let function = noting(&name, &Calls::default());
    let job_queue = locks.job_queue();
    let late = || Settled::Again { delay: LONG_TTL, error: "too late".into() };
    let (silent, other) = returned_jobs(&locks, &function).await;
    let mut taken = take(&locks, &name, LONG_TTL).await;
    assert_eq!(taken.id, silent.id);
    assert!(job_queue.settle(taken.clone(), Settled::Done).await.unwrap());
    for how in [Settled::Done, late(), Settled::Returned] {
        assert_eq!(job_queue.settle(silent.clone(), how).await, Ok(false), "another one's turn");
    }
    taken.claim += 1;
    assert_eq!(job_queue.settle(taken, Settled::Done).await, Ok(false), "nobody's turn");
    assert!(job_queue.settle(other, Settled::Done).await.unwrap());

    // A person has removed it.
    let (silent, other) = returned_jobs(&locks, &function).await;
    remove(&locks, &name, silent.id.clone()).await;
    assert_eq!(job_queue.settle(silent, late()).await, Ok(false), "it is gone");
    assert!(job_queue.settle(other, Settled::Done).await.unwrap());
    nothing_is_left(&locks, &name).await;
    forget(backend).await;
}

#[on(memory, redis, postgres, both_runtimes)]
async fn a_late_worker_does_not_end_what_others_count_on(backend: &Backend) {
    let (locks, name) = (manager(backend).await, name("count-on"));
    let function = noting(&name, &Calls::default()).unique();
    let job_queue = locks.job_queue();
    let (silent, other) = returned_jobs(&locks, &function).await;
    // Another caller may rely on the call being run later.
    assert!(!job_queue.settle(silent, Settled::Done).await.unwrap());
    assert!(job_queue.settle(other, Settled::Done).await.unwrap());
    let again = take(&locks, &name, LONG_TTL).await;
    assert!(job_queue.settle(again, Settled::Done).await.unwrap());
    nothing_is_left(&locks, &name).await;
    forget(backend).await;
}

#[on(memory, redis, postgres)]
async fn a_call_that_is_stored_by_hand_runs_at_once_and_once_for_its_id(backend: &Backend) {
    let (locks, calls, name) = (manager(backend).await, Calls::default(), name("by-hand"));
    let function = noting(&name, &calls).delay(LONG_TTL).unique();
    for _ in 0..2 {
        let stored = function.clone().manager(&locks).enqueue("once", (7,)).await.unwrap();
        assert_eq!((&*stored.id, stored.due), ("once", Duration::ZERO));
    }
    // The other one of the key is another call.
    function.clone().manager(&locks).enqueue("other", (8,)).await.unwrap();
    assert_eq!(count(&locks, &name, JobState::Waiting).await, 2);
    let working = start(&locks, &function);
    calls.reach(2).await;
    nothing_is_left(&locks, &name).await;
    let mut all = calls.all();
    all.sort_unstable();
    assert_eq!(all, [7, 8]);
    ends_on(backend, &locks, working).await;
}

#[on(memory, redis, postgres)]
async fn a_call_by_hand_that_could_not_be_kept_as_it_is_meant_is_refused(backend: &Backend) {
    let (locks, calls, name) = (manager(backend).await, Calls::default(), name("refused"));
    let function = noting(&name, &calls).manager(&locks);
    for id in [String::new(), "x".repeat(1_001), "a\0b".to_owned()] {
        let error = function.clone().enqueue(id, (1,)).await.expect_err("refused");
        assert!(matches!(error, LockError::InvalidSetting { setting: "id", .. }), "{error:?}");
    }
    // It has no key, so an older one could remove a newer one.
    let error = function.clone().latest().enqueue("id", (1,)).await.expect_err("refused");
    assert!(matches!(error, LockError::InvalidSetting { setting: "latest", .. }), "{error:?}");
    nothing_is_left(&locks, &name).await;
    locks.shutdown(LONG_TTL).await.expect("nothing is held");
    let error = function.enqueue("id", (1,)).await.expect_err("shut down");
    assert!(matches!(error, LockError::ShutDown { .. }), "{error:?}");
}
