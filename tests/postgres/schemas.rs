//! The database and the schema that a URL names.

use futures::future::join_all;
use lockmacro_runtime::{LockError, LockManager};

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
