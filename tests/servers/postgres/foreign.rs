//! Transactions of others that lock the rows of locks, and what other processes leave in them.

use std::time::Duration;

use futures::future::join_all;
use lockmacro_runtime::{Lock, LockError, LossCause, UnavailableReason};
use lockmacro_tests::AcquireFenced as _;
use lockmacro_tests::times::{CONFIRM_WINDOW, LONG_TTL, POLLED, TEST_TIMEOUT, ms};
use lockmacro_tests::{Postgres, eventually, is_not_late};
use tokio::time::{Instant, timeout};
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

use crate::refusals::with_user;
use crate::{
    Locked, Room, SLACK, TIMEOUT, holder, is_renewed, is_waited_for, lock, manager, reason,
    refusal, shared, within, works,
};

/// Begins a transaction that checks the fence of a key, as that of a fenced writer does.
async fn writer(server: &Postgres, key: &str) -> Client {
    let client = server.connect().await;
    client.batch_execute("BEGIN").await.expect("begun");
    let last = client.query_one("SELECT fence FROM lm1.fence WHERE key = $1", &[&key]).await;
    let fence: i64 = last.expect("granted").get(0);
    client.execute("CALL lm1.check_fence($1, $2)", &[&key, &fence]).await.expect("in time");
    client
}

/// Waits until the waiter of a key has asked again some times.
async fn asks_again_and_again(client: &Client, key: &str) {
    let asked = async || {
        let ends = "SELECT ends::text FROM lm1.waiter WHERE key = $1";
        let row = client.query_opt(ends, &[&key]).await.expect("an answer");
        row.map(|row| row.get::<_, String>(0))
    };
    for _ in 0..4 {
        let before = asked().await;
        eventually("it asks again", TEST_TIMEOUT, || async { asked().await != before }).await;
    }
}

#[tokio::test]
async fn a_grant_waits_for_a_writer_that_has_checked_its_fence_and_nothing_else_does() {
    let server = shared().await;
    let (ours, theirs) = (manager(&server.url()).await, manager(&server.url()).await);
    let client = server.connect().await;
    let other = Lock::new("writer: other").ttl(ms(4_500)).renew().manager(&ours);
    let other = other.acquire().await.expect("free");
    let held = Lock::new("writer").ttl(ms(4_500)).renew().manager(&ours);
    let (guard, first) = held.acquire_fenced().await.expect("free");
    let waiting = tokio::spawn(lock(&theirs, "writer").wait(LONG_TTL).acquire_fenced());
    is_waited_for(&client, "writer").await;
    let writer = writer(&server, "writer").await;
    // Its own lock, too.
    is_renewed(&client, "writer").await;
    is_renewed(&client, "writer: other").await;
    let start = Instant::now();
    guard.release().await.expect("it does not wait");
    assert!(start.elapsed() < SLACK, "{:?}", start.elapsed());
    asks_again_and_again(&client, "writer").await;
    assert!(!waiting.is_finished() && holder(&client, "writer").await.is_none());
    assert!(lock(&ours, "writer").acquire().await.expect_err("not yet").is_busy());
    is_renewed(&client, "writer: other").await;
    writer.batch_execute("COMMIT").await.expect("committed");
    let start = Instant::now();
    let (guard, later) = waiting.await.expect("no panic").expect("its turn");
    assert!(start.elapsed() < POLLED, "{:?}", start.elapsed());
    assert!(later[0] > first[0]);
    guard.release().await.expect("still held");
    other.release().await.expect("still held");
    server.keeps_nothing("writer").await;
}

/// The rows are locked in the other order, and nobody waits for anybody in a circle.
#[tokio::test]
async fn a_writer_that_locks_the_fences_of_several_keys_in_another_order_makes_no_deadlock() {
    let server = shared().await;
    let ours = manager(&server.url()).await;
    let keys = ["circle: 1", "circle: 2"];
    let several = || Lock::many(keys).ttl(LONG_TTL).manager(&ours);
    several().fenced().acquire().await.expect("free").release().await.expect("still held");
    let writer = writer(&server, keys[1]).await;
    let waiting = tokio::spawn(several().wait(LONG_TTL).acquire_fenced());
    let check = format!("SELECT fence FROM lm1.fence WHERE key = '{}' FOR SHARE", keys[0]);
    for _ in 0..20 {
        writer.batch_execute(&check).await.expect("it waits for nobody");
    }
    assert!(!waiting.is_finished());
    writer.batch_execute("COMMIT").await.expect("committed");
    waiting.await.expect("no panic").expect("its turn").0.release().await.expect("still held");
    server.keeps_nothing("circle").await;
}

#[tokio::test]
async fn a_statement_that_the_server_cancels_is_no_lock_that_somebody_holds() {
    let server = shared().await;
    let url = with_user(&server, "brisk", "SET statement_timeout = '50ms'").await;
    // An answer may take a quarter of this, and on a busy machine the cancelled one is late.
    let brisk = within(2 * TIMEOUT, &url).await;
    lock(&brisk, "cancelled").acquire().await.expect("free").release().await.expect("held");
    let client = server.connect().await;
    let row = "BEGIN; SELECT FROM lm1.lease WHERE key = 'cancelled' FOR UPDATE";
    client.batch_execute(row).await.expect("locked");
    let error = refusal(&brisk, "cancelled").await;
    assert_eq!(reason(&error), UnavailableReason::Timeout, "{error}");
    assert!(error.to_string().contains("statement timeout"), "{error}");
    let waiting =
        tokio::spawn(lock(&brisk, "cancelled").wait(LONG_TTL).run(async { Locked::Ok(7) }));
    assert!(!waiting.is_finished());
    client.batch_execute("COMMIT").await.expect("committed");
    assert_eq!(waiting.await.expect("no panic"), Ok(7));
    server.keeps_nothing("cancelled").await;
}

/// There a statement fails that has waited for a row which another one has changed.
#[tokio::test]
async fn callers_whose_database_isolates_transactions_more_are_served_one_after_the_other() {
    const CALLERS: usize = 6;
    const CALLS: usize = 10;
    let server = shared().await;
    for (name, level) in [("repeats", "repeatable read"), ("serial", "serializable")] {
        let setting = format!("SET default_transaction_isolation = '{level}'");
        let url = with_user(&server, name, &setting).await;
        let (managers, room) = ([manager(&url).await, manager(&url).await], Room::default());
        let callers = join_all((0..CALLERS).map(|nth| {
            let (manager, room) = (&managers[nth % managers.len()], &room);
            async move {
                for _ in 0..CALLS {
                    let waiting = lock(manager, "isolated").wait(LONG_TTL).acquire_fenced();
                    let (guard, fences) = waiting.await.expect("its turn");
                    room.visit(fences[0]).await;
                    guard.release().await.expect("released");
                }
            }
        }));
        timeout(LONG_TTL, callers).await.expect("all are served");
        assert_eq!(room.visits(), CALLERS * CALLS);
    }
    server.keeps_nothing("isolated").await;
}

/// The holders that share a key have rows of their own, which an older snapshot does not have.
#[tokio::test]
async fn an_older_snapshot_does_not_hide_the_holders_that_share_a_key() {
    let server = shared().await;
    let locks = manager(&server.url()).await;
    works(&locks, "past").await;
    let (one, other) = (server.connect().await, server.connect().await);
    let token = |who: &str| format!("{who}/{:032x}", 7);
    let ask = |who, holders| {
        let keys = "'{past}'";
        format!(
            "SELECT nth FROM lm1.ask({keys}, '{}', 1000, '{{{holders}}}', false, NULL, NULL, 1, 0)",
            token(who)
        )
    };
    let sharing = [
        ask("sharing", 2),
        format!("SELECT lm1.renew('{{past}}', '{{{}}}', '{{2000}}')", token("sharing")),
    ];
    for change in sharing {
        one.batch_execute(&format!("BEGIN; {change}")).await.expect("granted");
        other
            .batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1")
            .await
            .expect("begun");
        let alone = ask("alone", 1);
        let asking = other.query(&alone, &[]);
        let end = async {
            eventually("it waits for the row", TEST_TIMEOUT, || async {
                let waits = "SELECT count(*) > 0 FROM pg_stat_activity
                    WHERE wait_event_type = 'Lock' AND query LIKE '%alone/%' AND pid <> pg_backend_pid()";
                server.connect().await.query_one(waits, &[]).await.expect("an answer").get(0)
            })
            .await;
            one.batch_execute("COMMIT").await.expect("committed");
        };
        let (asked, ()) = tokio::join!(asking, end);
        let error = asked.expect_err("it was granted, or refused, by what has been");
        assert_eq!(error.code(), Some(&SqlState::T_R_SERIALIZATION_FAILURE), "{error}");
        other.batch_execute("ROLLBACK").await.expect("ended");
    }
    server.keeps_nothing("past").await;
}

#[tokio::test]
async fn a_waiter_behind_one_whose_process_is_dead_is_served_after_the_confirm_window() {
    let server = shared().await;
    let (ours, theirs) = (manager(&server.url()).await, manager(&server.url()).await);
    let client = server.connect().await;
    let guard = lock(&ours, "dead waiter").acquire().await.expect("free");
    // Nobody listens to its channel.
    let dead = "INSERT INTO lm1.waiter
        (key, place, token, ttl, holders, fenced, id, channel, callers, ends)
        VALUES ('dead waiter', 1, 'dead/00000000000000000000000000000000', 60000, 1, true, '1',
        'lm1_dead', 1, clock_timestamp() + interval '1 min')";
    client.batch_execute(dead).await.expect("in the queue");
    let waiting = tokio::spawn(lock(&theirs, "dead waiter").wait(LONG_TTL).acquire_fenced());
    eventually("both wait", TEST_TIMEOUT, || async {
        let waiters = "SELECT FROM lm1.waiter WHERE key = 'dead waiter'";
        client.query(waiters, &[]).await.expect("an answer").len() == 2
    })
    .await;
    let start = Instant::now();
    guard.release().await.expect("still held");
    let (dead, _) = holder(&client, "dead waiter").await.expect("it is held");
    assert!(dead.starts_with("dead/"), "{dead} is the first one");
    let (guard, _) = waiting.await.expect("no panic").expect("its turn");
    let took = start.elapsed();
    assert!(took < CONFIRM_WINDOW + POLLED, "{took:?}");
    guard.release().await.expect("still held");
    server.keeps_nothing("dead waiter").await;
}

/// An unused row is removed while somebody asks.
#[tokio::test]
async fn a_waiter_of_a_key_whose_row_is_gone_is_granted_nothing_until_it_has_asked_again() {
    let server = shared().await;
    let (ours, theirs) = (manager(&server.url()).await, manager(&server.url()).await);
    let client = server.connect().await;
    let guard = lock(&ours, "gone").acquire().await.expect("free");
    let waiting = tokio::spawn(lock(&theirs, "gone").wait(LONG_TTL).acquire());
    is_waited_for(&client, "gone").await;
    let release = "BEGIN; DELETE FROM lm1.lease WHERE key = 'gone';
        SELECT lm1.release('{gone}', 'other', 0); COMMIT";
    client.batch_execute(release).await.expect("released");
    let left = client.query("SELECT FROM lm1.waiter WHERE key = 'gone'", &[]).await;
    assert_eq!(left.expect("an answer").len(), 1, "it waits");
    let granted = waiting.await.expect("no panic").expect("its turn");
    assert!(holder(&client, "gone").await.is_some());
    granted.release().await.expect("still held");
    drop(guard);
    server.keeps_nothing("gone").await;
}

/// Keys with a NUL are stored under other names, in another order.
#[tokio::test]
async fn a_release_that_finds_one_key_taken_says_so_and_releases_the_other() {
    let server = shared().await;
    let ours = manager(&server.url()).await;
    for taken in ["taken: a", "taken: b"] {
        let several = Lock::many(["taken: a", "taken: b"]).ttl(LONG_TTL).manager(&ours);
        let guard = several.acquire().await.expect("free");
        server
            .execute(&format!("UPDATE lm1.lease SET ends = '-infinity' WHERE key = '{taken}'"))
            .await;
        let error = guard.release().await.expect_err("one was taken");
        assert!(
            matches!(&error, LockError::Lost(lost) if lost.cause() == LossCause::Taken),
            "{error}"
        );
    }
    server.keeps_nothing("taken").await;
}

#[tokio::test]
async fn a_row_that_somebody_has_locked_delays_no_renewal_of_other_keys() {
    let server = shared().await;
    let ours = manager(&server.url()).await;
    let renewed = |nth| {
        let lock = Lock::new(format!("row: {nth}")).ttl(Duration::from_secs(12)).manager(&ours);
        lock.renew().acquire()
    };
    let guards: Vec<_> = join_all((0..8).map(renewed)).await;
    let guards: Vec<_> = guards.into_iter().map(|guard| guard.expect("free")).collect();
    let (client, other) = (server.connect().await, server.connect().await);
    let row = "BEGIN; SELECT FROM lm1.lease WHERE key = 'row: 3' FOR UPDATE";
    other.batch_execute(row).await.expect("locked");
    let (_, before) = holder(&client, "row: 3").await.expect("held");
    for nth in [0, 7] {
        is_renewed(&client, &format!("row: {nth}")).await;
    }
    assert_eq!(holder(&client, "row: 3").await.expect("held").1, before);
    other.batch_execute("COMMIT").await.expect("ended");
    is_renewed(&client, "row: 3").await;
    for guard in guards {
        guard.release().await.expect("still held");
    }
    server.keeps_nothing("row").await;
}

#[tokio::test]
async fn an_extension_waits_for_a_row_that_somebody_has_locked() {
    let server = shared().await;
    let ours = manager(&server.url()).await;
    let both = Lock::many(["extended: a", "extended: b"]).ttl(LONG_TTL).manager(&ours);
    let guard = both.acquire().await.expect("free");
    let (client, other) = (server.connect().await, server.connect().await);
    let row = "BEGIN; SELECT FROM lm1.lease WHERE key = 'extended: b' FOR UPDATE";
    other.batch_execute(row).await.expect("locked");
    let end = async {
        eventually("it waits", TEST_TIMEOUT, || async {
            let waits = "SELECT count(*) > 0 FROM pg_stat_activity
                WHERE wait_event_type = 'Lock' AND query LIKE '%renew%'";
            client.query_one(waits, &[]).await.expect("an answer").get(0)
        })
        .await;
        other.batch_execute("COMMIT").await.expect("ended");
    };
    let (extended, ()) = tokio::join!(guard.extend(2 * LONG_TTL), end);
    extended.expect("still held");
    guard.release().await.expect("still held");
    server.keeps_nothing("extended").await;
}

/// A late writer that has been refused may leave its transaction open.
#[tokio::test]
async fn a_late_writer_that_was_refused_holds_up_nobody() {
    let server = shared().await;
    let ours = manager(&server.url()).await;
    let writer = server.connect().await;
    let (guard, fences) = lock(&ours, "refused").acquire_fenced().await.expect("free");
    guard.release().await.expect("still held");
    let guard = lock(&ours, "refused").fenced().acquire().await.expect("free");
    writer.batch_execute("BEGIN").await.expect("begun");
    let check = "CALL lm1.check_fence('refused', $1)";
    assert!(!is_not_late(writer.execute(check, &[&i64::from(fences[0])]).await), "it is late");
    guard.release().await.expect("still held");
    let next = timeout(SLACK, lock(&ours, "refused").wait(LONG_TTL).acquire_fenced()).await;
    next.expect("at once").expect("free").0.release().await.expect("still held");
    server.keeps_nothing("refused").await;
}

/// A row that somebody has locked shows who, also when that has failed.
#[tokio::test]
async fn every_call_locks_its_keys_in_one_order_and_does_not_wait_for_long() {
    let server = shared().await;
    let (client, other) = (server.connect().await, server.connect().await);
    let rows = "SELECT lm1.lock_row('order: a'), lm1.lock_row('order: b')";
    client.batch_execute(rows).await.expect("made");
    let first = "BEGIN; SELECT FROM lm1.lease WHERE key = 'order: a' FOR UPDATE";
    other.batch_execute(first).await.expect("locked");
    let locked_by = async || {
        let last = "SELECT xmax::text FROM lm1.lease WHERE key = 'order: b'";
        client.query_one(last, &[]).await.expect("an answer").get::<_, String>(0)
    };
    let keys = "ARRAY['order: b', 'order: a']";
    for call in [
        format!("ask({keys}, 'a/b', 1000, ARRAY[1, 1], true, NULL, NULL, 1, NULL)"),
        format!("release({keys}, 'a/b', 0)"),
    ] {
        let before = locked_by().await;
        let call = format!("SELECT lm1.{call}");
        let error = client.batch_execute(&call).await.expect_err("the first is locked");
        assert_eq!(error.code(), Some(&SqlState::LOCK_NOT_AVAILABLE), "{call}: {error:?}");
        assert_eq!(locked_by().await, before, "{call}");
    }
}
