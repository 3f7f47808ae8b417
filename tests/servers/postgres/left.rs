//! Connections that are left: what lies in them is not sent later.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use futures::future::join_all;
use lockmacro_runtime::{Lock, LockError, LockGuard};
use lockmacro_tests::times::LONG_TTL;
use lockmacro_tests::{Pooler, Postgres, within};
use tokio_postgres::NoTls;

use crate::{TIMEOUT, lock, works};

const KEYS: usize = 24;
/// Longer than the time of an answer, and shorter than that of a call.
const BLOCKED: Duration = Duration::from_millis(900);

/// Asks for the lock, and blocks the thread right after that.
async fn ask_and_block(lock: Lock, blocked: Duration) -> Result<LockGuard, LockError> {
    let mut asking = pin!(lock.acquire());
    let asked = poll_fn(|cx| Poll::Ready(asking.as_mut().poll(cx))).await;
    std::thread::sleep(blocked);
    match asked {
        Poll::Ready(granted) => granted,
        Poll::Pending => asking.await,
    }
}

#[tokio::test]
async fn what_was_not_sent_in_the_time_for_its_answer_is_not_sent_at_all() {
    let server = Postgres::start().await;
    let ours = within(TIMEOUT, &server.url()).await;
    works(&ours, "unsent").await;
    let counts = "CREATE TABLE granted (key text);
        CREATE FUNCTION count_it() RETURNS trigger LANGUAGE plpgsql AS $$
            BEGIN INSERT INTO public.granted VALUES (NEW.key); RETURN NULL; END $$;
        CREATE TRIGGER counted AFTER UPDATE ON lm1.lease
            FOR EACH ROW WHEN (NEW.token IS NOT NULL) EXECUTE FUNCTION public.count_it()";
    server.execute(counts).await;
    // What is sent after all is sent each time. On a loaded machine the answer to the second
    // request may be late, too, and it is sent again.
    let mut times = Vec::new();
    while times.last() != Some(&1) {
        assert!(times.len() < 5, "not by the second request alone: {times:?}");
        let granted = ask_and_block(lock(&ours, "unsent"), BLOCKED).await;
        granted.expect("asked again").release().await.expect("still held");
        let counted = "WITH counted AS (DELETE FROM granted RETURNING key)
            SELECT count(*)::text FROM counted";
        let counted = server.ask(counted);
        times.push(counted[0].parse::<u32>().expect("a number"));
        server.keeps_nothing("unsent").await;
    }
}

/// As many threads as tasks that block one: the tasks of connections are late, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn locks_of_tasks_that_block_their_threads_do_not_come_back_after_their_release() {
    let server = Postgres::start().await;
    let ours = within(3 * TIMEOUT, &server.url()).await;
    works(&ours, "blocked").await;
    let notes = "CREATE TABLE granted (nth serial, token text, released text);
        CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            INSERT INTO public.granted (token, released)
                VALUES (NEW.token, CASE WHEN NEW.token IS NULL THEN OLD.token END);
            RETURN NULL;
        END $$;
        CREATE TRIGGER noted AFTER UPDATE ON lm1.lease
            FOR EACH ROW EXECUTE FUNCTION public.note()";
    server.execute(notes).await;
    for round in 0..3 {
        let is_blocked = |nth: usize| nth.is_multiple_of(6);
        let calls = join_all((0..KEYS).map(|nth| {
            let lock = lock(&ours, &format!("blocked: {round} {nth}"));
            let blocked = if is_blocked(nth) { 2 * BLOCKED } else { Duration::ZERO };
            tokio::spawn(async move { ask_and_block(lock, blocked).await?.release().await })
        }));
        let mut released = 0;
        for done in calls.await {
            match done.expect("no panic") {
                Ok(()) => released += 1,
                // Every thread may have been blocked meanwhile: what is too late is said to be.
                Err(LockError::Unavailable { .. }) => {}
                Err(error) => panic!("{error:?}"),
            }
        }
        assert!(released > 0, "in round {round}");
    }
    let back =
        "SELECT g.token FROM granted g JOIN granted r ON r.released = g.token AND r.nth < g.nth";
    assert_eq!(server.ask(back), Vec::<String>::new(), "granted after the release");
    server.keeps_nothing("blocked").await;
}

/// In numbers, requests to cancel have ended pgbouncer 1.18.
#[tokio::test]
async fn a_pooler_that_pauses_beside_many_callers_lives_on_and_nothing_stays_held() {
    let server = Postgres::start().await;
    works(&within(LONG_TTL, &server.url()).await, "paused").await;
    let pooler = Pooler::to(&server, 3).await;
    let ours = within(TIMEOUT, &pooler.url()).await;
    works(&ours, "paused").await;
    let console = format!("host=127.0.0.1 port={} user=postgres dbname=pgbouncer", pooler.port());
    let (console, connection) = tokio_postgres::connect(&console, NoTls).await.expect("let in");
    tokio::spawn(connection);
    console.batch_execute("PAUSE").await.expect("paused");
    let calls: Vec<_> = (0..KEYS)
        .map(|nth| {
            let asking = lock(&ours, &format!("paused: {nth}")).wait(LONG_TTL).acquire();
            tokio::spawn(async move { asking.await?.release().await })
        })
        .collect();
    tokio::time::sleep(Duration::from_secs(8)).await;
    console.batch_execute("RESUME").await.expect("it lives on");
    for done in join_all(calls).await {
        done.expect("no panic").expect("its turn");
    }
    console.batch_execute("SHOW VERSION").await.expect("it lives on");
    server.keeps_nothing("paused").await;
}
