//! One call for each key.

use lockmacro_runtime::defer::{JobQueue, Keep, NewJob, Settled};

use super::*;

#[on(memory, redis, postgres, both_runtimes)]
async fn a_thousand_busy_clicks_are_one_call(backend: &Backend) {
    let (locks, calls, name) = (manager(backend).await, Calls::default(), name("clicks"));
    let function = noting(&name, &calls).unique();
    let key = backend.key("order:42");
    let held = hold(&locks, &key).await;
    a_thousand_clicks(&locks, &function, &key).await;
    assert_eq!(count(&locks, &name, JobState::Waiting).await, 1);
    held.release().await.unwrap();

    // Of another key it is another one.
    put(&locks, &function, 7).await;
    let working = start(&locks, &function);
    calls.reach(2).await;
    nothing_is_left(&locks, &name).await;
    let mut all = calls.all();
    all.sort_unstable();
    assert_eq!(all, [0, 7], "the first call's arguments stay");

    // A call that is done does not count any more.
    let held = hold(&locks, &key).await;
    let again = defer(&locks, &function, &key, (8,)).await;
    assert!(matches!(again, LockError::Deferred { .. }));
    held.release().await.unwrap();
    calls.reach(3).await;
    nothing_is_left(&locks, &name).await;
    ends_on(backend, &locks, working).await;
}

/// An application may seed its random numbers, in every process alike.
#[on(memory, redis, postgres, both_runtimes)]
async fn calls_of_processes_that_seed_alike_are_two(backend: &Backend) {
    let (locks, calls, name) = (manager(backend).await, Calls::default(), name("seeded"));
    let function = noting(&name, &calls).delay(LONG_TTL);
    fastrand::seed(42);
    let one = put(&locks, &function, 1).await;
    fastrand::seed(42);
    let other = put(&locks, &function, 2).await;
    assert_ne!(one, other);
    assert_eq!(count(&locks, &name, JobState::Waiting).await, 2);
    for id in [one, other] {
        remove(&locks, &name, id).await;
    }
    forget(backend).await;
}

async fn click(job_queue: &dyn JobQueue, function: &str, id: &str, delay: Duration) -> String {
    let mut job = NewJob::new(function, id, "[1]", "k");
    (job.delay, job.keep) = (delay, Keep::First);
    job_queue.put(job).await.expect("stored").id
}

#[on(memory, redis, postgres, both_runtimes)]
async fn a_call_that_waits_again_is_one_with_a_later_one_of_its_key(backend: &Backend) {
    let (locks, name) = (manager(backend).await, name("again"));
    let job_queue = &*locks.job_queue();
    click(job_queue, &name, "a", Duration::ZERO).await;
    for round in 0..20 {
        let job = take(&locks, &name, LONG_TTL).await;
        // It may have begun too early for this one.
        let next = click(job_queue, &name, &format!("c{round}"), LONG_TTL).await;
        assert_eq!(next, format!("c{round}"), "one that runs is not enough");
        assert!(
            job_queue
                .settle(job, Settled::Again { delay: Duration::ZERO, error: "busy".into() })
                .await
                .unwrap()
        );
        assert_eq!(count(&locks, &name, JobState::Waiting).await, 1);
        assert_eq!(click(job_queue, &name, "more", LONG_TTL).await, next, "it waits");
    }
    // It is due when the first of both is.
    let last = take(&locks, &name, LONG_TTL).await;
    assert_eq!(last.id, "c19");
    click(job_queue, &name, "z", Duration::ZERO).await;
    assert!(
        job_queue
            .settle(last.clone(), Settled::Again { delay: LONG_TTL, error: "busy".into() })
            .await
            .unwrap()
    );
    assert!(!job_queue.keep(last, LONG_TTL).await.unwrap(), "it is gone");
    let last = take(&locks, &name, LONG_TTL).await;
    assert_eq!(last.id, "z");
    assert!(job_queue.settle(last, Settled::Done).await.unwrap());
    nothing_is_left(&locks, &name).await;
    assert_eq!(click(job_queue, &name, "next", LONG_TTL).await, "next", "none waits");
    remove(&locks, &name, "next".to_owned()).await;
    forget(backend).await;
}

#[on(memory, redis, postgres, both_runtimes)]
async fn a_call_that_goes_back_is_one_with_a_later_one_of_its_key(backend: &Backend) {
    let (locks, name) = (manager(backend).await, name("back"));
    let job_queue = &*locks.job_queue();
    // Its worker gives it back, or is not heard of, or it was given up and a person has it tried
    // again.
    for (nth, how) in [Some(Settled::Returned), None, Some(Settled::Dead { error: "no".into() })]
        .into_iter()
        .enumerate()
    {
        let (one, other) = (format!("one{nth}"), format!("other{nth}"));
        click(job_queue, &name, &one, Duration::ZERO).await;
        let job = take(&locks, &name, if how.is_none() { SHORT_DELAY } else { LONG_TTL }).await;
        assert_eq!(click(job_queue, &name, &other, LONG_TTL).await, other);
        if let Some(how) = how {
            assert!(job_queue.settle(job, how).await.unwrap());
            job_queue.retry(name.as_str().into(), one).await.unwrap();
        }
        let left = take(&locks, &name, LONG_TTL).await;
        let tried = if nth == 1 { 2 } else { 1 };
        assert_eq!((left.id.as_str(), left.attempt), (&*other, tried), "it stands for both");
        assert_eq!(count(&locks, &name, JobState::Waiting).await, 0);
        assert_eq!(count(&locks, &name, JobState::Dead).await, 0);
        assert!(job_queue.settle(left, Settled::Done).await.unwrap());
        nothing_is_left(&locks, &name).await;
    }
    forget(backend).await;
}

#[on(memory, redis, postgres, both_runtimes)]
async fn a_call_that_always_fails_becomes_a_dead_job_however_often_it_is_stored(backend: &Backend) {
    const ATTEMPTS: u32 = 5;
    let (locks, name) = (manager(backend).await, name("fails"));
    let job_queue = &*locks.job_queue();
    click(job_queue, &name, "click0", Duration::ZERO).await;
    let mut tries = Vec::new();
    for nth in 1..=ATTEMPTS {
        let job = take(&locks, &name, LONG_TTL).await;
        tries.push(job.attempt);
        assert_eq!((&*job.id, job.busy), (&*format!("click{}", nth - 1), (nth - 1) / 2));
        // While it runs, it is wanted again.
        click(job_queue, &name, &format!("click{nth}"), Duration::ZERO).await;
        let error = || format!("error {nth}");
        let how = match nth {
            ATTEMPTS => Settled::Dead { error: error() },
            // To be busy is no failure, and is counted as well.
            _ if nth % 2 == 0 => Settled::Busy { delay: LONG_TTL, error: error() },
            _ => Settled::Again { delay: LONG_TTL, error: error() },
        };
        assert!(job_queue.settle(job, how).await.unwrap());
        if nth < ATTEMPTS {
            let page = job_queue.list(name.as_str().into(), JobState::Waiting, 0, 9).await.unwrap();
            assert_eq!((page.total, page.jobs[0].error.clone()), (1, Some(error())));
        }
    }
    assert_eq!(tries, [1, 2, 2, 3, 3], "as if it had been one call");
    // Given up, it is another one's turn from the start.
    let fresh = take(&locks, &name, LONG_TTL).await;
    assert_eq!((fresh.attempt, fresh.busy), (1, 0));
    assert!(job_queue.settle(fresh, Settled::Done).await.unwrap());
    assert_eq!(job_queue.remove_dead(name.as_str().into(), 9).await, Ok(1));
    nothing_is_left(&locks, &name).await;
    forget(backend).await;
}
