//! The database and the schema that a URL names.

use futures::future::join_all;
use lockmacro_runtime::{LockError, LockManager};
use lockmacro_tests::Postgres;

use crate::{TIMEOUT, lock, manager, shared, works};

/// The error of connecting, which must be a mistake in the setting.
async fn mistake(url: &str, of: &str) -> String {
    let error = LockManager::builder().timeout(TIMEOUT).connect(url).await.expect_err("a mistake");
    match &error {
        LockError::InvalidSetting { setting, .. } => assert_eq!(*setting, of, "{error}"),
        other => panic!("not `InvalidSetting`: {other:?}"),
    }
    error.to_string()
}

#[tokio::test]
async fn a_schema_that_is_missing_is_a_mistake_that_says_what_to_do() {
    let server = shared().await;
    let error = mistake(&server.url_of("postgres", "schema=missing"), "schema").await;
    assert!(error.contains("\"missing\" does not exist"), "{error}");
    assert!(error.contains("`install=1`"), "{error}");
    // One that somebody made for something else.
    server.execute("CREATE SCHEMA foreign_one").await;
    let url = server.url_of("postgres", "install=1&schema=foreign_one");
    assert!(mistake(&url, "schema").await.contains("foreign_one.version() does not exist"));
}

#[tokio::test]
async fn an_older_schema_is_a_mistake_until_it_is_replaced_and_a_newer_one_is_used() {
    let server = shared().await;
    let (url, installs) = (
        server.url_of("postgres", "schema=other"),
        server.url_of("postgres", "schema=other&install=1"),
    );
    let earlier = manager(&installs).await;
    let guard = lock(&earlier, "other").acquire().await.expect("free");
    let version = |nth: u32| {
        format!(
            "CREATE OR REPLACE FUNCTION other.version() RETURNS int
            LANGUAGE sql IMMUTABLE AS 'SELECT {nth}'"
        )
    };
    server.execute(&version(0)).await;
    // As of an older program that knows less.
    server.execute("DROP FUNCTION other.look(text)").await;
    let error = mistake(&url, "schema").await;
    assert!(error.contains("version 0") && error.contains("postgres install"), "{error}");
    // In the middle of a deployment: the one before goes on, with the lock that it holds.
    let later = manager(&installs).await;
    assert!(lock(&later, "other").acquire().await.expect_err("held").is_busy());
    assert!(later.inspect_lock("other").await.expect("there").is_some());
    works(&earlier, "other: 2").await;
    guard.release().await.expect("still held");
    server.execute(&version(99)).await;
    for url in [&url, &installs] {
        works(&manager(url).await, "other").await;
    }
}

#[tokio::test]
async fn a_schema_that_cannot_be_named_so_is_a_mistake() {
    let server = shared().await;
    for name in ["user", "1locks", "pg_locks", "Locks"] {
        mistake(&server.url_of("postgres", &format!("schema={name}&install=1")), "schema").await;
    }
}

#[tokio::test]
async fn a_database_that_is_missing_is_a_mistake_in_the_url() {
    let server = shared().await;
    let url = server.url().replace("/postgres?", "/nowhere?");
    assert!(mistake(&url, "url").await.contains("\"nowhere\" does not exist"));
}

#[tokio::test]
async fn another_schema_has_other_locks() {
    let server = shared().await;
    let here = manager(&server.url()).await;
    let there = manager(&server.url_of("postgres", "install=1&schema=there")).await;
    let one = lock(&here, "schemas").acquire().await.expect("free");
    let other = lock(&there, "schemas").acquire().await.expect("another one");
    let third = manager(&server.url_of("postgres", "schema=there")).await;
    assert!(lock(&third, "schemas").acquire().await.expect_err("held").is_busy());
    one.release().await.expect("still held");
    other.release().await.expect("still held");
    server.keeps_nothing("schemas").await;
}

#[tokio::test]
async fn managers_that_make_the_schema_at_the_same_moment_all_succeed() {
    let server = shared().await;
    for round in 0..3 {
        let url = server.url_of("postgres", &format!("install=1&schema=rush{round}"));
        let managers = join_all((0..6).map(|_| manager(&url))).await;
        works(&managers[round], "rush").await;
    }
}

/// `B` is before `a` in the order of bytes, and not in that of words.
#[tokio::test]
async fn unused_keys_are_removed_in_a_database_that_sorts_words() {
    let server = Postgres::start().await;
    let words = "CREATE DATABASE words TEMPLATE template0
        LOCALE_PROVIDER icu ICU_LOCALE 'en-US' LOCALE 'C'";
    server.connect().await.batch_execute(words).await.expect("made");
    let url = server.url().replace("/postgres?", "/words?");
    works(&manager(&url).await, "words").await;
    let place = format!("host=127.0.0.1 port={} user=postgres dbname=words", server.port());
    let (client, connection) =
        tokio_postgres::connect(&place, tokio_postgres::NoTls).await.expect("let in");
    tokio::spawn(connection);
    let unused = "INSERT INTO lm1.lease SELECT 'a' || n, NULL, '-infinity', 'epoch'
            FROM generate_series(1, 1500) n;
        INSERT INTO lm1.fence SELECT 'B' || n, 1, 1, 0, 'epoch' FROM generate_series(1, 3500) n";
    client.batch_execute(unused).await.expect("inserted");
    let mut after = Some(String::new());
    while let Some(key) = after {
        let tidied = client.query_one("SELECT lm1.tidy(60000, $1)", &[&key]).await;
        after = tidied.expect("an answer").get(0);
    }
    let left = "SELECT (SELECT count(*) FROM lm1.lease WHERE key <> 'words'),
        (SELECT count(*) FROM lm1.fence)";
    let row = client.query_one(left, &[]).await.expect("an answer");
    assert_eq!((row.get::<_, i64>(0), row.get::<_, i64>(1)), (0, 0));
}
