//! Answers that the network loses: what was asked for is done all the same, and once.

use std::time::Duration;

use lockmacro_runtime::{Lock, LockManager, UnavailableReason};
use lockmacro_tests::AcquireFenced as _;
use lockmacro_tests::times::{LONG_TTL, TEST_TIMEOUT, ms};
use lockmacro_tests::{Fault, Postgres, Proxy, eventually, within};
use tokio_postgres::Client;

use crate::{Locked, holder, is_renewed, is_waited_for, lock, manager, reason, shared};

/// A quarter of it is the time of an answer, which a loaded machine must not miss.
const PATIENT: Duration = Duration::from_secs(4);
/// An answer that never comes, and one whose connection ends instead.
const LOST: [Fault; 2] = [Fault::LoseReply, Fault::CutReply];

/// A way to the server on which answers are lost, and a manager that goes it.
async fn through(server: &Postgres) -> (Proxy, LockManager) {
    // Makes the schema.
    let _ = manager(&server.url()).await;
    let proxy = Proxy::to(server.port());
    let url = format!("postgres://postgres@127.0.0.1:{}/postgres", proxy.port());
    let manager = within(PATIENT, &url).await;
    (proxy, manager)
}

/// Waits until the server has granted what it could not tell.
async fn is_granted(client: &Client, key: &str) -> String {
    eventually("it is granted", TEST_TIMEOUT, || async { holder(client, key).await.is_some() })
        .await;
    holder(client, key).await.expect("it is held").0
}

#[tokio::test]
async fn a_caller_whose_grant_is_lost_on_the_way_has_its_lock_with_the_same_token() {
    let server = shared().await;
    let (proxy, ours) = through(&server).await;
    let (client, theirs) = (server.connect().await, manager(&server.url()).await);
    for fault in LOST {
        proxy.on_next_with("lm1.ask(", fault);
        let asking = tokio::spawn(lock(&ours, "lost ask").acquire_fenced());
        let token = is_granted(&client, "lost ask").await;
        let (guard, fences) = asking.await.expect("no panic").expect("it is its own");
        assert!(proxy.orders_are_done(), "{fault:?}");
        assert_eq!(holder(&client, "lost ask").await.expect("it is held").0, token);
        assert!(lock(&theirs, "lost ask").acquire().await.expect_err("held").is_busy());
        guard.release().await.expect("still held");
        let (guard, later) = lock(&theirs, "lost ask").acquire_fenced().await.expect("free");
        assert!(later[0] > fences[0]);
        guard.release().await.expect("still held");
    }
    server.keeps_nothing("lost ask").await;
}

#[tokio::test]
async fn a_waiter_whose_place_in_the_queue_is_lost_on_the_way_has_it_once() {
    let server = shared().await;
    let (proxy, ours) = through(&server).await;
    let (client, theirs) = (server.connect().await, manager(&server.url()).await);
    for fault in LOST {
        let guard = lock(&theirs, "lost place").acquire().await.expect("free");
        proxy.on_next_with("lm1.ask(", fault);
        let waiting = tokio::spawn(lock(&ours, "lost place").wait(LONG_TTL).acquire());
        is_waited_for(&client, "lost place").await;
        eventually("it is lost", TEST_TIMEOUT, || std::future::ready(proxy.orders_are_done()))
            .await;
        guard.release().await.expect("still held");
        waiting.await.expect("no panic").expect("its turn").release().await.expect("still held");
        let waiters = "SELECT FROM lm1.waiter WHERE key = 'lost place'";
        assert!(client.query(waiters, &[]).await.expect("an answer").is_empty());
    }
    server.keeps_nothing("lost place").await;
}

#[tokio::test]
async fn a_release_whose_answer_is_lost_is_done_and_costs_no_value() {
    let server = shared().await;
    let (proxy, ours) = through(&server).await;
    let theirs = manager(&server.url()).await;
    for fault in LOST {
        proxy.on_next_with("lm1.release(", fault);
        let result = lock(&ours, "lost release").run(async { Locked::Ok(7) }).await;
        assert_eq!(result, Ok(7), "{fault:?}");
        assert!(proxy.orders_are_done(), "{fault:?}");
        let next = lock(&theirs, "lost release").acquire().await.expect("free at once");
        next.release().await.expect("still held");
    }
    server.keeps_nothing("lost release").await;
}

/// It cannot be known whether it was in time, which is no loss yet.
#[tokio::test]
async fn a_release_whose_answer_is_lost_is_never_reported_as_the_loss_of_the_lock() {
    let server = shared().await;
    let (proxy, ours) = through(&server).await;
    for (fault, why) in
        LOST.into_iter().zip([UnavailableReason::Timeout, UnavailableReason::Disconnected])
    {
        let guard = lock(&ours, "unknown release").acquire().await.expect("free");
        proxy.on_next_with("lm1.release(", fault);
        let error = guard.release().await.expect_err("not known to be released");
        assert_eq!(reason(&error), why, "{error}");
        assert!(!error.to_string().contains("connecting"), "it was sent: {error}");
        server.keeps_nothing("unknown release").await;
    }
}

#[tokio::test]
async fn a_release_that_is_lost_before_it_arrives_is_sent_again() {
    let server = shared().await;
    let (proxy, ours) = through(&server).await;
    let guard = lock(&ours, "cut release").acquire().await.expect("free");
    proxy.on_next_with("lm1.release(", Fault::CutCommand);
    guard.release().await.expect("sent again");
    assert!(proxy.orders_are_done());
    server.keeps_nothing("cut release").await;
}

#[tokio::test]
async fn a_renewal_whose_answer_is_lost_is_sent_again_and_the_lock_is_kept() {
    let server = shared().await;
    let (proxy, ours) = through(&server).await;
    let client = server.connect().await;
    // So long that its renewals gather.
    let held = Lock::new("lost renewal").ttl(ms(12_000)).renew().manager(&ours);
    let guard = held.acquire().await.expect("free");
    for fault in LOST {
        proxy.on_next_with("lm1.renew(", fault);
        eventually("it is lost", TEST_TIMEOUT, || std::future::ready(proxy.orders_are_done()))
            .await;
        is_renewed(&client, "lost renewal").await;
        assert!(guard.is_held(), "{fault:?}");
    }
    guard.release().await.expect("still held");
    server.keeps_nothing("lost renewal").await;
}

#[tokio::test]
async fn a_caller_that_is_gone_before_its_lost_grant_leaves_nothing_behind() {
    let server = shared().await;
    let (proxy, ours) = through(&server).await;
    let client = server.connect().await;
    for fault in LOST {
        proxy.on_next_with("lm1.ask(", fault);
        let asking = tokio::spawn(lock(&ours, "lost caller").acquire());
        is_granted(&client, "lost caller").await;
        asking.abort();
        server.keeps_nothing("lost caller").await;
    }
}
