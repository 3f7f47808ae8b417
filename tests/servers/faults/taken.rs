//! Locks that somebody took away, and the result of their release.

use std::future::ready;

use lockmacro_runtime::{Lock, LockError, LockManager, LossCause, UnavailableReason};
use lockmacro_tests::{Admin, Server, eventually};

use crate::{KEY, LONG_TTL, Locked, TEST_TIMEOUT, lock, manager, ms, served, works};

/// Cuts every connection but the test's, so that the next request has to be sent twice.
fn cut_connections(admin: &mut Admin) {
    admin.ask::<redis::Value>(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
}

/// How a lock was lost that was.
fn cause(error: &LockError) -> LossCause {
    match error {
        LockError::Lost(lost) => lost.cause(),
        other => panic!("not lost: {other:?}"),
    }
}

#[tokio::test]
async fn a_key_taken_away_while_held_costs_no_value_and_frees_nobody_elses_lock() {
    let (server, manager) = served().await;
    let mut admin = server.admin();
    let result = lock(&manager).run(async {
        admin.ask::<()>(&["SET", KEY, "somebody", "PX", "60000"]);
        Locked::Ok(7)
    });
    assert_eq!(result.await, Ok(7));
    assert_eq!(admin.get(KEY).as_deref(), Some("somebody"));
    // A release by hand returns the error.
    admin.ask::<()>(&["DEL", KEY]);
    let guard = lock(&manager).acquire().await.expect("free");
    admin.ask::<()>(&["DEL", KEY]);
    let error = guard.release().await.expect_err("taken away");
    assert_eq!(cause(&error), LossCause::Taken);
}

#[tokio::test]
async fn a_release_after_the_lease_is_lost_whatever_the_connection_does() {
    let server = Server::start();
    let mut admin = server.admin();
    for round in 0..20 {
        let manager = manager(&server.url()).await;
        works(&manager).await;
        let short = Lock::new(KEY).ttl(ms(150)).manager(&manager);
        let guard = short.acquire().await.expect("free");
        eventually("its lease is over", TEST_TIMEOUT, || {
            let set = ["SET", KEY, "somebody", "NX", "PX", "60000"];
            ready(admin.ask::<Option<String>>(&set).is_some())
        })
        .await;
        if round % 2 == 0 {
            cut_connections(&mut admin);
        }
        let error = guard.release().await.expect_err("somebody else holds it");
        assert_eq!(cause(&error), LossCause::Expired);
        assert_eq!(admin.get(KEY).as_deref(), Some("somebody"), "it is left alone");
        admin.ask::<()>(&["DEL", KEY]);
    }
}

#[tokio::test]
async fn a_release_of_a_lock_taken_in_mid_lease_is_never_ok() {
    let server = Server::start();
    let mut admin = server.admin();
    for round in 0..20 {
        let builder = LockManager::builder().timeout(LONG_TTL);
        let manager = builder.connect(&server.url()).await.expect("there");
        let guard = lock(&manager).acquire().await.expect("free");
        admin.ask::<()>(&["SET", KEY, "somebody", "PX", "60000"]);
        cut_connections(&mut admin);
        if round % 2 == 0 {
            // The client sees the end of the connection before it sends.
            tokio::time::sleep(ms(5)).await;
        }
        match guard.release().await.expect_err("somebody else holds it") {
            LockError::Lost(lost) => assert_eq!(lost.cause(), LossCause::Taken),
            // The first request may have been carried out, for all that the client knows.
            LockError::Unavailable { reason: UnavailableReason::Disconnected, .. } => {}
            other => panic!("{other:?}"),
        }
        assert_eq!(admin.get(KEY).as_deref(), Some("somebody"), "it is left alone");
        admin.ask::<()>(&["DEL", KEY]);
    }
}

#[tokio::test]
async fn a_lock_taken_in_mid_body_costs_no_value_though_its_connection_is_cut() {
    let (server, manager) = served().await;
    let mut admin = server.admin();
    let result = Lock::new(KEY).ttl(LONG_TTL).manager(&manager).run(async {
        admin.ask::<()>(&["SET", KEY, "somebody", "PX", "60000"]);
        cut_connections(&mut admin);
        Locked::Ok(7)
    });
    assert_eq!(result.await, Ok(7));
    assert_eq!(admin.get(KEY).as_deref(), Some("somebody"));
}
