//! A server that comes back empty.

use std::future::ready;

use lockmacro_runtime::{Lock, LockManager, LossCause};
use lockmacro_tests::AcquireFenced as _;
use lockmacro_tests::{Server, eventually, in_time};

use crate::{Locked, SOON, cause, lock, ms, renewed, within};

const KEY: &str = "order:42";

async fn manager(server: &Server) -> LockManager {
    within(ms(1_500), &server.url()).await
}

#[tokio::test]
async fn a_server_that_comes_back_empty_is_a_lock_taken_away() {
    let mut server = Server::start();
    let manager = manager(&server).await;
    let result: Locked<()> = in_time(renewed(&manager, KEY, ms(6_000)).run(async {
        server.kill();
        server.restart();
        std::future::pending().await
    }))
    .await;
    assert_eq!(cause(result), LossCause::Taken);
    let value = lock(&manager, KEY).run(async { Locked::Ok(7) }).await;
    assert_eq!(value, Ok(7), "the next lock works");
}

#[tokio::test]
async fn a_rival_on_an_empty_server_is_left_alone_by_the_old_holder() {
    let mut server = Server::start();
    let (old, new) = (manager(&server).await, manager(&server).await);
    let guard = renewed(&old, KEY, ms(6_000)).acquire().await.expect("free");
    server.kill();
    server.restart();
    let theirs = lock(&new, KEY).acquire().await.expect("free");
    assert_eq!(in_time(guard.lost()).await.cause(), LossCause::Taken);
    drop(guard);
    old.shutdown(SOON).await.expect("what was dropped is released");
    theirs.check().expect("theirs");
    theirs.release().await.expect("still theirs");
}

#[tokio::test]
async fn a_server_that_comes_back_empty_is_noticed_though_the_next_caller_waits() {
    for waits in [false, true] {
        let mut server = Server::start();
        let manager = manager(&server).await;
        let guard = lock(&manager, KEY).acquire().await.expect("free");
        server.kill();
        server.restart();
        let other = lock(&manager, "other");
        let other = if waits { other.wait(SOON) } else { other };
        // The first request may find out that the connection is gone.
        drop(other.acquire().await);
        assert_eq!(in_time(guard.lost()).await.cause(), LossCause::Taken, "waits: {waits}");
    }
}

#[tokio::test]
async fn a_server_that_comes_back_with_old_data_keeps_a_lock_for_as_long_as_its_holder_believes() {
    let mut server = Server::start();
    let manager = manager(&server).await;
    let guard = Lock::new(KEY).ttl(ms(20_000)).manager(&manager).acquire().await.expect("free");
    server.admin().ask::<()>(&["SAVE"]);
    guard.extend(crate::LONG_TTL).await.expect("ours");
    server.kill();
    server.restart();
    assert!(server.admin().ttl(KEY).expect("saved") <= ms(20_000));
    drop(lock(&manager, "other").acquire().await);
    let mut admin = server.admin();
    let kept = || ready(admin.ttl(KEY).is_some_and(|left| left > guard.remaining()));
    eventually("it is kept for as long", SOON, kept).await;
    guard.release().await.expect("still ours");
}

#[tokio::test]
async fn fences_grow_on_a_server_that_comes_back_empty() {
    let mut server = Server::start();
    let mut last = None;
    for round in 0..4 {
        let manager = manager(&server).await;
        for _ in 0..20 {
            let (guard, fences) = lock(&manager, KEY).acquire_fenced().await.expect("free");
            assert!(Some(fences[0]) > last, "round {round}: {fences:?} after {last:?}");
            last = Some(fences[0]);
            guard.release().await.expect("released");
        }
        if round == 2 {
            // Only the last fence is forgotten.
            server.admin().ask::<()>(&["FLUSHALL"]);
        } else {
            server.kill();
            server.restart();
        }
    }
}

#[tokio::test]
async fn a_manager_that_was_connected_before_the_restart_goes_on() {
    let mut server = Server::start();
    let manager = manager(&server).await;
    let (guard, first) = lock(&manager, KEY).acquire_fenced().await.expect("free");
    server.kill();
    server.restart();
    // Its answer could have been lost with the connection: nobody can know what was released.
    let _ = guard.release().await;
    let (guard, second) = lock(&manager, KEY).acquire_fenced().await.expect("free");
    assert!(second > first);
    guard.release().await.expect("released");
    let mut admin = server.admin();
    let free = || ready(admin.get(KEY).is_none());
    eventually("it is free", SOON, free).await;
}
