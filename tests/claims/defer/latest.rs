//! One call for each key, with the arguments of the latest.

use lockmacro_runtime::defer::{JobQueue, Keep, NewJob, Settled, Stored, When};
use lockmacro_tests::Fault;
use lockmacro_tests::times::ms;

use super::*;

const LATEST: Keep = Keep::Latest { at_most: None };
/// Longer than any test takes.
const HOUR: Duration = Duration::from_secs(3600);

fn call(function: &str, id: &str, number: u64, delay: Duration, keep: Keep) -> NewJob {
    let mut job = NewJob::new(function, id, format!("[{number}]"), "k");
    (job.delay, job.keep) = (delay, keep);
    job
}

async fn click(
    job_queue: &dyn JobQueue,
    function: &str,
    (id, number): (&str, u64),
    delay: Duration,
) -> Stored {
    job_queue.put(call(function, id, number, delay, LATEST)).await.expect("stored")
}

/// The ids and the arguments of the calls that wait.
async fn waiting(locks: &LockManager, function: &str) -> Vec<(String, String)> {
    let page = locks.job_queue().list(function.into(), JobState::Waiting, 0, 9).await.unwrap();
    page.jobs.into_iter().map(|job| (job.id, job.arguments)).collect()
}

fn one(id: &str, arguments: &str) -> Vec<(String, String)> {
    vec![(id.to_owned(), arguments.to_owned())]
}

#[on(memory, redis, postgres, both_runtimes)]
async fn a_thousand_busy_clicks_are_one_call_with_the_arguments_of_the_last(backend: &Backend) {
    let (locks, calls, name) = (manager(backend).await, Calls::default(), name("latest"));
    let function = noting(&name, &calls).latest();
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
    assert_eq!(all, [7, 999]);
    ends_on(backend, &locks, working).await;
}

#[on(memory, redis, postgres, both_runtimes)]
async fn the_waiting_call_stays_due_when_it_was(backend: &Backend) {
    let (locks, name) = (manager(backend).await, name("due"));
    let job_queue = &*locks.job_queue();
    click(job_queue, &name, ("a", 1), HOUR).await;
    for (id, number, delay) in [("b", 2, Duration::ZERO), ("c", 3, HOUR * 9)] {
        let stored = click(job_queue, &name, (id, number), delay).await;
        assert_eq!(stored.id, "a");
        assert!(stored.due > HOUR / 2 && stored.due <= HOUR, "{:?}", stored.due);
        assert_eq!(waiting(&locks, &name).await, one("a", &format!("[{number}]")));
    }
    remove(&locks, &name, "a").await;
    forget(backend).await;
}

#[on(memory, redis, postgres, both_runtimes)]
async fn with_at_most_each_call_puts_it_off_up_to_that_time(backend: &Backend) {
    let (locks, name) = (manager(backend).await, name("at-most"));
    let job_queue = &*locks.job_queue();
    let keep = Keep::Latest { at_most: Some(HOUR * 6) };
    // The hours until it is due after each call.
    for (nth, (delay, due)) in [(1, 1), (2, 2), (4, 4), (9, 6), (1, 6)].into_iter().enumerate() {
        let id = format!("c{nth}");
        let job = call(&name, &id, nth as u64, HOUR * delay, keep);
        let stored = job_queue.put(job).await.unwrap();
        assert_eq!(stored.id, "c0");
        let about = stored.due > HOUR * due - HOUR / 2 && stored.due <= HOUR * due;
        assert!(about, "{due} hours: {:?}", stored.due);
    }
    assert_eq!(waiting(&locks, &name).await, one("c0", "[4]"));
    remove(&locks, &name, "c0").await;
    forget(backend).await;
}

/// A caller without an answer repeats its request, and another one may have come meanwhile.
#[on(memory, redis, postgres, both_runtimes)]
async fn a_repeated_request_does_not_replace_later_arguments(backend: &Backend) {
    let (locks, name) = (manager(backend).await, name("repeated"));
    let job_queue = &*locks.job_queue();
    for (id, number) in [("a", 1), ("b", 2), ("c", 3)] {
        click(job_queue, &name, (id, number), Duration::ZERO).await;
    }
    for (id, number) in [("a", 1), ("b", 2)] {
        assert_eq!(click(job_queue, &name, (id, number), HOUR).await.id, "a");
        assert_eq!(waiting(&locks, &name).await, one("a", "[3]"));
    }
    let job = take(&locks, &name, LONG_TTL).await;
    assert_eq!(click(job_queue, &name, ("b", 2), HOUR).await.id, "b", "it is known");
    assert!(job_queue.settle(job, Settled::Done).await.unwrap());
    nothing_is_left(&locks, &name).await;
    forget(backend).await;
}

#[on(memory, redis, postgres, both_runtimes)]
async fn a_running_call_is_not_changed(backend: &Backend) {
    let (locks, name) = (manager(backend).await, name("running"));
    let job_queue = &*locks.job_queue();
    click(job_queue, &name, ("a", 1), Duration::ZERO).await;
    let job = take(&locks, &name, LONG_TTL).await;
    for (id, number) in [("b", 2), ("c", 3)] {
        assert_eq!(click(job_queue, &name, (id, number), Duration::ZERO).await.id, "b");
    }
    let running = first(&locks, &name, JobState::Running).await.unwrap();
    assert_eq!((&*running.id, &*running.arguments), ("a", "[1]"));
    assert!(job_queue.keep(job.clone(), LONG_TTL).await.unwrap(), "it is still its worker's");
    assert!(job_queue.settle(job, Settled::Done).await.unwrap());
    let next = take(&locks, &name, LONG_TTL).await;
    assert_eq!((&*next.id, &*next.arguments, next.attempt), ("b", "[3]", 1));
    assert!(job_queue.settle(next, Settled::Done).await.unwrap());
    nothing_is_left(&locks, &name).await;
    forget(backend).await;
}

#[on(memory, redis, postgres, both_runtimes)]
async fn a_call_that_waits_again_gives_way_to_a_later_one(backend: &Backend) {
    let (locks, name) = (manager(backend).await, name("gives-way"));
    let job_queue = &*locks.job_queue();
    let again = || Settled::Again { delay: HOUR, error: "no".into() };
    let busy = || Settled::Busy { delay: HOUR, error: "no".into() };
    for (nth, how) in [again(), busy(), Settled::Returned].into_iter().enumerate() {
        let (one_id, other) = (format!("one{nth}"), format!("other{nth}"));
        click(job_queue, &name, (&one_id, 1), Duration::ZERO).await;
        let job = take(&locks, &name, LONG_TTL).await;
        click(job_queue, &name, (&other, 2), Duration::ZERO).await;
        assert!(job_queue.settle(job.clone(), how).await.unwrap());
        assert_eq!(waiting(&locks, &name).await, one(&other, "[2]"));
        assert!(!job_queue.keep(job, LONG_TTL).await.unwrap(), "it is gone");
        let left = take(&locks, &name, LONG_TTL).await;
        assert_eq!((&*left.id, &*left.arguments), (&*other, "[2]"));
        assert!(job_queue.settle(left, Settled::Done).await.unwrap());
        nothing_is_left(&locks, &name).await;
    }
    forget(backend).await;
}

#[on(memory, redis, postgres, both_runtimes)]
async fn new_arguments_have_all_attempts_and_no_worker_yet(backend: &Backend) {
    let (locks, name) = (manager(backend).await, name("anew"));
    let job_queue = &*locks.job_queue();
    click(job_queue, &name, ("a", 1), Duration::ZERO).await;
    for how in [
        Settled::Again { delay: Duration::ZERO, error: "no".into() },
        Settled::Busy { delay: Duration::ZERO, error: "no".into() },
    ] {
        let job = take(&locks, &name, LONG_TTL).await;
        assert!(job_queue.settle(job, how).await.unwrap());
    }
    // The lease of its next worker ends.
    let late = take(&locks, &name, SHORT_DELAY).await;
    assert_eq!((late.attempt, late.busy), (2, 1));
    let other = take(&locks, &name, LONG_TTL).await;
    let pause = Settled::Again { delay: HOUR, error: "no".into() };
    assert!(job_queue.settle(other.clone(), pause).await.unwrap());

    assert_eq!(click(job_queue, &name, ("b", 2), Duration::ZERO).await.id, "a");
    for before in [late, other] {
        assert!(!job_queue.keep(before.clone(), LONG_TTL).await.unwrap());
        assert!(!job_queue.settle(before, Settled::Done).await.unwrap());
    }
    let info = first(&locks, &name, JobState::Waiting).await.unwrap();
    assert_eq!((info.attempts, info.busy, &*info.arguments), (0, 0, "[2]"));
    let is_due = matches!(info.when, When::Ago(_) | When::In(Duration::ZERO));
    assert!(is_due, "the pause is over: {:?}", info.when);
    // From here on it is as a first one, which others do not put off.
    assert_eq!(click(job_queue, &name, ("c", 2), HOUR).await.due, Duration::ZERO);
    let job = take(&locks, &name, LONG_TTL).await;
    assert_eq!((job.attempt, job.busy, &*job.arguments), (1, 0, "[2]"));
    assert!(job_queue.settle(job, Settled::Done).await.unwrap());
    nothing_is_left(&locks, &name).await;
    forget(backend).await;
}

/// A click whose lock was busy is stored, and a later one gets the lock.
#[on(memory, redis, postgres, both_runtimes)]
async fn a_call_that_has_the_lock_supersedes_those_that_were_stored_before_it(backend: &Backend) {
    let (locks, name) = (manager(backend).await, name("superseded"));
    let job_queue = &*locks.job_queue();
    let now = |key: &str, began| job_queue.supersede(name.as_str().into(), key.into(), began);
    click(job_queue, &name, ("a", 1), HOUR).await;
    job_queue.put(call(&name, "all", 9, HOUR, Keep::All)).await.unwrap();
    assert_eq!(now("k", HOUR).await, Ok(0), "it is newer than the one with the lock");
    assert_eq!(now("other", Duration::ZERO).await, Ok(0));
    assert_eq!(waiting(&locks, &name).await.len(), 2);
    apart().await;
    assert_eq!(now("k", Duration::ZERO).await, Ok(1));
    // As after an answer that was lost.
    assert_eq!(now("k", Duration::ZERO).await, Ok(0));
    assert_eq!(waiting(&locks, &name).await, one("all", "[9]"));

    // One whose worker has it waits for the lock.
    click(job_queue, &name, ("b", 2), Duration::ZERO).await;
    let taken = take(&locks, &name, LONG_TTL).await;
    click(job_queue, &name, ("c", 3), HOUR).await;
    apart().await;
    assert_eq!(now("k", Duration::ZERO).await, Ok(2));
    assert!(!job_queue.keep(taken.clone(), LONG_TTL).await.unwrap(), "it must not run");
    let pause = Settled::Again { delay: Duration::ZERO, error: "no".into() };
    let _late = job_queue.settle(taken, pause).await.unwrap();
    assert_eq!(waiting(&locks, &name).await, one("all", "[9]"), "it does not come back");
    assert_eq!(click(job_queue, &name, ("d", 4), HOUR).await.id, "d", "the key is free for others");
    for id in ["all", "d"] {
        remove(&locks, &name, id).await;
    }
    nothing_is_left(&locks, &name).await;
    forget(backend).await;
}

/// The older call has failed, and its worker has not reported that when the newer one has the lock.
#[on(memory, redis, postgres)]
async fn a_call_that_a_worker_runs_supersedes_those_that_were_stored_before_it(backend: &Backend) {
    let (locks, name) = (manager(backend).await, name("failed-before"));
    let job_queue = &*locks.job_queue();
    for (reported_before, first, second) in [(false, "a", "b"), (true, "c", "d")] {
        click(job_queue, &name, (first, 1), Duration::ZERO).await;
        let older = take(&locks, &name, LONG_TTL).await;
        tokio::time::sleep(ms(5)).await;
        click(job_queue, &name, (second, 2), Duration::ZERO).await;
        let newer = take(&locks, &name, LONG_TTL).await;
        let again = Settled::Again { delay: Duration::ZERO, error: "no".into() };
        if reported_before {
            assert!(job_queue.settle(older.clone(), again.clone()).await.unwrap());
        }
        assert_eq!(job_queue.supersede_older(older.clone()).await, Ok(0), "the other is newer");
        assert_eq!(job_queue.supersede_older(newer.clone()).await, Ok(1));
        let _late = job_queue.settle(older, again).await.unwrap();
        assert_eq!(waiting(&locks, &name).await, [], "it does not come back");
        assert!(job_queue.settle(newer, Settled::Done).await.unwrap());
        nothing_is_left(&locks, &name).await;
        forget(backend).await;
    }
}

/// As after a failover to a server whose clock is behind.
#[on(redis)]
async fn a_call_from_the_future_of_the_server_is_not_superseded(backend: &Backend) {
    let (locks, name) = (manager(backend).await, name("future"));
    let job_queue = &*locks.job_queue();
    click(job_queue, &name, ("a", 1), HOUR).await;
    let mut admin = backend.admin().expect("a server");
    let calls = admin.keys().into_iter().filter(|key| key.contains(&name));
    let stored = |key: &String| {
        let kind: String = admin.ask(&["TYPE", key]);
        kind == "hash" && admin.ask::<i64>(&["HEXISTS", key, "a#u"]) == 1
    };
    let calls: Vec<_> = calls.filter(stored).collect();
    assert_eq!(calls.len(), 1);
    admin.ask::<i64>(&["HINCRBY", &calls[0], "a#u", "60000"]);
    let superseded = job_queue.supersede(name.as_str().into(), "k".into(), Duration::ZERO);
    assert_eq!(superseded.await, Ok(0));
    remove(&locks, &name, "a").await;
    forget(backend).await;
}

/// As the answer came late, the older call could have been stored after the newer one began.
#[on(redis, postgres)]
async fn a_late_answer_leaves_no_older_call_behind(backend: &Backend) {
    let (proxies, url) = backend.proxies();
    let locks = patient().connect(&url).await.expect("it is there");
    let name = name("late-answer");
    let job_queue = &*locks.job_queue();
    let now = || job_queue.supersede(name.as_str().into(), "k".into(), Duration::ZERO);
    // The server knows the scripts.
    assert_eq!(now().await, Ok(0));
    click(job_queue, &name, ("a", 1), HOUR).await;
    apart().await;
    proxies[0].on_next_with(&name, Fault::DelayReply(ms(1_500)));
    assert_eq!(now().await, Ok(1));
    assert!(proxies[0].orders_are_done());
    nothing_is_left(&locks, &name).await;
    forget(backend).await;
}

/// Each new version of a program may keep another one of the calls. A call that was stored without
/// `at_most` is as one of an earlier version of lockmacro.
#[on(memory, redis, postgres, both_runtimes)]
async fn the_new_call_says_which_arguments_stay(backend: &Backend) {
    let (locks, name) = (manager(backend).await, name("mixed"));
    let job_queue = &*locks.job_queue();
    let latest = Keep::Latest { at_most: Some(HOUR * 9) };
    for (id, number, keep, kept) in [
        ("a", 1, Keep::First, "[1]"),
        ("b", 2, latest, "[2]"),
        ("c", 3, Keep::First, "[2]"),
        ("d", 4, LATEST, "[4]"),
    ] {
        let stored = job_queue.put(call(&name, id, number, HOUR, keep)).await.unwrap();
        assert_eq!(stored.id, "a");
        assert!(stored.due <= HOUR, "it is put off by nothing: {:?}", stored.due);
        assert_eq!(waiting(&locks, &name).await, one("a", kept));
    }
    // Calls that are all kept stay as they are.
    job_queue.put(call(&name, "e", 5, HOUR * 2, Keep::All)).await.unwrap();
    click(job_queue, &name, ("f", 6), HOUR).await;
    let both = [one("a", "[6]"), one("e", "[5]")].concat();
    assert_eq!(waiting(&locks, &name).await, both);
    for id in ["a", "e"] {
        remove(&locks, &name, id).await;
    }
    forget(backend).await;
}

#[on(memory, redis, postgres, both_runtimes)]
async fn calls_that_come_at_once_are_one_and_none_of_them_runs_twice(backend: &Backend) {
    const CALLS: u64 = 40;
    let (both, name) = ([manager(backend).await, manager(backend).await], name("at-once"));
    let come = (0..CALLS).map(|nth| {
        let (job_queue, name) = (both[nth as usize % 2].job_queue(), &name);
        async move {
            let id = format!("c{nth}");
            // The second is the repetition of a request that is under way.
            let job = || call(name, &id, nth, HOUR, LATEST);
            let (one, other) = futures::join!(job_queue.put(job()), job_queue.put(job()));
            [one.expect("stored").id, other.expect("stored").id]
        }
    });
    let ids = futures::future::join_all(come).await.concat();
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    let left = waiting(&both[0], &name).await;
    assert_eq!((left.len(), &left[0].0), (1, &ids[0]));
    remove(&both[0], &name, &*ids[0]).await;
    forget(backend).await;
}
