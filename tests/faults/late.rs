//! Commands that reach the server when nobody wants them any more, and answers that come too late
//! to be the last word.

use std::time::{Duration, Instant};

use lockmacro_runtime::{LockManager, Unavailability};
use lockmacro_tests::{Fault, Proxy, Server, eventually};

use crate::refusals::follow;
use crate::{KEY, SLACK, SOON, TIMEOUT, keeps_nothing, lock, manager, ms, reason, works};

/// How long the network keeps a command: longer than the lock is held.
const HELD_UP: Duration = ms(4_000);

#[tokio::test]
async fn a_set_that_arrives_after_its_release_is_taken_back_soon() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let builder = LockManager::builder().timeout(HELD_UP);
    let manager = builder.connect(&proxy.url()).await.expect("the server is there");
    works(&manager).await;
    proxy.on_next("SET", Fault::HoldCommand(HELD_UP));
    let start = Instant::now();
    // Granted by a second request, which overtakes the first one.
    let guard = lock(&manager).acquire().await.expect("free");
    guard.release().await.expect("released");
    assert!(start.elapsed() < HELD_UP, "the first request is still on its way");
    proxy.held_commands_arrive().await;
    let mut admin = server.admin();
    eventually("the key is free", SOON, || std::future::ready(admin.get(KEY).is_none())).await;
}

#[tokio::test]
async fn a_set_that_arrives_after_its_acquire_was_given_up_is_taken_back_soon() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let manager = manager(&proxy.url()).await;
    works(&manager).await;
    proxy.on_next("SET", Fault::HoldCommand(HELD_UP));
    tokio::time::timeout(ms(30), lock(&manager).acquire()).await.expect_err("no answer");
    proxy.held_commands_arrive().await;
    let mut admin = server.admin();
    eventually("the key is free", SOON, || std::future::ready(admin.get(KEY).is_none())).await;
    drop(manager);
    keeps_nothing(&server).await;
}

/// The reason that is told when a replica refuses at first, with an error of that name, and does not
/// answer any more after that. `prepare` makes a refusing replica of a server.
async fn told_of(error: &str, prepare: impl AsyncFnOnce(&Server)) -> Unavailability {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let manager = manager(&proxy.url()).await;
    works(&manager).await;
    prepare(&server).await;
    let mut admin = server.admin();
    admin.forget_calls();
    let start = Instant::now();
    let asked = tokio::spawn(lock(&manager).acquire());
    // It asks again when it has the first answer.
    eventually("refused", SOON, || std::future::ready(admin.refused(error) > 1)).await;
    proxy.stall(true);
    let error = asked.await.expect("no panic").expect_err("refused");
    assert!(start.elapsed() < TIMEOUT + SLACK, "after {:?}", start.elapsed());
    reason(error)
}

#[tokio::test]
async fn a_refusal_is_told_when_no_answer_follows_it() {
    let primary = Server::start();
    let read_only = async |server: &Server| follow(server, primary.port()).await;
    assert_eq!(told_of("READONLY", read_only).await, Unavailability::ReadOnly);

    let alone = async |server: &Server| {
        let mut admin = server.admin();
        admin.configure("replica-serve-stale-data", "no");
        // Port 1 of this machine: nobody is there.
        admin.ask::<()>(&["REPLICAOF", "127.0.0.1", "1"]);
    };
    assert_eq!(told_of("MASTERDOWN", alone).await, Unavailability::PrimaryDown);
}
