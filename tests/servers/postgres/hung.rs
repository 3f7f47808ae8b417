//! A server that takes calls, and does not answer for long.

use std::time::Duration;

use futures::future::join_all;
use lockmacro_tests::times::{LONG_TTL, TEST_TIMEOUT};
use lockmacro_tests::{Postgres, eventually, within};
use tokio_postgres::Client;

use crate::{Locked, TIMEOUT, lock, works};

/// Those in use, and those that were given up and are not ended yet.
const MOST: i64 = 30;

async fn connections(client: &Client) -> i64 {
    let all = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'lockmacro'";
    client.query_one(all, &[]).await.expect("an answer").get(0)
}

#[tokio::test]
async fn connections_do_not_pile_up_while_commits_wait_for_a_standby() {
    let server = Postgres::start().await;
    let ours = within(Duration::from_secs(1), &server.url()).await;
    works(&ours, "hang").await;
    let client = server.connect().await;
    let standby = "ALTER SYSTEM SET synchronous_standby_names = 'away'";
    client.batch_execute(standby).await.expect("set");
    server.execute("SELECT pg_reload_conf()").await;
    eventually("commits hang", TEST_TIMEOUT, || async {
        let set = client.query_one("SHOW synchronous_standby_names", &[]).await;
        set.expect("an answer").get::<_, &str>(0) == "away"
    })
    .await;
    for nth in 0..8 {
        let error = lock(&ours, &format!("hang: {nth}")).acquire().await.expect_err("it hangs");
        assert!(!error.is_busy(), "{error}");
        let open = connections(&client).await;
        assert!(open <= MOST, "{open} after {nth}");
    }
    drop(ours);
    eventually("all are ended", TEST_TIMEOUT, || async { connections(&client).await == 0 }).await;
}

#[tokio::test]
async fn connections_do_not_pile_up_while_others_have_locked_the_table() {
    let server = Postgres::start().await;
    let ours = within(TIMEOUT, &server.url()).await;
    works(&ours, "table").await;
    let (client, other) = (server.connect().await, server.connect().await);
    other.batch_execute("BEGIN; LOCK TABLE lm1.lease").await.expect("locked");
    let waiting: Vec<_> = (0..8)
        .map(|nth| tokio::spawn(lock(&ours, &format!("table: {nth}")).wait(LONG_TTL).acquire()))
        .collect();
    let start = std::time::Instant::now();
    while start.elapsed() < 2 * TIMEOUT {
        let open = connections(&client).await;
        assert!(open <= MOST, "{open} after {:?}", start.elapsed());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    other.batch_execute("COMMIT").await.expect("committed");
    for granted in join_all(waiting).await {
        granted.expect("no panic").expect("its turn").release().await.expect("still held");
    }
    server.keeps_nothing("table").await;
}

/// Each takes 10 ms, one after the other on a connection: together longer than an answer may take.
#[tokio::test]
async fn a_burst_of_callers_is_served_and_no_connection_is_given_up() {
    const CALLERS: usize = 800;
    let server = Postgres::start().await;
    let ours = within(Duration::from_secs(12), &server.url()).await;
    works(&ours, "burst").await;
    let client = server.connect().await;
    let slow = "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$
            BEGIN PERFORM pg_sleep(0.01); RETURN NULL; END $$;
        CREATE TRIGGER slow AFTER UPDATE ON lm1.lease
            FOR EACH ROW WHEN (NEW.token IS NOT NULL) EXECUTE FUNCTION public.slow()";
    client.batch_execute(slow).await.expect("made slow");
    let lock = |nth| lock(&ours, &format!("burst: {nth}")).acquire();
    let guards: Vec<_> = join_all((0..CALLERS).map(lock)).await;
    assert!(connections(&client).await <= 5);
    for guard in guards {
        guard.expect("free").release().await.expect("still held");
    }
    server.keeps_nothing("burst").await;
}

#[tokio::test]
async fn a_crowd_for_the_permits_of_a_key_is_let_in_some_at_a_time() {
    const CALLERS: usize = 500;
    let server = Postgres::start().await;
    let ours = within(TEST_TIMEOUT, &server.url()).await;
    let guard = lock(&ours, "crowd").acquire().await.expect("free");
    let client = server.connect().await;
    let counts = "CREATE TABLE granted (transaction bigint);
        CREATE FUNCTION count_it() RETURNS trigger LANGUAGE plpgsql AS $$
            BEGIN INSERT INTO public.granted VALUES (txid_current()); RETURN NULL; END $$;
        CREATE TRIGGER counted AFTER INSERT ON lm1.share
            FOR EACH ROW EXECUTE FUNCTION public.count_it()";
    client.batch_execute(counts).await.expect("counted");
    let permits = CALLERS as u32;
    let waiting: Vec<_> = (0..CALLERS)
        .map(|_| tokio::spawn(lock(&ours, "crowd").permits(permits).wait(LONG_TTL).acquire()))
        .collect();
    eventually("all wait", TEST_TIMEOUT, || async {
        let all = client.query_one("SELECT count(*) FROM lm1.waiter", &[]).await;
        all.expect("an answer").get::<_, i64>(0) == CALLERS as i64
    })
    .await;
    guard.release().await.expect("still held");
    let guards = join_all(waiting).await;
    let most = "SELECT max(n) FROM (SELECT count(*) AS n FROM granted GROUP BY transaction) x";
    let most: i64 = client.query_one(most, &[]).await.expect("an answer").get(0);
    assert!((2..=201).contains(&most), "{most} by one statement");
    let released = guards.into_iter().map(|granted| async {
        granted.expect("no panic").expect("its turn").release().await.expect("still held");
    });
    join_all(released).await;
    server.keeps_nothing("crowd").await;
}

/// A request takes the row of its key, and so a long queue would leave no time for hand-offs.
#[tokio::test]
async fn waiters_far_back_keep_their_places_without_requests_of_their_own() {
    const CALLERS: usize = 60;
    const ASKING: usize = 16;
    let server = Postgres::start().await;
    let ours = within(TEST_TIMEOUT, &server.url()).await;
    let guard = lock(&ours, "far back").acquire().await.expect("free");
    let client = server.connect().await;
    let waiting: Vec<_> = (0..CALLERS)
        .map(|_| lock(&ours, "far back").permits(2).wait(LONG_TTL).run(async { Locked::Ok(7) }))
        .map(tokio::spawn)
        .collect();
    let queue = async || {
        let queue =
            "SELECT id, (extract(epoch FROM ends) * 1000)::bigint FROM lm1.waiter ORDER BY place";
        let rows = client.query(queue, &[]).await.expect("an answer");
        rows.iter().map(|row| (row.get::<_, String>(0), row.get::<_, i64>(1))).collect::<Vec<_>>()
    };
    eventually("all wait", TEST_TIMEOUT, || async { queue().await.len() == CALLERS }).await;
    let before = queue().await;
    eventually("each place is kept for longer", TEST_TIMEOUT, || async {
        queue().await.iter().zip(&before).all(|(now, before)| now.1 > before.1)
    })
    .await;
    let now = queue().await;
    // Each request has an id of its own.
    let asked = now.iter().zip(&before).map(|(now, before)| now.0 != before.0).collect::<Vec<_>>();
    assert!(asked[..ASKING].iter().all(|asked| *asked), "{asked:?}");
    let far_back = asked[ASKING..].iter().filter(|asked| **asked).count();
    // One whose statement failed on a loaded machine asks.
    assert!(far_back < (CALLERS - ASKING) / 2, "{far_back} have asked: {asked:?}");
    guard.release().await.expect("still held");
    for waiter in waiting {
        assert_eq!(waiter.await.expect("no panic"), Ok(7));
    }
    server.keeps_nothing("far back").await;
}

/// As after the end of a process that had the lock, and many waiters for it.
#[tokio::test]
async fn a_waiter_behind_many_dead_ones_is_served() {
    let server = Postgres::start().await;
    let ours = within(TEST_TIMEOUT, &server.url()).await;
    works(&ours, "behind the dead").await;
    let client = server.connect().await;
    let dead = "UPDATE lm1.lease SET token = 'dead/' || md5('0'),
            ends = clock_timestamp() + interval '3 s' WHERE key = 'behind the dead';
        INSERT INTO lm1.waiter
            SELECT 'behind the dead', n, 'dead/' || md5(n::text), 60000, 1, false, '1', 'nowhere', 1,
                clock_timestamp() + interval '2 s' FROM generate_series(1, 40) n";
    client.batch_execute(dead).await.expect("made");
    let waiting = lock(&ours, "behind the dead").wait(TEST_TIMEOUT).run(async { Locked::Ok(7) });
    assert_eq!(waiting.await, Ok(7));
    server.keeps_nothing("behind the dead").await;
}

/// They would stay for as long as the head waits, which may be alive.
#[tokio::test]
async fn dead_waiters_do_not_fill_a_queue_for_good() {
    let server = Postgres::start().await;
    let ours = within(TEST_TIMEOUT, &server.url()).await;
    let theirs = within(TEST_TIMEOUT, &server.url()).await;
    let guard = lock(&ours, "full queue").acquire().await.expect("free");
    let head =
        tokio::spawn(lock(&theirs, "full queue").wait(LONG_TTL).run(async { Locked::Ok(7) }));
    let client = server.connect().await;
    crate::is_waited_for(&client, "full queue").await;
    let dead = "INSERT INTO lm1.waiter
        SELECT 'full queue', (SELECT max(place) FROM lm1.waiter) + n, 'dead/' || md5(n::text), 60000,
            1, false, '1', 'nowhere', 1, clock_timestamp() FROM generate_series(1, 10000) n";
    client.batch_execute(dead).await.expect("made");
    let last = within(TEST_TIMEOUT, &server.url()).await;
    let waiting =
        tokio::spawn(lock(&last, "full queue").wait(LONG_TTL).run(async { Locked::Ok(8) }));
    eventually("only those that live are there", TEST_TIMEOUT, || async {
        let waiters = client.query_one("SELECT count(*) FROM lm1.waiter", &[]).await;
        waiters.expect("an answer").get::<_, i64>(0) == 2
    })
    .await;
    guard.release().await.expect("still held");
    assert_eq!(head.await.expect("no panic"), Ok(7));
    assert_eq!(waiting.await.expect("no panic"), Ok(8));
    server.keeps_nothing("full queue").await;
}
