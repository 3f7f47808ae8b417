//! A transaction pooler between the managers and the server.

use std::pin::pin;

use futures::future::{Either, join_all, select};
use lockmacro_runtime::Lock;
use lockmacro_tests::AcquireFenced as _;
use lockmacro_tests::times::{LONG_TTL, POLLED, TEST_TIMEOUT, ms};
use lockmacro_tests::{Pooler, Postgres, eventually, within};
use tokio::time::{Instant, timeout};
use tokio_postgres::NoTls;

use crate::{
    NO_PUSHES, Room, is_renewed, is_waited_for, lock, log_warnings, manager, shared, warnings,
    works,
};

#[tokio::test]
async fn locks_renewals_and_releases_work_through_a_pooler_and_waiters_are_served_by_asking() {
    log_warnings();
    let server = shared().await;
    works(&manager(&server.url()).await, "pooled").await;
    let pooler = Pooler::to(&server, 3).await;
    let (ours, theirs) =
        (within(LONG_TTL, &pooler.url()).await, within(LONG_TTL, &pooler.url()).await);
    let client = server.connect().await;
    let room = Room::default();
    let held = Lock::new("pooled").ttl(ms(9_000)).renew().manager(&ours);
    let (guard, fences) = held.acquire_fenced().await.expect("free");
    room.visit(fences[0]).await;
    is_renewed(&client, "pooled").await;
    let waiting = tokio::spawn(lock(&theirs, "pooled").wait(LONG_TTL).acquire_fenced());
    is_waited_for(&client, "pooled").await;
    let start = Instant::now();
    guard.release().await.expect("still held");
    let (guard, fences) = waiting.await.expect("no panic").expect("its turn");
    assert!(start.elapsed() < POLLED, "{:?}", start.elapsed());
    assert_eq!(warnings(NO_PUSHES, pooler.port()), 1, "one of the managers waits");
    room.visit(fences[0]).await;
    guard.release().await.expect("still held");
    let calls = join_all((0..24).map(|nth| {
        let manager = if nth % 2 == 0 { &ours } else { &theirs };
        async move {
            let key = format!("pooled: {}", nth % 12);
            let waiting = lock(manager, &key).wait(LONG_TTL).acquire();
            waiting.await.expect("its turn").release().await.expect("still held");
        }
    }));
    timeout(LONG_TTL, calls).await.expect("all are served");
    server.keeps_nothing("pooled").await;
}

#[tokio::test]
async fn a_manager_that_listens_to_the_server_itself_is_pushed_its_locks_behind_a_pooler() {
    log_warnings();
    let server = shared().await;
    works(&manager(&server.url()).await, "listens").await;
    let pooler = Pooler::to(&server, 3).await;
    let url = format!("{}?listen=127.0.0.1%3A{}", pooler.url(), server.port());
    let (ours, theirs) = (within(LONG_TTL, &pooler.url()).await, within(LONG_TTL, &url).await);
    let client = server.connect().await;
    let room = Room::default();
    let held = lock(&ours, "listens").acquire().await.expect("free");
    let waiting = tokio::spawn(lock(&theirs, "listens").wait(LONG_TTL).acquire_fenced());
    is_waited_for(&client, "listens").await;
    held.release().await.expect("still held");
    let (guard, fences) = waiting.await.expect("no panic").expect("its turn");
    room.visit(fences[0]).await;
    guard.release().await.expect("still held");
    assert_eq!(warnings(NO_PUSHES, pooler.port()), 0);
    server.keeps_nothing("listens").await;
}

#[tokio::test]
async fn a_server_that_crashes_behind_a_pooler_is_waited_for() {
    let mut server = Postgres::start().await;
    works(&manager(&server.url()).await, "pooled").await;
    let pooler = Pooler::to(&server, 3).await;
    let (ours, theirs) =
        (within(LONG_TTL, &pooler.url()).await, within(LONG_TTL, &pooler.url()).await);
    let client = server.connect().await;
    let guard = lock(&ours, "pooled").acquire().await.expect("free");
    let waiting = tokio::spawn(lock(&theirs, "pooled").wait(LONG_TTL).acquire());
    is_waited_for(&client, "pooled").await;
    // A call that is in flight.
    client
        .batch_execute(
            "INSERT INTO lm1.lease (key) VALUES ('pooled: 2');
            BEGIN; SELECT FROM lm1.lease WHERE key = 'pooled: 2' FOR UPDATE",
        )
        .await
        .expect("locked");
    let asking = tokio::spawn(lock(&ours, "pooled: 2").wait(LONG_TTL).acquire());
    eventually("it waits for the row", TEST_TIMEOUT, || async {
        let waits = "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
        !client.query(waits, &[]).await.expect("an answer").is_empty()
    })
    .await;
    server.stop_at_once();
    server.restart().await;
    let other = asking.await.expect("no panic").expect("free");
    other.release().await.expect("still held");
    assert!(guard.is_held() && !waiting.is_finished());
    guard.release().await.expect("still held");
    waiting.await.expect("no panic").expect("its turn").release().await.expect("still held");
    server.keeps_nothing("pooled").await;
}

#[tokio::test]
async fn a_pooler_that_has_no_room_for_a_call_is_waited_for() {
    let server = shared().await;
    works(&manager(&server.url()).await, "room").await;
    let pooler = Pooler::to(&server, 1).await;
    let locks = within(LONG_TTL, &pooler.url()).await;
    works(&locks, "room").await;
    let place = format!("host=127.0.0.1 port={} user=postgres dbname=postgres", pooler.port());
    let (client, connection) =
        tokio_postgres::connect(&place, tokio_postgres::NoTls).await.expect("connected");
    tokio::spawn(connection);
    client.batch_execute("BEGIN").await.expect("begun");
    let asking = tokio::spawn(lock(&locks, "room").acquire());
    // Until the pooler has refused the call that waits for room.
    let other = tokio_postgres::connect(&place, tokio_postgres::NoTls).await.expect("connected");
    let (other, connection) = other;
    tokio::spawn(connection);
    let refused = other.batch_execute("SELECT 1").await.expect_err("no room");
    assert_eq!(refused.code().map(|code| code.code()), Some("08P01"), "{refused}");
    client.batch_execute("COMMIT").await.expect("committed");
    asking.await.expect("no panic").expect("free").release().await.expect("still held");
}

/// pgbouncer before 1.22.1 gives its server to the next client while an answer to the one before
/// is still to come, if that one has closed its connection after another answer.
#[tokio::test]
async fn an_answer_to_another_client_of_a_pooler_is_no_grant() {
    let server = Postgres::start().await;
    let held = lock(&manager(&server.url()).await, "mixed up").acquire().await.expect("free");
    let pooler = Pooler::to(&server, 1).await;
    let ours = within(LONG_TTL, &pooler.url()).await;
    let grant = "SELECT grants.* FROM pg_sleep(0.5), lm1.ask(ARRAY['mixed up: theirs'], 'token',
        1000, ARRAY[1], false, NULL, NULL, 1, 15000, NULL) grants";
    let nothing = "SELECT FROM pg_sleep(0.5) WHERE false";
    for answer in [grant, nothing, grant, nothing] {
        works(&ours, "mixed up: ours").await;
        leave_an_answer_to(&pooler, answer).await;
        let error = lock(&ours, "mixed up").acquire().await.expect_err("held");
        assert!(error.is_busy(), "{error}");
        leave_an_answer_to(&pooler, answer).await;
        assert_eq!(
            ours.inspector().locks("mixed up", 9).await.expect("asked again").items.len(),
            1
        );
    }
    held.release().await.expect("still held");
    server.keeps_nothing("mixed up").await;
}

/// Closes a connection of another program behind the answer to its first statement, while the
/// pooler waits for the one to its second.
async fn leave_an_answer_to(pooler: &Pooler, statement: &str) {
    let place = format!("host=127.0.0.1 port={} user=postgres dbname=postgres", pooler.port());
    let (theirs, connection) = tokio_postgres::connect(&place, NoTls).await.expect("let in");
    let connection = tokio::spawn(connection);
    let (first, second) = (theirs.query_typed("SELECT 1", &[]), theirs.query_typed(statement, &[]));
    match select(pin!(first), pin!(second)).await {
        Either::Left((first, _)) => drop(first.expect("an answer")),
        Either::Right(_) => panic!("answered in another order"),
    }
    connection.abort();
    let _ = connection.await;
}
