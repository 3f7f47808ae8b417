//! The costs of a lock, and its key as a person sees it on the server.

use std::future::ready;
use std::time::Duration;

use lockmacro_runtime::{Lock, LockManager};
use lockmacro_tests::{Server, eventually};

use crate::{KEY, LONG_TTL, Locked, TEST_TIMEOUT, keeps_nothing, lock, manager, served, works};

/// The commands that the two scripts call, at most.
const INSIDE: [&str; 6] = ["del", "get", "getex", "pexpire", "pttl", "zcard"];

fn count(calls: &[(String, u64)], name: &str) -> u64 {
    calls.iter().find(|(n, _)| n == name).map_or(0, |(_, count)| *count)
}

#[tokio::test]
async fn an_uncontended_lock_is_one_set_and_one_evalsha() {
    let (server, manager) = served().await;
    works(&manager).await;
    let mut admin = server.admin();
    admin.forget_calls();
    for _ in 0..10 {
        works(&manager).await;
    }
    let calls = admin.calls();
    assert_eq!((count(&calls, "set"), count(&calls, "evalsha")), (10, 10), "{calls:?}");
    for (name, _) in &calls {
        let known = ["set", "evalsha"].contains(&&**name) || INSIDE.contains(&&**name);
        assert!(known, "{name} in {calls:?}");
    }
}

#[tokio::test]
async fn a_busy_lock_is_one_set_and_one_evalsha() {
    let server = Server::start();
    let (holder, manager) = (manager(&server.url()).await, manager(&server.url()).await);
    let guard = lock(&holder).acquire().await.expect("free");
    let again = Lock::new(KEY).ttl(LONG_TTL).manager(&manager);
    assert!(again.acquire().await.expect_err("held").is_busy());
    let mut admin = server.admin();
    admin.forget_calls();
    let again = Lock::new(KEY).ttl(LONG_TTL).manager(&manager);
    assert!(again.acquire().await.expect_err("held").is_busy());
    let calls = admin.calls();
    assert_eq!((count(&calls, "set"), count(&calls, "evalsha")), (1, 1), "{calls:?}");
    guard.release().await.expect("released");
}

#[tokio::test]
async fn keys_are_never_enumerated() {
    let (server, manager) = served().await;
    server.admin().forget_calls();
    works(&manager).await;
    drop(lock(&manager).acquire().await.expect("free"));
    manager.shutdown(LONG_TTL).await.expect("drained");
    let calls = server.admin().calls();
    for name in ["keys", "scan", "flushdb", "flushall"] {
        assert_eq!(count(&calls, name), 0, "{calls:?}");
    }
}

#[tokio::test]
async fn every_key_ends_by_itself_while_held_and_nothing_stays_afterwards() {
    let (server, manager) = served().await;
    let mut admin = server.admin();
    for ttl in [Duration::from_millis(1_500), Duration::from_secs(24 * 60 * 60)] {
        let guard = Lock::new(KEY).ttl(ttl).manager(&manager).acquire().await.expect("free");
        for key in admin.keys() {
            let left = admin.ttl(&key).unwrap_or_else(|| panic!("{key} never ends"));
            assert!(left <= ttl, "{key}: {left:?}");
        }
        assert_eq!(admin.keys(), [KEY]);
        let left = admin.ttl(KEY).expect("held");
        assert!(guard.remaining() < left);
        guard.release().await.expect("released");
        assert_eq!(admin.ask::<i64>(&["DBSIZE"]), 0);
    }
}

#[tokio::test]
async fn the_key_shows_who_holds_it() {
    let server = Server::start();
    let mut admin = server.admin();
    let named = LockManager::builder().label("web-3").connect(&server.url()).await.expect("there");
    let unnamed = manager(&server.url()).await;
    let mut randoms = Vec::new();
    for (manager, label) in [(&named, "web-3"), (&unnamed, &*std::process::id().to_string())] {
        for _ in 0..3 {
            let held = lock(manager).name("audit_order");
            let guard = held.acquire().await.expect("free");
            let value = admin.get(KEY).expect("held");
            let (shown, random) = value.rsplit_once('/').expect("label/random");
            assert!(shown.contains(label) && shown.contains("audit_order"), "{shown}");
            assert_eq!(random.len(), 32);
            assert!(random.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b)));
            randoms.push(random.to_owned());
            guard.release().await.expect("released");
        }
    }
    randoms.sort();
    randoms.dedup();
    assert_eq!(randoms.len(), 6, "each acquisition has a random part of its own");
}

#[tokio::test]
async fn a_manager_needs_at_most_two_connections() {
    let (server, manager) = served().await;
    let mut admin = server.admin();
    let mut tasks = tokio::task::JoinSet::new();
    for n in 0..100 {
        let own = Lock::new(format!("order:{n}")).ttl(LONG_TTL).manager(&manager);
        tasks.spawn(async move {
            if n % 2 == 0 {
                drop(own.acquire().await.expect("free"));
            } else {
                own.run(async { Locked::Ok(()) }).await.expect("free");
            }
        });
    }
    while let Some(task) = tasks.join_next().await {
        task.expect("no panic");
    }
    let clients: String = admin.ask(&["CLIENT", "LIST"]);
    assert!(clients.lines().count() <= 3, "{clients}");
}

#[tokio::test]
async fn every_form_of_a_url_reaches_the_server() {
    let directory = tempfile::tempdir().expect("a directory for the socket");
    let socket = directory.path().join("redis.sock").to_string_lossy().into_owned();
    let server = Server::with(&["--unixsocket", &socket]);
    let port = server.port();
    let urls = [
        (format!("redis://127.0.0.1:{port}"), "0"),
        (format!("redis://localhost:{port}/"), "0"),
        (format!("redis://127.0.0.1:{port}/3"), "3"),
        (format!("redis+unix://{socket}"), "0"),
    ];
    for (url, database) in urls {
        let manager = LockManager::connect(&url).await.expect("the server is there");
        let guard = lock(&manager).acquire().await.expect("free");
        let mut admin = server.admin();
        admin.ask::<()>(&["SELECT", database]);
        assert!(admin.get(KEY).is_some(), "{url}");
        let again = lock(&manager).acquire().await.expect_err("held");
        assert!(again.is_busy(), "{url}: {again}");
        guard.release().await.expect("released");
        assert_eq!(admin.get(KEY), None, "{url}");
    }
}

#[tokio::test]
async fn managers_that_are_gone_leave_no_connection() {
    let server = Server::start();
    for _ in 0..10 {
        let manager = manager(&server.url()).await;
        works(&manager).await;
        drop(lock(&manager).acquire().await.expect("free"));
        keeps_nothing(&server).await;
    }
    let mut admin = server.admin();
    eventually("only the one that looks is left", TEST_TIMEOUT, || {
        let clients: String = admin.ask(&["CLIENT", "LIST"]);
        ready(clients.lines().count() == 1)
    })
    .await;
}
