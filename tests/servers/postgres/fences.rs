//! Fences in the schema: who may write, and what a grant costs.

use lockmacro_runtime::{Fence, LockManager, UnavailableReason};
use lockmacro_tests::times::{LONG_TTL, TEST_TIMEOUT, ms};
use lockmacro_tests::{AcquireFenced as _, eventually, is_in_time, is_not_late};
use tokio_postgres::Client;

use crate::{Room, is_waited_for, lock, manager, reason, shared, works};

const CHECK: &str = "CALL lm1.check_fence($1, $2)";

/// In a transaction that has begun.
async fn may_write(client: &Client, key: &str, fence: i64) -> bool {
    is_not_late(client.execute(CHECK, &[&key, &fence]).await)
}

fn number(fences: &[Fence]) -> i64 {
    i64::from(fences[0])
}

/// The next caller of the same process has its lock by no request.
#[tokio::test]
async fn a_holder_of_the_same_process_waits_for_the_one_before_it_where_it_checks_its_fence() {
    let server = shared().await;
    let _schema = manager(&server.url()).await;
    let ours = LockManager::builder().turn(ms(100)).timeout(LONG_TTL).connect(&server.url()).await;
    let ours = ours.expect("connected");
    let (writer, other) = (server.connect().await, server.connect().await);
    // The first grant of a key has one fence, and those after it have blocks.
    let guard = lock(&ours, "turn").fenced().acquire().await.expect("free");
    guard.release().await.expect("still held");
    let (guard, first) = lock(&ours, "turn").acquire_fenced().await.expect("free");
    let first = number(&first);
    writer.batch_execute("BEGIN").await.expect("begun");
    assert!(may_write(&writer, "turn", first).await);
    let waiting = tokio::spawn(lock(&ours, "turn").wait(LONG_TTL).acquire_fenced());
    tokio::task::yield_now().await;
    guard.release().await.expect("still held");
    let (guard, next) = waiting.await.expect("no panic").expect("its turn");
    let next = number(&next);
    assert_eq!(next, first + 1, "of one block");
    let mut checking = Box::pin(is_in_time(&other, CHECK, "turn", next));
    let waits = async {
        eventually("it waits for the writer", TEST_TIMEOUT, || async {
            let waits = "SELECT count(*) > 0 FROM pg_stat_activity
                WHERE wait_event_type = 'Lock' AND query LIKE '%check_fence%'";
            server.connect().await.query_one(waits, &[]).await.expect("an answer").get(0)
        })
        .await;
    };
    tokio::select! { _ = &mut checking => panic!("beside the writer"), () = waits => {} }
    writer.batch_execute("COMMIT").await.expect("committed");
    assert!(checking.await, "it is its turn");
    assert!(!is_in_time(&writer, CHECK, "turn", first).await, "it is too late");
    guard.release().await.expect("still held");
    server.keeps_nothing("turn").await;
}

/// Each grant and each hand-off changes the fence once, and so would a request of the new holder.
#[tokio::test]
async fn a_push_is_a_grant_that_no_request_has_to_follow() {
    const TIMES: i64 = 10;
    let server = lockmacro_tests::Postgres::start().await;
    let (ours, theirs) = (manager(&server.url()).await, manager(&server.url()).await);
    let client = server.connect().await;
    let count = "CREATE TABLE grants (n bigint); INSERT INTO grants VALUES (0);
        CREATE FUNCTION grants() RETURNS trigger LANGUAGE plpgsql AS $$
            BEGIN UPDATE public.grants SET n = n + 1; RETURN NULL; END $$;
        CREATE TRIGGER grants AFTER INSERT OR UPDATE ON lm1.fence
            FOR EACH ROW EXECUTE FUNCTION public.grants()";
    client.batch_execute(count).await.expect("counted");
    let room = Room::default();
    for _ in 0..TIMES {
        let guard = lock(&ours, "push").fenced().acquire().await.expect("free");
        let waiting = tokio::spawn(lock(&theirs, "push").wait(LONG_TTL).acquire_fenced());
        is_waited_for(&client, "push").await;
        guard.release().await.expect("still held");
        let (guard, fences) = waiting.await.expect("no panic").expect("its turn");
        room.visit(fences[0]).await;
        guard.release().await.expect("still held");
    }
    let grants: i64 = client.query_one("SELECT n FROM grants", &[]).await.expect("it").get(0);
    // One that a loaded machine delivers too late is asked for.
    assert!((2 * TIMES..2 * TIMES + TIMES / 2).contains(&grants), "{grants}");
}

/// Its answer was lost, and a writer with the fence of it has not ended its transaction.
#[tokio::test]
async fn a_holder_that_asks_again_while_its_fence_is_locked_has_the_fence_that_it_has() {
    let server = shared().await;
    let locks = manager(&server.url()).await;
    works(&locks, "again").await;
    let (writer, other) = (server.connect().await, server.connect().await);
    let ask = "SELECT nth, fences FROM
        lm1.ask('{again}', 'a/00000000000000000000000000000007', 60000, '{1}', true, NULL, NULL, 1, 0)";
    let granted = other.query_one(ask, &[]).await.expect("granted");
    let fence = granted.get::<_, Vec<String>>(1)[0].parse().expect("one fence");
    writer.batch_execute("BEGIN").await.expect("begun");
    assert!(may_write(&writer, "again", fence).await);
    let again = other.query_one(ask, &[]).await.expect("granted again");
    assert_eq!(again.get::<_, Option<i32>>(0), None);
    assert_eq!(again.get::<_, Vec<String>>(1), granted.get::<_, Vec<String>>(1));
    writer.batch_execute("ROLLBACK").await.expect("ended");
    let release =
        "SELECT held FROM lm1.release('{again}', 'a/00000000000000000000000000000007', 0)";
    assert!(other.query_one(release, &[]).await.expect("released").get::<_, bool>(0));
    server.keeps_nothing("again").await;
}

/// The end of all fences is not that of the lock.
#[tokio::test]
async fn a_key_without_further_fences_is_refused_to_those_who_want_one_and_works_for_others() {
    let server = shared().await;
    let (ours, theirs) = (manager(&server.url()).await, manager(&server.url()).await);
    works(&ours, "used up").await;
    let client = server.connect().await;
    let guard = lock(&ours, "used up").acquire().await.expect("free");
    let waiting = tokio::spawn(lock(&theirs, "used up").wait(LONG_TTL).acquire_fenced());
    is_waited_for(&client, "used up").await;
    let end = "INSERT INTO lm1.fence VALUES ('used up', 1, 1::bigint << 53, 0, clock_timestamp())";
    client.batch_execute(end).await.expect("somebody has set it");
    guard.release().await.expect("still held");
    let error = waiting.await.expect("no panic").expect_err("there is none");
    assert_eq!(reason(&error), UnavailableReason::FencesUsedUp);
    works(&theirs, "used up").await;
    server.keeps_nothing("used up").await;
}
