//! How renewals gather into statements.

use std::time::Duration;

use futures::future::join_all;
use futures::stream::{StreamExt as _, iter};
use lockmacro_runtime::Lock;
use lockmacro_tests::times::{LONG_TTL, TEST_TIMEOUT};
use lockmacro_tests::{Postgres, eventually, within};
use tokio::time::Instant;

use crate::manager;

/// The rows that a statement has changed have the number of its transaction.
#[tokio::test]
async fn leases_that_are_due_about_the_same_time_are_renewed_by_few_statements() {
    const LEASES: i64 = 50;
    let server = Postgres::start().await;
    let (ours, client) = (manager(&server.url()).await, server.connect().await);
    let lock = |nth| {
        let lock = Lock::new(format!("gathers: {nth}")).ttl(Duration::from_secs(10));
        lock.renew().manager(&ours).acquire()
    };
    let guards = join_all((0..LEASES).map(lock)).await;
    let statements = async || {
        let all = "SELECT count(DISTINCT xmin::text), min(extract(epoch FROM ends))::float8
            FROM lm1.lease";
        let row = client.query_one(all, &[]).await.expect("an answer");
        (row.get::<_, i64>(0), row.get::<_, f64>(1))
    };
    let (granted, first) = statements().await;
    assert_eq!(granted, LEASES, "each by a statement of its own");
    eventually("all are renewed", TEST_TIMEOUT, || async { statements().await.1 > first + 2.0 })
        .await;
    let (renewed, _) = statements().await;
    assert!(renewed < LEASES / 5, "{renewed} statements");
    for guard in guards {
        guard.expect("free").release().await.expect("still held");
    }
}

/// Each on its own would wait for the row again, beside the others, until the short leases of a
/// hand-off are over.
#[tokio::test]
async fn holders_of_a_key_whose_row_is_locked_are_renewed_together_when_it_is_free() {
    const SHARING: u32 = 60;
    let server = Postgres::start().await;
    let ours = within(TEST_TIMEOUT, &server.url()).await;
    let (client, other) = (server.connect().await, server.connect().await);
    let lock = |nth| {
        let key = if nth % 2 == 0 { "locked" } else { "free" };
        Lock::new(key).ttl(LONG_TTL / 2).permits(SHARING).manager(&ours).acquire()
    };
    let guards: Vec<_> = join_all((0..2 * SHARING).map(lock)).await;
    let guards: Vec<_> = guards.into_iter().map(|guard| guard.expect("a permit")).collect();
    other
        .batch_execute("BEGIN; SELECT FROM lm1.lease WHERE key = 'locked' FOR UPDATE")
        .await
        .expect("locked");
    let extended = join_all(guards.iter().map(|guard| guard.extend(LONG_TTL)));
    let unlocked = async {
        let blocked = "SELECT count(*) FROM pg_stat_activity
            WHERE application_name = 'lockmacro' AND wait_event_type = 'Lock'";
        eventually("a renewal waits", TEST_TIMEOUT, || async {
            client.query_one(blocked, &[]).await.expect("an answer").get::<_, i64>(0) > 0
        })
        .await;
        other.batch_execute("COMMIT").await.expect("committed");
    };
    let (extended, ()) = tokio::join!(extended, unlocked);
    extended.into_iter().for_each(|extended| extended.expect("still held"));
    let statements = "SELECT count(DISTINCT xmin::text) FROM lm1.share";
    let statements: i64 = client.query_one(statements, &[]).await.expect("an answer").get(0);
    assert!(statements <= 4, "{statements} statements");
    for guard in guards {
        guard.release().await.expect("still held");
    }
}

/// All of them in one statement would take longer than its answer may take, again and again.
#[tokio::test]
async fn many_leases_are_renewed_in_time_by_a_slow_server() {
    const LEASES: usize = 1_000;
    const TTL: Duration = Duration::from_secs(12);
    let server = Postgres::start().await;
    let (ours, client) =
        (within(Duration::from_secs(2), &server.url()).await, server.connect().await);
    let lock = |nth| {
        let lock = Lock::new(format!("many: {nth}")).ttl(TTL);
        lock.renew().manager(&ours).acquire()
    };
    let guards: Vec<_> = iter(0..LEASES).map(lock).buffered(64).collect().await;
    let slow = "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$
            BEGIN PERFORM pg_sleep(0.002); RETURN NULL; END $$;
        CREATE TRIGGER slow AFTER UPDATE ON lm1.lease
            FOR EACH ROW WHEN (NEW.token = OLD.token) EXECUTE FUNCTION public.slow()";
    client.batch_execute(slow).await.expect("made slow");
    tokio::time::sleep(2 * TTL).await;
    client.batch_execute("DROP TRIGGER slow ON lm1.lease").await.expect("fast again");
    for guard in guards {
        guard.expect("free").release().await.expect("not one is lost");
    }
}

#[tokio::test]
async fn an_extension_waits_for_no_other_renewals() {
    let server = crate::shared().await;
    let ours = manager(&server.url()).await;
    let guard = crate::lock(&ours, "prompt").acquire().await.expect("free");
    let start = Instant::now();
    // Each would wait for 250 ms.
    for _ in 0..40 {
        guard.extend(LONG_TTL).await.expect("still held");
    }
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    guard.release().await.expect("still held");
}
