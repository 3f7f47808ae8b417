//! Servers that answer, and grant nothing.

use lockmacro_runtime::defer::NewJob;
use lockmacro_runtime::{LockError, LockManager, UnavailableReason};
use lockmacro_tests::times::{LONG_TTL, ms};
use lockmacro_tests::{Postgres, eventually, within};

use crate::{Locked, TIMEOUT, lock, manager, reason, refusal, shared, works};

/// Makes a user that may use locks, with this setting. Returns the address for it.
pub(crate) async fn with_user(server: &Postgres, name: &str, setting: &str) -> String {
    let _ = manager(&server.url()).await;
    server
        .execute(&format!(
            "CREATE ROLE {name} LOGIN;
            GRANT USAGE ON SCHEMA lm1 TO {name};
            GRANT EXECUTE ON ALL ROUTINES IN SCHEMA lm1 TO {name};
            ALTER ROLE {name} {setting}"
        ))
        .await;
    server.url_of(name, &format!("application_name={name}"))
}

#[tokio::test]
async fn a_full_server_is_reported_every_time_and_a_manager_with_one_connection_goes_on() {
    let limits = ["max_connections=9", "superuser_reserved_connections=1", "max_wal_senders=0"];
    let server = Postgres::with(&["-F", "-c", limits[0], "-c", limits[1], "-c", limits[2]]).await;
    let url = with_user(&server, "plain", "SET work_mem = '4MB'").await;
    // It has the connection that it has checked the server by.
    let connected = manager(&url).await;
    let mut others = Vec::new();
    let mut refusals = 0;
    // A connection that was closed just before may still have its place.
    while refusals < 5 {
        let place = format!("host=127.0.0.1 port={} user=plain dbname=postgres", server.port());
        match tokio_postgres::connect(&place, tokio_postgres::NoTls).await {
            Ok((client, connection)) => others.push((client, tokio::spawn(connection))),
            Err(_) => {
                refusals += 1;
                tokio::time::sleep(ms(100)).await;
            }
        }
    }
    for _ in 0..2 {
        let builder = LockManager::builder().timeout(TIMEOUT);
        let error = builder.connect(&url).await.expect_err("full");
        assert_eq!(reason(&error), UnavailableReason::ConnectionLimit, "{error}");
        works(&connected, "full").await;
    }
    drop(others);
    let connects = || async { LockManager::builder().timeout(TIMEOUT).connect(&url).await.is_ok() };
    eventually("there is room", LONG_TTL, connects).await;
    server.keeps_nothing("full").await;
}

/// The error of a disk on which no table can grow.
#[tokio::test]
async fn a_full_disk_refuses_new_keys_and_keeps_the_locks_that_are_held() {
    let server = Postgres::start().await;
    let ours = manager(&server.url()).await;
    let held = lock(&ours, "disk: held").acquire().await.expect("free");
    let full = "CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$
            BEGIN RAISE 'could not extend file' USING ERRCODE = 'disk_full'; END $$;
        CREATE TRIGGER full_disk BEFORE INSERT ON lm1.lease EXECUTE FUNCTION public.full_disk()";
    server.execute(full).await;
    let error = refusal(&within(TIMEOUT, &server.url()).await, "disk").await;
    assert_eq!(reason(&error), UnavailableReason::NotSaving, "{error}");
    let waiting = tokio::spawn(lock(&ours, "disk").wait(LONG_TTL).run(async { Locked::Ok(7) }));
    held.extend(LONG_TTL).await.expect("still held");
    server.execute("DROP TRIGGER full_disk ON lm1.lease").await;
    assert_eq!(waiting.await.expect("no panic"), Ok(7));
    held.release().await.expect("still held");
    server.keeps_nothing("disk").await;
}

#[tokio::test]
async fn a_user_who_may_only_read_is_told_so_and_works_once_it_may_write() {
    let server = shared().await;
    let url = with_user(&server, "reader", "SET default_transaction_read_only = on").await;
    let error = LockManager::builder().timeout(TIMEOUT).connect(&url).await.expect_err("read only");
    assert_eq!(reason(&error), UnavailableReason::ReadOnly, "{error}");
    assert!(error.to_string().contains("default_transaction_read_only"), "{error}");
    let manager =
        LockManager::builder().timeout(TIMEOUT).lazy().connect(&url).await.expect("a URL");
    for waits in [false, true] {
        let lock = lock(&manager, "read only");
        let lock = if waits { lock.wait(TIMEOUT) } else { lock };
        let error = lock.acquire().await.expect_err("read only");
        assert_eq!(reason(&error), UnavailableReason::ReadOnly, "{error}");
    }
    server.execute("ALTER ROLE reader RESET default_transaction_read_only").await;
    let again = || async { lock(&manager, "read only").run(async { Locked::Ok(7) }).await.is_ok() };
    eventually("it works", LONG_TTL, again).await;
    server.keeps_nothing("read only").await;
}

#[tokio::test]
async fn a_text_that_the_database_cannot_store_is_a_mistake_that_says_what_to_do() {
    let server = shared().await;
    let latin = "CREATE DATABASE latin TEMPLATE template0 ENCODING 'LATIN1' LOCALE 'C'";
    server.connect().await.batch_execute(latin).await.expect("made");
    let manager = manager(&server.url().replace("/postgres?", "/latin?")).await;
    works(&manager, "größe").await;
    let error = refusal(&manager, "订单").await;
    assert!(matches!(error, LockError::InvalidSetting { .. }), "{error:?}");
    assert!(error.to_string().contains("make one in UTF8"), "{error}");
}

#[tokio::test]
async fn an_id_that_no_index_or_text_can_hold_is_refused_as_a_setting() {
    let server = shared().await;
    let locks = manager(&server.url()).await;
    for id in ["x".repeat(3_000), "a\0b".to_owned()] {
        let job = NewJob::new("refused", id, "[]", "refused");
        let error = locks.job_queue().put(job).await.expect_err("refused");
        assert!(matches!(error, LockError::InvalidSetting { setting: "id", .. }), "{error:?}");
    }
}

#[tokio::test]
async fn a_standby_says_that_it_is_one_until_it_is_promoted() {
    let server = shared().await;
    let ours = manager(&server.url()).await;
    let guard = lock(&ours, "standby").acquire().await.expect("free");
    let standby = server.standby().await;
    let url = standby.url_of("postgres", "");
    let error = LockManager::builder().timeout(TIMEOUT).connect(&url).await.expect_err("a standby");
    assert_eq!(reason(&error), UnavailableReason::ReadOnly, "{error}");
    assert!(error.to_string().contains("connect to its primary"), "{error}");
    // A manager that is told all hosts finds the primary behind it.
    let both = format!("127.0.0.1:{},127.0.0.1:{}", standby.port(), server.port());
    let both = manager(&format!("postgres://postgres@{both}/postgres")).await;
    works(&both, "standby: other").await;
    assert!(lock(&both, "standby").acquire().await.expect_err("held").is_busy());
    let lazy = LockManager::builder().timeout(TIMEOUT).lazy().connect(&url).await.expect("a URL");
    assert_eq!(reason(&refusal(&lazy, "standby: other").await), UnavailableReason::ReadOnly);
    let (mine, theirs) = (server.connect().await, standby.connect().await);
    let place = "SELECT pg_current_wal_lsn()::text";
    let place: String = mine.query_one(place, &[]).await.expect("a place").get(0);
    let arrived = format!("SELECT pg_last_wal_replay_lsn() >= '{place}'::pg_lsn");
    eventually("it has all", LONG_TTL, || async {
        theirs.query_one(&arrived, &[]).await.expect("an answer").get(0)
    })
    .await;
    // Not waited for in the statement: replay cancels one that has a snapshot of removed rows.
    theirs.batch_execute("SELECT pg_promote(wait => false)").await.expect("told to");
    eventually("it is promoted", LONG_TTL, || async {
        theirs.query_one("SELECT NOT pg_is_in_recovery()", &[]).await.expect("an answer").get(0)
    })
    .await;
    let promoted = manager(&url).await;
    // It knows what the primary has granted.
    assert!(lock(&promoted, "standby").acquire().await.expect_err("held").is_busy());
    works(&promoted, "standby: other").await;
    eventually("a manager there before works, too", LONG_TTL, || async {
        lock(&lazy, "standby: other").run(async { Locked::Ok(7) }).await.is_ok()
    })
    .await;
    guard.release().await.expect("still held");
    server.keeps_nothing("standby").await;
}
