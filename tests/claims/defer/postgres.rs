//! What is particular to calls that are kept in PostgreSQL.

use lockmacro_runtime::defer::{DEAD_MAX, Keep, NewJob, Settled, TakeOptions, WAITING_MAX};
use lockmacro_tests::Postgres;

use super::*;

async fn connect(server: &Postgres) -> LockManager {
    patient().connect(&server.url()).await.expect("it is there")
}

/// Has so many calls of `f` in one state, by number, the first one the earliest.
fn fill(server: &Postgres, state: &str, count: usize) {
    server.ask(&format!(
        "INSERT INTO lm1.call (function, id, arguments, key, single, attempts, state, at)
            SELECT 'f', 'id' || n, '[1]', 'k', false, 10, '{state}',
                clock_timestamp() + interval '1 h' + n * interval '1 us'
            FROM generate_series(1, {count}) n"
    ));
}

#[tokio::test]
async fn a_bounded_number_of_calls_of_a_function_wait() {
    let server = Postgres::start().await;
    let locks = connect(&server).await;
    let job_queue = locks.job_queue();
    fill(&server, "waiting", WAITING_MAX - 1);
    let put = |function: &str, id: &str| job_queue.put(NewJob::new(function, id, "[1]", "k"));
    put("f", "last").await.expect("one more has room");
    // The number may be some seconds old.
    server.ask("UPDATE lm1.crowd SET counted = '-infinity'");
    let LockError::Unavailable { detail, .. } = put("f", "more").await.unwrap_err() else {
        panic!("not refused for its number")
    };
    let expected = "1000000 jobs of `f` wait already: run more workers, or defer fewer calls";
    assert_eq!(detail, expected);
    assert_eq!(count(&locks, "f", JobState::Waiting).await, WAITING_MAX);
    put("f", "last").await.expect("it is stored already");
    put("other", "id").await.expect("another function has a queue of its own");
    remove(&locks, "f", "id1").await;
    put("f", "more").await.expect("there is room at once");
}

#[tokio::test]
async fn a_bounded_number_of_dead_jobs_is_kept_the_latest_ones() {
    let server = Postgres::start().await;
    let locks = connect(&server).await;
    let job_queue = locks.job_queue();
    fill(&server, "dead", DEAD_MAX);
    server.ask("UPDATE lm1.call SET at = at - interval '2 h'");
    job_queue.put(NewJob::new("f", "latest", "[1]", "k")).await.unwrap();
    let job = take(&locks, "f", LONG_TTL).await;
    let how = Settled::Dead { error: "out of stock".into() };
    assert_eq!(job_queue.settle(job, how).await, Ok(true));
    let page = job_queue.list("f".into(), JobState::Dead, 0, 1).await.unwrap();
    assert_eq!((page.total, &*page.jobs[0].id), (DEAD_MAX, "id2"), "the oldest is forgotten");
    remove(&locks, "f", "latest").await;
}

/// Each request is repeated until it is answered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_call_is_run_once_though_connections_are_lost_all_the_time() {
    const CALLS: u64 = 300;
    const KILL: &str = "SELECT pg_terminate_backend(pid)::text FROM pg_stat_activity
        WHERE application_name = 'lockmacro'";
    let server = Postgres::start().await;
    let (locks, calls) = (connect(&server).await, Calls::default());
    let function = noting("f", &calls).delay(Duration::ZERO);
    let mut working = Vec::new();
    for _ in 0..3 {
        let locks = connect(&server).await;
        working.push((start(&locks, &function), locks));
    }
    let store = async {
        for number in 0..CALLS {
            let job = NewJob::new("f", number.to_string(), format!("[{number}]"), "k");
            locks.job_queue().put(job).await.expect("stored");
            if number % 10 == 0 {
                // Those in the middle of something, and those that wait for a push.
                server.ask(KILL);
            }
        }
    };
    store.await;
    calls.reach(CALLS as usize).await;
    nothing_is_left(&locks, "f").await;
    let all: std::collections::BTreeSet<_> = calls.all().into_iter().collect();
    assert_eq!((calls.all().len(), all.len()), (CALLS as usize, CALLS as usize), "each once");
    for (working, locks) in working {
        ends(&locks, working).await;
    }
}

#[tokio::test]
async fn a_call_whose_answer_was_late_is_handed_to_the_worker_again() {
    let server = Postgres::start().await;
    let near = connect(&server).await;
    near.job_queue().put(NewJob::new("f", "id", "[1]", "k")).await.unwrap();
    let late = "CREATE FUNCTION late() RETURNS trigger LANGUAGE plpgsql AS $$
            BEGIN PERFORM pg_sleep(1); RETURN NULL; END $$;
        CREATE TRIGGER late AFTER UPDATE ON lm1.call
            FOR EACH ROW WHEN (OLD.state = 'waiting') EXECUTE FUNCTION public.late()";
    server.connect().await.batch_execute(late).await.unwrap();
    let far = LockManager::builder().timeout(Duration::from_millis(700));
    let job_queue = far.connect(&server.url()).await.unwrap().job_queue();
    // Its lease ends long after this test.
    let order = || TakeOptions::new(["f"], 1, LONG_TTL * 60);
    let is_taken = async {
        loop {
            // Its manager gives up a request before that one is answered.
            if let Ok(mut jobs) = job_queue.take(order(), Box::pin(pending())).await {
                break jobs.remove(0);
            }
        }
    };
    let job = tokio::time::timeout(TEST_TIMEOUT, is_taken).await.expect("it is not lost");
    let taken = server.ask("SELECT (claim - settled)::text FROM lm1.call");
    assert_eq!((job.attempt, taken), (1, vec!["1".to_owned()]), "once");
    assert!(near.job_queue().settle(job, Settled::Done).await.unwrap());
}

/// A transaction that holds a call's row stands for one that commits just then.
#[tokio::test]
async fn a_call_that_another_worker_takes_just_now_holds_up_no_other() {
    let server = Postgres::start().await;
    let locks = connect(&server).await;
    for id in ["one", "two"] {
        locks.job_queue().put(NewJob::new("f", id, "[1]", "k")).await.unwrap();
    }
    let other = server.connect().await;
    let held = "BEGIN; SELECT FROM lm1.call WHERE id = 'one' FOR UPDATE";
    other.batch_execute(held).await.unwrap();
    let order = || TakeOptions::new(["f"], 2, LONG_TTL);
    let taken = locks.job_queue().take(order(), Box::pin(pending())).await.unwrap();
    assert_eq!(taken.iter().map(|job| &*job.id).collect::<Vec<_>>(), ["two"]);
    other.batch_execute("ROLLBACK").await.unwrap();
    let taken = locks.job_queue().take(order(), Box::pin(pending())).await.unwrap();
    assert_eq!(taken.iter().map(|job| &*job.id).collect::<Vec<_>>(), ["one"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn single_calls_of_one_key_that_come_and_go_at_once_are_one() {
    const ROUNDS: u64 = 40;
    let server = Postgres::start().await;
    let locks = [connect(&server).await, connect(&server).await];
    let come_and_go = locks.iter().enumerate().map(|(nth, locks)| async move {
        let job_queue = locks.job_queue();
        for round in 0..ROUNDS {
            let mut job = NewJob::new("f", format!("{nth}-{round}"), "[1]", "k");
            job.keep = Keep::First;
            job_queue.put(job).await.expect("stored");
            let soon = tokio::time::sleep(Duration::from_millis(1));
            let order = TakeOptions::new(["f"], 2, LONG_TTL);
            for job in job_queue.take(order, Box::pin(soon)).await.expect("asked") {
                job_queue.settle(job, Settled::Returned).await.expect("settled");
            }
            assert!(count(locks, "f", JobState::Waiting).await <= 1);
        }
    });
    futures::future::join_all(come_and_go).await;
    let left = take(&locks[0], "f", LONG_TTL).await;
    assert!(locks[0].job_queue().settle(left, Settled::Done).await.unwrap());
    nothing_is_left(&locks[0], "f").await;
}

#[tokio::test]
async fn a_repeated_request_for_the_latest_call_waits_for_the_first_one() {
    let server = Postgres::start().await;
    let locks = [connect(&server).await, connect(&server).await];
    let mut job = NewJob::new("f", "a", "[1]", "k");
    (job.delay, job.keep) = (LONG_TTL, Keep::Latest { at_most: None });
    locks[0].job_queue().put(job.clone()).await.unwrap();
    (job.id, job.arguments) = ("b".to_owned(), "[2]".to_owned());
    let first = server.ask("SELECT (claim + 1)::text FROM lm1.call WHERE id = 'a'").remove(0);
    let other = server.connect().await;
    let held = "BEGIN; SELECT FROM lm1.call WHERE id = 'a' FOR UPDATE";
    other.batch_execute(held).await.unwrap();
    let putting = locks.map(|locks| {
        let job = job.clone();
        tokio::spawn(async move { locks.job_queue().put(job).await })
    });
    let blocked = "SELECT pid::text FROM pg_locks WHERE NOT granted";
    eventually("both wait", TEST_TIMEOUT, async || server.ask(blocked).len() == 2).await;
    other.batch_execute("ROLLBACK").await.unwrap();
    for put in putting {
        assert_eq!(put.await.expect("no panic").unwrap().id, "a");
    }
    let replaced = server.ask("SELECT arguments || ' ' || claim FROM lm1.call WHERE id = 'a'");
    assert_eq!(replaced, [format!("[2] {first}")], "once");
}

#[tokio::test]
async fn calls_in_a_schema_of_version_1_are_kept() {
    const HOUR: Duration = Duration::from_secs(3600);
    let server = Postgres::start().await;
    let call = |id, arguments, hours, keep| {
        let mut job = NewJob::new("f", id, arguments, "k");
        (job.delay, job.keep) = (HOUR * hours, keep);
        job
    };
    let earlier = connect(&server).await;
    earlier.job_queue().put(call("a", "[1]", 1, Keep::First)).await.unwrap();
    let changes = [
        "DROP FUNCTION lm1.put_call",
        "ALTER TABLE lm1.call DROP COLUMN until",
        "CREATE OR REPLACE FUNCTION lm1.version() RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT 1'",
    ];
    server.execute(&changes.join(";")).await;
    let locks = connect(&server).await;
    let new = call("b", "[2]", 2, Keep::Latest { at_most: Some(HOUR * 9) });
    let stored = locks.job_queue().put(new).await.unwrap();
    assert!(stored.id == "a" && stored.due <= HOUR, "{stored:?}");
    assert_eq!(first(&locks, "f", JobState::Waiting).await.unwrap().arguments, "[2]");
}

#[tokio::test]
async fn a_text_that_a_database_cannot_have_is_kept_all_the_same() {
    let server = Postgres::start().await;
    let locks = connect(&server).await;
    let key = "order:\0%00%";
    let mut job = NewJob::new("f", "id", "[1]", key);
    job.keep = Keep::First;
    locks.job_queue().put(job.clone()).await.unwrap();
    job.id = "other".to_owned();
    assert_eq!(locks.job_queue().put(job).await.unwrap().id, "id", "it waits already");
    let job = take(&locks, "f", LONG_TTL).await;
    assert_eq!(job.key, key);
    let how = Settled::Dead { error: "it failed: \0".into() };
    assert_eq!(locks.job_queue().settle(job, how).await, Ok(true));
    let dead = dead_job(&locks, "f").await;
    assert_eq!((&*dead.key, dead.error.as_deref()), (key, Some("it failed: \u{fffd}")));
}

/// What is gone is known for a while only.
#[tokio::test]
async fn calls_that_are_done_leave_no_row() {
    let server = Postgres::start().await;
    let (locks, calls) = (connect(&server).await, Calls::default());
    let function = noting("f", &calls);
    put(&locks, &function, 1).await;
    let working = start(&locks, &function);
    calls.reach(1).await;
    nothing_is_left(&locks, "f").await;
    let rows = || server.ask("SELECT arguments || state FROM lm1.call");
    assert_eq!(rows(), ["gone"], "its id");
    // As if 30 s had passed.
    server.ask("UPDATE lm1.call SET at = '-infinity'");
    eventually("it is forgotten", TEST_TIMEOUT, async || rows().is_empty()).await;
    ends(&locks, working).await;
}

/// All programs share one schema.
#[tokio::test]
async fn a_worker_without_rights_ends_and_is_told_which_to_grant() {
    let server = Postgres::start().await;
    let locks = connect(&server).await;
    server.ask("CREATE ROLE shop LOGIN");
    server.ask("GRANT USAGE ON SCHEMA lm1 TO shop");
    server.ask("GRANT EXECUTE ON ALL ROUTINES IN SCHEMA lm1 TO shop");
    let url = server.url().replace("postgres@", "shop@").replace("?install=1", "");
    let shop = patient().connect(&url).await.expect("it may");
    let calls = Calls::default();
    let function = noting("f", &calls);
    put(&shop, &function, 1).await;
    let working = start(&shop, &function);
    calls.reach(1).await;
    nothing_is_left(&locks, "f").await;
    ends(&shop, working).await;
    let shop = patient().connect(&url).await.expect("it may");
    server.ask("REVOKE EXECUTE ON ALL ROUTINES IN SCHEMA lm1 FROM shop");
    let error = worker(&shop, &function).run().await.unwrap_err();
    assert!(matches!(error, LockError::AccessDenied { .. }), "{error:?}");
    assert!(error.to_string().contains("EXECUTE ON ALL ROUTINES"), "{error}");
}
