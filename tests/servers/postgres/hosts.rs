//! Several hosts, of which the first one hangs.

use std::net::TcpListener;
use std::time::Instant;

use lockmacro_runtime::LockManager;
use lockmacro_tests::times::{LONG_TTL, TEST_TIMEOUT};
use lockmacro_tests::{Postgres, eventually, within};

use crate::{Locked, SLACK, TIMEOUT, is_waited_for, lock, works};

/// A manager of these hosts, in this order.
async fn of(ports: [u16; 2]) -> LockManager {
    let [first, second] = ports.map(|port| format!("127.0.0.1:{port}"));
    within(TIMEOUT, &format!("postgres://postgres@{first},{second}/postgres?install=1")).await
}

#[tokio::test]
async fn a_host_that_never_answers_is_passed_over_and_asked_last_from_then_on() {
    let server = Postgres::start().await;
    // The system accepts for it.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let silent = silent.local_addr().map(|address| (address.port(), silent)).expect("bound");
    let ours = of([silent.0, server.port()]).await;
    let start = Instant::now();
    for nth in 0..24 {
        works(&ours, &format!("silent: {nth}")).await;
    }
    assert!(start.elapsed() < SLACK, "{:?}", start.elapsed());
    server.keeps_nothing("silent").await;
}

#[tokio::test]
async fn a_primary_that_hangs_is_left_for_the_standby_that_was_promoted() {
    let primary = Postgres::start().await;
    let _schema = within(TIMEOUT, &primary.url()).await;
    let standby = primary.standby().await;
    let ours = of([primary.port(), standby.port()]).await;
    for nth in 0..8 {
        // Their last releases may be unknown to the standby.
        works(&ours, &format!("before: {nth}")).await;
    }
    let client = standby.connect().await;
    eventually("the schema is there", TEST_TIMEOUT, || async {
        let there = client.query_one("SELECT to_regclass('lm1.lease') IS NOT NULL", &[]).await;
        there.expect("an answer").get(0)
    })
    .await;
    primary.pause();
    client.batch_execute("SELECT pg_promote()").await.expect("promoted");
    let start = Instant::now();
    for nth in 0..24 {
        let again = || async {
            let key = format!("promoted: {nth}");
            lock(&ours, &key).run(async { Locked::Ok(7) }).await == Ok(7)
        };
        eventually("it works again", TEST_TIMEOUT, again).await;
    }
    assert!(start.elapsed() < 2 * SLACK, "{:?}", start.elapsed());
    standby.keeps_nothing("promoted").await;
}

/// A sequence that is not logged is broken there, and the order of the queue must not need one.
#[tokio::test]
async fn waiters_are_served_by_a_standby_that_was_promoted_before_its_first_restartpoint() {
    let mut primary = Postgres::start().await;
    let standby = primary.standby().await;
    // The standby has the schema from the log alone.
    let before = within(TEST_TIMEOUT, &primary.url()).await;
    works(&before, "restartpoint").await;
    let client = standby.connect().await;
    eventually("the schema is there", TEST_TIMEOUT, || async {
        let there = "SELECT count(*) = 1 FROM pg_proc WHERE proname = 'look_for_functions'";
        client.query_one(there, &[]).await.expect("an answer").get(0)
    })
    .await;
    primary.stop_at_once();
    client.batch_execute("SELECT pg_promote()").await.expect("promoted");
    let ours = within(TEST_TIMEOUT, &standby.url()).await;
    let theirs = within(TEST_TIMEOUT, &standby.url()).await;
    let guard = lock(&theirs, "promoted queue").acquire().await.expect("free");
    let waiting: Vec<_> = (0..3)
        .map(|_| {
            tokio::spawn(lock(&ours, "promoted queue").wait(LONG_TTL).run(async { Locked::Ok(7) }))
        })
        .collect();
    is_waited_for(&client, "promoted queue").await;
    guard.release().await.expect("still held");
    for waiter in waiting {
        assert_eq!(waiter.await.expect("no panic"), Ok(7));
    }
    standby.keeps_nothing("promoted queue").await;
}
