//! Servers that are down, stopped, killed and back.

use std::time::Instant;

use lockmacro_runtime::{Lock, UnavailableReason};
use lockmacro_tests::{Server, eventually, on_a_plain_thread};

use crate::{
    LONG_TTL, Locked, SLACK, TEST_TIMEOUT, TIMEOUT, first_error, keeps_nothing, lock, manager, ms,
    reason, refusal, served, through, within, works,
};

#[tokio::test]
async fn a_server_that_is_down_refuses_within_the_timeout() {
    let mut server = Server::start();
    let of_tasks = manager(&server.url()).await;
    let (of_threads, skipping) = (manager(&server.url()).await, manager(&server.url()).await);
    works(&of_tasks).await;
    server.kill();
    assert_eq!(reason(refusal(&of_tasks).await), UnavailableReason::Refused);
    assert_eq!(reason(first_error(&server.url()).await), UnavailableReason::Refused);
    let start = Instant::now();
    let result = on_a_plain_thread(move || lock(&of_threads).run_blocking(|| Locked::Ok(7))).await;
    assert_eq!(reason(result.expect_err("down")), UnavailableReason::Refused);
    assert!(start.elapsed() < TIMEOUT + SLACK);
    // A function without a result does not run.
    let mut ran = false;
    lock(&skipping).skip_when_busy().run(async { ran = true }).await;
    assert!(!ran);
    server.restart();
    works(&of_tasks).await;
}

#[tokio::test]
async fn a_stopped_server_is_a_timeout_and_leaves_nothing_behind_when_it_goes_on() {
    for for_long in [false, true] {
        let (server, manager) = served().await;
        works(&manager).await;
        server.pause();
        assert_eq!(reason(refusal(&manager).await), UnavailableReason::Timeout);
        assert_eq!(reason(refusal(&manager).await), UnavailableReason::Timeout);
        if for_long {
            // The server is silent for longer than the manager tries.
            tokio::time::sleep(ms(3_500)).await;
        }
        server.resume();
        // Requests that were sent to the stalled server are applied now, and then released.
        keeps_nothing(&server).await;
        works(&manager).await;
        keeps_nothing(&server).await;
    }
}

#[tokio::test]
async fn connecting_to_a_stopped_server_is_a_timeout() {
    let server = Server::start();
    server.pause();
    assert_eq!(reason(first_error(&server.url()).await), UnavailableReason::Timeout);
    server.resume();
    works(&manager(&server.url()).await).await;
}

#[tokio::test]
async fn a_callers_own_deadline_is_kept_when_the_server_stalls() {
    let server = Server::start();
    let manager = within(LONG_TTL, &server.url()).await;
    works(&manager).await;
    server.pause();
    let start = Instant::now();
    tokio::time::timeout(ms(50), lock(&manager).acquire()).await.expect_err("no answer");
    assert!(start.elapsed() < ms(50) + SLACK);
    server.resume();
    keeps_nothing(&server).await;
}

#[tokio::test]
async fn a_runtime_that_ends_in_mid_acquire_leaves_nothing_behind() {
    let (server, manager) = served().await;
    works(&manager).await;
    server.pause();
    let acquire = lock(&manager).acquire();
    on_a_plain_thread(|| {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime");
        runtime.spawn(acquire);
        // Long enough for the command to be in flight, too short for the manager to give up.
        runtime.block_on(async { tokio::time::sleep(ms(50)).await });
        runtime.shutdown_background();
    })
    .await;
    server.resume();
    keeps_nothing(&server).await;
    works(&manager).await;
}

#[tokio::test]
async fn a_server_that_goes_on_in_time_grants_the_lock_after_all() {
    let server = Server::start();
    let manager = within(TEST_TIMEOUT, &server.url()).await;
    works(&manager).await;
    server.pause();
    let waiting = tokio::spawn({
        let lock = lock(&manager);
        async move { lock.run(async { Locked::Ok(7) }).await }
    });
    // The server is silent for that long.
    tokio::time::sleep(ms(150)).await;
    server.resume();
    assert_eq!(waiting.await.expect("no panic"), Ok(7));
    keeps_nothing(&server).await;
}

#[tokio::test]
async fn a_server_stopped_in_mid_body_costs_no_value_and_little_time() {
    let (server, manager) = served().await;
    let start = Instant::now();
    let result = lock(&manager).run(async {
        server.pause();
        Locked::Ok(7)
    });
    assert_eq!(result.await, Ok(7));
    assert!(start.elapsed() < TIMEOUT + SLACK, "after {:?}", start.elapsed());
    server.resume();
    keeps_nothing(&server).await;
}

#[tokio::test]
async fn a_server_killed_in_mid_body_costs_no_value() {
    let (mut server, manager) = served().await;
    let result = lock(&manager).run(async {
        server.kill();
        Locked::Ok(7)
    });
    assert_eq!(result.await, Ok(7));
    server.restart();
    works(&manager).await;
    keeps_nothing(&server).await;
    // Nor one of sync code.
    let result = on_a_plain_thread(move || {
        lock(&manager).run_blocking(|| {
            server.kill();
            Locked::Ok(7)
        })
    });
    assert_eq!(result.await, Ok(7));
}

/// More tries fail than one release has, and the server does not count as lost yet.
#[tokio::test]
async fn a_dropped_lock_is_released_after_an_outage_that_is_not_short_and_not_long() {
    let (server, proxy, manager) = through(LONG_TTL).await;
    let guard = lock(&manager).acquire().await.expect("free");
    let before = proxy.accepted();
    proxy.refuse(true);
    proxy.cut();
    drop(guard);
    let is_tried_often = async || proxy.accepted() >= before + 20;
    eventually("it is tried again and again", TEST_TIMEOUT, is_tried_often).await;
    proxy.refuse(false);
    keeps_nothing(&server).await;
}

#[tokio::test]
async fn a_manager_survives_many_restarts() {
    let (mut server, manager) = served().await;
    for _ in 0..5 {
        works(&manager).await;
        server.kill();
        server.restart();
    }
    works(&manager).await;
}

#[tokio::test]
async fn a_shutdown_ends_in_time_when_the_server_is_down() {
    let (mut server, manager) = served().await;
    drop(lock(&manager).acquire().await.expect("free"));
    let guard = Lock::new("other").ttl(LONG_TTL).manager(&manager).acquire().await.expect("free");
    server.kill();
    drop(guard);
    let start = Instant::now();
    let result = manager.shutdown(ms(200)).await;
    assert!(start.elapsed() < ms(200) + SLACK, "after {:?}: {result:?}", start.elapsed());
}
