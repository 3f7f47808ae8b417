//! Several keys while a server or a network has faults.

use std::time::Duration;

use lockmacro_runtime::{LockError, LockManager, LossCause, UnavailableReason};
use lockmacro_tests::AcquireFenced as _;
use lockmacro_tests::{Fault, Proxy, Server};

use crate::{IN_TIME, LONG_TTL, Locked, busy_key, has_keys, impatient, many, ms};

const KEYS: [&str; 3] = ["order:a", "order:b", "order:c"];

const LOST: [Fault; 3] = [Fault::LoseReply, Fault::CutReply, Fault::CutCommand];

/// The answer is lost, or the connection is, after the server has granted all keys.
#[tokio::test]
async fn a_grant_whose_answer_is_lost_is_recognised() {
    for fault in LOST {
        let server = Server::start();
        let proxy = Proxy::to(server.port());
        let manager = LockManager::connect(&proxy.url()).await.expect("there");
        // The scripts are loaded.
        many(&manager, KEYS).run(async { Locked::Ok(()) }).await.expect("free");
        proxy.on_next("EVALSHA", fault);
        let (guard, fences) = many(&manager, KEYS).acquire_fenced().await.expect("ours");
        assert!(proxy.orders_are_done() && guard.is_held() && fences.len() == 3);
        guard.release().await.expect("still held");
        // Their fences.
        has_keys(&mut server.admin(), 3).await;
    }
}

#[tokio::test]
async fn a_release_whose_answer_is_lost_leaves_no_key() {
    for fault in LOST {
        let server = Server::start();
        let proxy = Proxy::to(server.port());
        let manager = LockManager::connect(&proxy.url()).await.expect("there");
        let guard = many(&manager, KEYS).acquire().await.expect("free");
        proxy.on_next("EVALSHA", fault);
        // It may not know what the lost one did.
        let _ = guard.release().await;
        has_keys(&mut server.admin(), 0).await;
    }
}

#[tokio::test]
async fn a_server_that_accepts_no_writes_is_reported_as_that() {
    let (server, primary) = (Server::start(), Server::start());
    let manager = impatient(&server.url(), ms(600)).await;
    let guard = many(&manager, KEYS).acquire().await.expect("free");
    let mut admin = server.admin();
    admin.ask::<()>(&["REPLICAOF", "127.0.0.1", &primary.port().to_string()]);
    let read_only = |error: &LockError| {
        let reason = UnavailableReason::ReadOnly;
        assert!(
            matches!(error, LockError::Unavailable { reason: r, .. } if *r == reason),
            "{error}"
        );
    };
    read_only(&guard.extend(LONG_TTL).await.expect_err("read-only"));
    read_only(&many(&manager, ["d", "e"]).acquire().await.expect_err("read-only"));
    read_only(&guard.release().await.expect_err("read-only"));
    admin.ask::<()>(&["REPLICAOF", "NO", "ONE"]);
}

/// A user without the right to one of the keys.
#[tokio::test]
async fn a_denied_key_is_named_and_no_other_is_acquired() {
    let server = Server::start();
    let mut admin = server.admin();
    admin.ask::<()>(&["ACL", "SETUSER", "shop", "on", ">pw", "~order:a", "~lm1:*", "&*", "+@all"]);
    let manager = LockManager::connect(&server.url_as("shop", "pw")).await.expect("there");
    let error = many(&manager, KEYS).acquire().await.expect_err("denied");
    assert!(matches!(error, LockError::AccessDenied { .. }), "{error}");
    assert_eq!(admin.keys(), Vec::<String>::new());
}

/// The counter of a fence is something else, or the server's clock must not be asked for a fence.
#[tokio::test]
async fn a_fence_that_fails_leaves_no_key() {
    let server = Server::start();
    let mut admin = server.admin();
    admin.ask::<()>(&["ACL", "SETUSER", "shop", "on", ">pw", "~*", "&*", "+@all"]);
    let manager = LockManager::connect(&server.url_as("shop", "pw")).await.expect("there");
    admin.ask::<()>(&["ACL", "SETUSER", "shop", "-time"]);
    let error = many(&manager, KEYS).fenced().acquire().await.expect_err("denied");
    assert!(matches!(error, LockError::AccessDenied { .. }), "{error}");
    assert_eq!(admin.keys(), Vec::<String>::new());

    admin.ask::<()>(&["ACL", "SETUSER", "shop", "+time"]);
    admin.ask::<()>(&["RPUSH", "lm1:wf:{order:b}", "a list"]);
    let error = many(&manager, KEYS).fenced().acquire().await.expect_err("no counter");
    assert!(matches!(error, LockError::KeyNotALock { .. }), "{error}");
    assert_eq!(busy_key(&error), "order:b");
    for key in KEYS {
        assert_eq!(admin.get(key), None);
    }
}

#[tokio::test]
async fn a_server_that_came_back_empty_has_lost_all_keys() {
    let mut server = Server::start();
    let manager = LockManager::connect(&server.url()).await.expect("there");
    let guard =
        many(&manager, KEYS).ttl(Duration::from_secs(1)).renew().acquire().await.expect("free");
    server.kill();
    server.restart();
    let lost = tokio::time::timeout(IN_TIME, guard.lost()).await.expect("in time");
    assert!(matches!(lost.cause(), LossCause::Taken | LossCause::NotRenewed), "{lost}");
    drop(guard);
    has_keys(&mut server.admin(), 0).await;
}
