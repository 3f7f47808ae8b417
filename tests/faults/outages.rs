//! Servers that are down, stopped, killed and back.

use std::time::Instant;

use lockmacro_runtime::__private::Unavailability;
use lockmacro_runtime::{Lock, LockManager};
use lockmacro_tests::{Proxy, Server, eventually, in_time, on_a_plain_thread};

use crate::{
    KEY, LONG_TTL, Locked, SLACK, TEST_TIMEOUT, TIMEOUT, first_error, keeps_nothing, lock, manager,
    ms, reason, refusal, works,
};

#[tokio::test]
async fn a_server_that_is_down_refuses_within_the_timeout() {
    let mut server = Server::start();
    let manager = manager(&server.url()).await;
    works(&manager).await;
    server.kill();
    assert_eq!(reason(refusal(&manager).await), Unavailability::Refused);
    assert_eq!(reason(first_error(&server.url()).await), Unavailability::Refused);
    server.restart();
    works(&manager).await;
}

#[tokio::test]
async fn a_sync_function_gets_an_error_when_the_server_is_down() {
    let mut server = Server::start();
    let manager = manager(&server.url()).await;
    server.kill();
    let start = Instant::now();
    let result = on_a_plain_thread(move || lock(&manager).run_blocking(|| Locked::Ok(7))).await;
    assert_eq!(reason(result.expect_err("down")), Unavailability::Refused);
    assert!(start.elapsed() < TIMEOUT + SLACK);
}

#[tokio::test]
async fn a_function_without_a_result_does_not_run_when_the_server_is_down() {
    let mut server = Server::start();
    let manager = manager(&server.url()).await;
    server.kill();
    let mut ran = false;
    lock(&manager).skip_when_busy().run(async { ran = true }).await;
    assert!(!ran);
}

#[tokio::test]
async fn a_stopped_server_is_a_timeout_and_leaves_nothing_behind_when_it_goes_on() {
    let server = Server::start();
    let manager = manager(&server.url()).await;
    works(&manager).await;
    server.pause();
    assert_eq!(reason(refusal(&manager).await), Unavailability::Timeout);
    assert_eq!(reason(refusal(&manager).await), Unavailability::Timeout);
    server.resume();
    // Requests that were sent to the stalled server are applied now, and then released.
    keeps_nothing(&server).await;
    works(&manager).await;
    keeps_nothing(&server).await;
}

#[tokio::test]
async fn a_server_stopped_for_long_leaves_nothing_behind_either() {
    let server = Server::start();
    let manager = manager(&server.url()).await;
    works(&manager).await;
    server.pause();
    assert_eq!(reason(refusal(&manager).await), Unavailability::Timeout);
    // The server is silent for longer than the manager tries.
    tokio::time::sleep(ms(3_500)).await;
    server.resume();
    let mut admin = server.admin();
    eventually("the key is free", TEST_TIMEOUT, || std::future::ready(admin.get(KEY).is_none()))
        .await;
    works(&manager).await;
}

#[tokio::test]
async fn connecting_to_a_stopped_server_is_a_timeout() {
    let server = Server::start();
    server.pause();
    assert_eq!(reason(first_error(&server.url()).await), Unavailability::Timeout);
    server.resume();
    works(&manager(&server.url()).await).await;
}

#[tokio::test]
async fn a_callers_own_deadline_is_kept_when_the_server_stalls() {
    let server = Server::start();
    let manager =
        LockManager::builder().timeout(LONG_TTL).connect(&server.url()).await.expect("there");
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
    let server = Server::start();
    let manager = manager(&server.url()).await;
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
    let manager =
        LockManager::builder().timeout(TEST_TIMEOUT).connect(&server.url()).await.expect("there");
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
    let server = Server::start();
    let manager = manager(&server.url()).await;
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
    let mut server = Server::start();
    let manager = manager(&server.url()).await;
    let result = lock(&manager).run(async {
        server.kill();
        Locked::Ok(7)
    });
    assert_eq!(result.await, Ok(7));
    server.restart();
    works(&manager).await;
    keeps_nothing(&server).await;
}

#[tokio::test]
async fn a_server_killed_in_mid_body_costs_no_sync_value() {
    let mut server = Server::start();
    let manager = manager(&server.url()).await;
    let result = on_a_plain_thread(move || {
        lock(&manager).run_blocking(|| {
            server.kill();
            Locked::Ok(7)
        })
    });
    assert_eq!(result.await, Ok(7));
}

#[tokio::test]
async fn a_body_outlives_an_outage_and_ends_with_its_lease() {
    let mut server = Server::start();
    let manager = manager(&server.url()).await;
    let body = Lock::new(KEY).ttl(ms(300)).manager(&manager).run(async {
        server.kill();
        std::future::pending::<Locked<()>>().await
    });
    let start = Instant::now();
    let error = in_time(body).await.expect_err("its lease is over");
    assert!(matches!(error, lockmacro_runtime::LockError::Lost(_)), "{error:?}");
    assert!(start.elapsed() >= ms(250) && start.elapsed() < ms(300) + TIMEOUT + SLACK);
}

/// More tries fail than one release has, and the server does not count as lost yet.
#[tokio::test]
async fn a_dropped_lock_is_released_after_an_outage_that_is_not_short_and_not_long() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let manager = LockManager::builder().timeout(LONG_TTL).connect(&proxy.url()).await;
    let guard = lock(&manager.expect("there")).acquire().await.expect("free");
    let before = proxy.accepted();
    proxy.refuse(true);
    proxy.cut();
    drop(guard);
    let is_tried_often = || std::future::ready(proxy.accepted() >= before + 20);
    eventually("it is tried again and again", TEST_TIMEOUT, is_tried_often).await;
    proxy.refuse(false);
    keeps_nothing(&server).await;
}

#[tokio::test]
async fn a_manager_survives_many_restarts() {
    let mut server = Server::start();
    let manager = manager(&server.url()).await;
    for _ in 0..5 {
        works(&manager).await;
        server.kill();
        server.restart();
    }
    works(&manager).await;
}

#[tokio::test]
async fn a_shutdown_ends_in_time_when_the_server_is_down() {
    let mut server = Server::start();
    let manager = manager(&server.url()).await;
    drop(lock(&manager).acquire().await.expect("free"));
    let guard = Lock::new("other").ttl(LONG_TTL).manager(&manager).acquire().await.expect("free");
    server.kill();
    drop(guard);
    let start = Instant::now();
    let result = manager.shutdown(ms(200)).await;
    assert!(start.elapsed() < ms(200) + SLACK, "after {:?}: {result:?}", start.elapsed());
}
