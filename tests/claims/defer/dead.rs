//! Calls that no worker can run.

use std::time::{SystemTime, UNIX_EPOCH};

use lockmacro_runtime::defer::{NewJob, Settled, When};
use lockmacro_tests::times::ms;
use lockmacro_tests::{Clock, Server};

use super::*;

/// Two versions share no memory.
#[on(redis, postgres, both_runtimes)]
async fn arguments_that_a_worker_cannot_read_are_left_to_one_that_can(backend: &Backend) {
    let (locks, calls, name) = (manager(backend).await, Calls::default(), name("unfit"));
    // Another version of the program has stored the call, and runs beside this one.
    let before = noting(&name, &calls).attempts(1);
    put(&locks, &before, 42).await;
    let now = DeferredFn::new(&*name, (argument("number"),), |(_,): (String,)| async {
        Ok::<(), LockError>(())
    });
    let working = start(&locks, &now.delay(SHORT_DELAY).attempts(1));
    let left = Mutex::new(String::new());
    eventually("it is left to others, again and again", TEST_TIMEOUT, async || {
        let waiting = first(&locks, &name, JobState::Waiting).await;
        let again = waiting.filter(|job| job.busy > 1 && job.attempts == 0);
        let error = again.and_then(|job| job.error);
        error.map(|error| *left.lock().unwrap() = error).is_some()
    })
    .await;
    let error = left.into_inner().unwrap();
    // The stored arguments must not appear in logs.
    assert!(error.contains("`number`: what is stored is no ") && !error.contains("42"), "{error}");
    assert_eq!(count(&locks, &name, JobState::Dead).await, 0);
    // Whoever is first takes it when it is due, which is later each time.
    let knowing = [start(&locks, &before), start(&locks, &before), start(&locks, &before)];
    calls.reach(1).await;
    nothing_is_left(&locks, &name).await;
    ends(&locks, working).await;
    for knowing in knowing {
        knowing.await.unwrap().unwrap();
    }
    forget(backend).await;
}

/// A program of before has stored the call without the argument.
#[on(memory, redis, postgres)]
async fn an_option_that_was_added_at_the_end_is_none_for_calls_of_before(backend: &Backend) {
    let (locks, calls, name) = (manager(backend).await, Calls::default(), name("added"));
    put(&locks, &noting(&name, &calls), 42).await;
    let (with, noted) = ((argument("number"), argument("note")), calls.clone());
    let now = DeferredFn::new(&*name, with, move |(number, note): (u64, Option<String>)| {
        noted.add(if note.is_none() { number } else { 0 });
        async { Ok::<(), LockError>(()) }
    });
    let working = start(&locks, &now);
    calls.reach(1).await;
    assert_eq!(calls.all(), [42]);
    nothing_is_left(&locks, &name).await;
    ends_on(backend, &locks, working).await;
}

#[on(memory, redis, postgres, both_runtimes)]
async fn a_function_that_a_worker_does_not_know_is_left_to_one_that_does(backend: &Backend) {
    let (locks, calls) = (manager(backend).await, Calls::default());
    let (known, unknown) = (name("known"), name("unknown"));
    let (function, other) = (noting(&known, &calls), noting(&unknown, &calls));
    put(&locks, &other, 1).await;
    put(&locks, &function, 2).await;
    let working = start(&locks, &function);
    calls.reach(1).await;
    assert_eq!(calls.all(), [2]);
    assert_eq!(count(&locks, &unknown, JobState::Waiting).await, 1, "it can be seen");
    let knowing = start(&locks, &other);
    calls.reach(2).await;
    nothing_is_left(&locks, &unknown).await;
    ends(&locks, working).await;
    knowing.await.unwrap().unwrap();
    forget(backend).await;
}

#[on(memory, redis, postgres, both_runtimes)]
async fn a_call_whose_workers_die_in_every_attempt_is_a_dead_job(backend: &Backend) {
    let (locks, calls) = (manager(backend).await, Calls::default());
    // Two attempts, and one more, because one may have got lost on its way to a worker.
    for (deaths, is_run) in [(2, true), (3, false)] {
        let name = name("fatal");
        let function = noting(&name, &calls).attempts(2);
        put(&locks, &function, deaths).await;
        for _ in 0..deaths {
            // Its worker is not heard of any more.
            take(&locks, &name, SHORT_DELAY).await;
        }
        let working = start(&locks, &function);
        if is_run {
            calls.reach(1).await;
        } else {
            let dead = dead_job(&locks, &name).await;
            let expected = "3 runs have ended without a report: \
                            look for workers that crash or block, then retry the job";
            assert_eq!(dead.error.as_deref(), Some(expected));
            remove(&locks, &name, dead.id).await;
        }
        nothing_is_left(&locks, &name).await;
        working.abort();
    }
    assert_eq!(calls.all(), [2], "a dead job is not run");
    locks.shutdown(TEST_TIMEOUT).await.unwrap();
    forget(backend).await;
}

/// Gives the dead job that is left of a call of `function`.
async fn last_error(backend: &Backend, function: DeferredFn<(u64,)>) -> String {
    let (locks, name) = (manager(backend).await, function.name().to_owned());
    let function = function.attempts(1).delay(SHORT_DELAY);
    put(&locks, &function, 1).await;
    let working = start(&locks, &function);
    let dead = dead_job(&locks, &name).await;
    remove(&locks, &name, dead.id).await;
    ends_on(backend, &locks, working).await;
    dead.error.expect("it failed")
}

#[on(memory, redis, postgres, both_runtimes)]
async fn an_error_that_is_long_is_kept_in_part(backend: &Backend) {
    // Of three bytes each, so that no end is one of a character by chance.
    for odd in ["", "x", "xx"] {
        let long = format!("it failed: {odd}{}", "€".repeat(1 << 20));
        let text = long.clone();
        let function = DeferredFn::new(name("long"), (argument("number"),), move |(_,)| {
            let text = text.clone();
            async { Err::<(), String>(text) }
        });
        let error = last_error(backend, function).await;
        let kept = error.strip_suffix('…').expect("the error shows that this is not all");
        assert!(long.starts_with(kept));
        assert!((2_000..=2_048).contains(&error.len()), "{} bytes are kept", error.len());
    }
}

#[on(memory, redis, postgres, both_runtimes)]
async fn a_panic_is_reported_with_its_message(backend: &Backend) {
    let panics = |number: u64| -> Result<(), String> {
        match number {
            0 => Ok(()),
            number => panic!("no order {number}"),
        }
    };
    let of = (argument("number"),);
    let function =
        DeferredFn::new(name("panics"), of, move |(number,)| async move { panics(number) });
    assert_eq!(last_error(backend, function).await, "it panicked: no order 1");
    let of = (argument("number"),);
    let function = DeferredFn::blocking(name("panics"), of, move |(number,)| panics(number));
    assert_eq!(last_error(backend, function).await, "it panicked: no order 1");
}

#[on(memory, redis, postgres, both_runtimes)]
async fn all_dead_jobs_are_tried_again_or_removed_in_batches(backend: &Backend) {
    const DEAD: u64 = 25;
    let (locks, calls, name) = (manager(backend).await, Calls::default(), name("all"));
    let (function, of) = (noting(&name, &calls), Arc::<str>::from(&*name));
    let job_queue = locks.job_queue();
    for number in 0..DEAD {
        put(&locks, &function.clone().delay(Duration::ZERO), number).await;
        let taken = take(&locks, &name, LONG_TTL).await;
        assert_eq!(
            job_queue.settle(taken, Settled::Dead { error: "out of stock".into() }).await,
            Ok(true)
        );
    }
    let late = put(&locks, &function.clone().delay(LONG_TTL), 99).await;
    for none in ["", "another"] {
        assert_eq!(job_queue.retry(Arc::clone(&of), none.to_owned()).await, Ok(false));
        assert_eq!(job_queue.remove(Arc::clone(&of), none.to_owned()).await, Ok(false));
    }
    assert_eq!(job_queue.retry_dead(Arc::clone(&of), 0).await, Ok(0));
    assert_eq!(job_queue.remove_dead(Arc::clone(&of), 0).await, Ok(0));
    assert_eq!(count(&locks, &name, JobState::Dead).await, DEAD as usize);
    assert_eq!(job_queue.remove_dead(Arc::clone(&of), 5).await, Ok(5));
    assert_eq!(job_queue.retry_dead(Arc::clone(&of), 10).await, Ok(10));
    assert_eq!(count(&locks, &name, JobState::Dead).await, 10);
    assert_eq!(job_queue.retry_dead(Arc::clone(&of), 1_000_000).await, Ok(10));
    assert_eq!(job_queue.retry_dead(Arc::clone(&of), 10).await, Ok(0));
    let working = start(&locks, &function);
    calls.reach(DEAD as usize - 5).await;
    let mut all = calls.all();
    all.sort_unstable();
    assert_eq!(all, (5..DEAD).collect::<Vec<_>>(), "the oldest were removed, and the others run");
    assert_eq!(count(&locks, &name, JobState::Waiting).await, 1, "a waiting call is none of them");
    assert!(job_queue.remove(of, late).await.unwrap());
    nothing_is_left(&locks, &name).await;
    ends_on(backend, &locks, working).await;
}

/// They are of one millisecond of the server, and their ids are in another order.
#[tokio::test]
async fn dead_jobs_of_one_moment_are_in_the_order_in_which_they_were_given_up() {
    const IDS: [&str; 6] = ["e", "b", "f", "a", "d", "c"];
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("later");
    let clock = Arc::new(Clock::at(now));
    let server = Server::with_clock(Arc::clone(&clock));
    let locks = LockManager::builder().timeout(LONG_TTL).connect(&server.url()).await.unwrap();
    let (job_queue, function) = (locks.job_queue(), Arc::<str>::from("dead"));
    let give_up = async |id: &str| {
        let taken = take(&locks, "dead", LONG_TTL).await;
        assert_eq!(taken.id, id);
        assert_eq!(
            job_queue.settle(taken, Settled::Dead { error: "out of stock".into() }).await,
            Ok(true)
        );
    };
    let dead = async || {
        let page = job_queue.list(Arc::clone(&function), JobState::Dead, 0, 10).await.unwrap();
        assert!(
            page.jobs.iter().all(|job| matches!(job.when, When::Ago(_) | When::In(Duration::ZERO))),
            "it was before now"
        );
        page.jobs.into_iter().map(|job| job.id).collect::<Vec<_>>()
    };
    for id in IDS {
        job_queue.put(NewJob::new(Arc::clone(&function), id, "[42]", "order:42")).await.unwrap();
        give_up(id).await;
    }
    assert_eq!(dead().await, IDS);
    assert_eq!(job_queue.remove_dead(Arc::clone(&function), 2).await, Ok(2));
    assert_eq!(dead().await, IDS[2..]);
    assert_eq!(job_queue.retry_dead(Arc::clone(&function), 2).await, Ok(2));
    assert_eq!(dead().await, IDS[4..]);
    // One that is given up again is the latest, also while the clock of the server is behind.
    clock.set(now - ms(5));
    remove(&locks, "dead", "f").await;
    assert_eq!(job_queue.retry(Arc::clone(&function), "d".to_owned()).await, Ok(true));
    remove(&locks, "dead", "a").await;
    give_up("d").await;
    clock.set(now);
    assert_eq!(dead().await, ["c", "d"]);
}
