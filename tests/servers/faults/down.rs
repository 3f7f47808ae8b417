//! Callers while their server is down.

use std::error::Error as _;
use std::time::{Duration, Instant};

use futures::future::join_all;
use lockmacro_runtime::{Lock, LockError, LockManager, LockManagerBuilder, UnavailableReason};
use lockmacro_tests::AcquireFenced as _;
use lockmacro_tests::times::SOON;
use lockmacro_tests::{Proxy, Server, eventually, on_a_plain_thread};

use crate::{LONG_TTL, Locked, TEST_TIMEOUT, keeps_nothing, lock, ms, reason, works};

/// How long one caller tries, and for how long a server answers nothing before it is down.
const PATIENT: Duration = Duration::from_secs(4);
const ANSWER: Duration = Duration::from_secs(1);

fn builder() -> LockManagerBuilder {
    LockManager::builder().timeout(PATIENT)
}

async fn patient() -> (Server, LockManager) {
    let server = Server::start();
    let manager = builder().connect(&server.url()).await.expect("there");
    (server, manager)
}

/// The first call finds that the server is down.
async fn finds_it_down(manager: &LockManager) {
    let error = lock(manager).acquire().await.expect_err("no server");
    assert_eq!(error.retry_after(), None, "it has tried itself");
}

fn is_told_at_once(error: &LockError, reason_of: UnavailableReason) {
    assert_eq!(error.retry_after(), Some(ms(1_000)), "{error}");
    assert_eq!(reason(error.clone()), reason_of, "{error}");
}

/// How long a call takes, by the median of ten that are told at once.
async fn time_to_fail(manager: &LockManager, reason: UnavailableReason) -> Duration {
    let mut took = Vec::new();
    for _ in 0..10 {
        let start = Instant::now();
        let error = lock(manager).acquire().await.expect_err("down");
        took.push(start.elapsed());
        is_told_at_once(&error, reason);
    }
    took.sort();
    took[5]
}

/// In far less than the time of one answer.
async fn fail_at_once(manager: &LockManager, reason: UnavailableReason) {
    let took = time_to_fail(manager, reason).await;
    assert!(took < ANSWER / 4, "{took:?}");
}

/// The first probe that is answered ends the state: nobody has to wait for anything else.
async fn is_back(manager: &LockManager) {
    let run = || async { lock(manager).run(async { Locked::Ok(7) }).await.is_ok() };
    eventually("the server is back", SOON, run).await;
    works(manager).await;
}

#[tokio::test]
async fn callers_of_a_server_that_is_down_fail_at_once_until_it_is_back() {
    let (mut server, manager) = patient().await;
    server.kill();
    finds_it_down(&manager).await;
    fail_at_once(&manager, UnavailableReason::Refused).await;
    let of_thread = manager.clone();
    let start = Instant::now();
    let blocking = on_a_plain_thread(move || lock(&of_thread).acquire_blocking()).await;
    let error = blocking.expect_err("down");
    is_told_at_once(&error, UnavailableReason::Refused);
    let source = error.source().and_then(|source| source.downcast_ref::<redis::RedisError>());
    assert!(source.is_some_and(redis::RedisError::is_connection_refusal), "{error:?}");
    assert!(start.elapsed() < ANSWER, "{:?}", start.elapsed());
    server.restart();
    is_back(&manager).await;
}

#[tokio::test]
async fn callers_of_a_stopped_server_fail_at_once_until_it_goes_on() {
    let (server, manager) = patient().await;
    server.pause();
    finds_it_down(&manager).await;
    fail_at_once(&manager, UnavailableReason::Timeout).await;
    server.resume();
    is_back(&manager).await;
    // What the first caller may have left is released.
    keeps_nothing(&server).await;
}

#[tokio::test]
async fn callers_of_several_keys_and_of_shared_ones_fail_at_once_as_well() {
    let (mut server, manager) = patient().await;
    server.kill();
    finds_it_down(&manager).await;
    let start = Instant::now();
    let several = Lock::many(["a", "b"]).manager(&manager).acquire().await;
    is_told_at_once(&several.expect_err("down"), UnavailableReason::Refused);
    let shared = Lock::new("c").shared().manager(&manager).acquire().await;
    is_told_at_once(&shared.expect_err("down"), UnavailableReason::Refused);
    let fenced = Lock::new("d").manager(&manager).acquire_fenced().await;
    is_told_at_once(&fenced.expect_err("down"), UnavailableReason::Refused);
    assert!(start.elapsed() < ANSWER, "{:?}", start.elapsed());
}

/// As docs/operation.md says.
#[tokio::test]
async fn callers_of_a_server_that_is_down_far_away_wait_for_five_round_trips_at_most() {
    let round_trip = ms(60);
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    proxy.delay(round_trip);
    let manager = builder().connect(&proxy.url()).await.expect("there");
    // The round trip is known after some answers.
    for _ in 0..4 {
        works(&manager).await;
    }
    proxy.stall(true);
    finds_it_down(&manager).await;
    let took = time_to_fail(&manager, UnavailableReason::Timeout).await;
    assert!(took > round_trip * 4 && took < ANSWER * 2 / 3, "{took:?}");
    proxy.delay(Duration::ZERO);
    proxy.stall(false);
    is_back(&manager).await;
}

#[tokio::test]
async fn many_callers_of_a_server_that_is_down_share_one_probe() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let manager = builder().connect(&proxy.url()).await.expect("there");
    proxy.stall(true);
    finds_it_down(&manager).await;
    let (before, start) = (proxy.accepted(), Instant::now());
    let call = |nth: usize| Lock::new(format!("order:{nth}")).manager(&manager).acquire();
    for error in join_all((0..500).map(call)).await {
        is_told_at_once(&error.expect_err("down"), UnavailableReason::Timeout);
    }
    assert!(start.elapsed() < PATIENT, "{:?}", start.elapsed());
    let opened = proxy.accepted() - before;
    assert!(opened <= 10, "{opened} connections");
    proxy.stall(false);
    is_back(&manager).await;
    let sent: u64 = {
        let calls = server.admin().calls();
        calls.iter().filter(|(name, _)| name == "set").map(|(_, calls)| calls).sum()
    };
    assert!(sent < 50, "{sent} requests for 500 callers");
}

#[tokio::test]
async fn a_caller_with_a_wait_goes_on_while_the_server_is_down() {
    let (mut server, manager) = patient().await;
    server.kill();
    finds_it_down(&manager).await;
    let other = || Lock::new("other").ttl(LONG_TTL).manager(&manager);
    let waiting = tokio::spawn(other().wait(TEST_TIMEOUT).acquire());
    fail_at_once(&manager, UnavailableReason::Refused).await;
    // A caller that comes after the waiter does not wait for its answer.
    let start = Instant::now();
    let error = other().acquire().await.expect_err("down");
    assert!(matches!(error, LockError::Unavailable { .. }), "{error}");
    assert!(start.elapsed() < ANSWER, "{:?}", start.elapsed());
    assert!(!waiting.is_finished(), "it waits");
    server.restart();
    let guard = waiting.await.expect("no panic").expect("granted");
    guard.release().await.expect("released");
}

#[tokio::test]
async fn a_release_goes_on_while_the_server_is_down() {
    let (server, manager) = patient().await;
    let other = Lock::new("other").ttl(LONG_TTL).manager(&manager);
    let guard = other.acquire().await.expect("free");
    server.pause();
    finds_it_down(&manager).await;
    drop(guard);
    fail_at_once(&manager, UnavailableReason::Timeout).await;
    server.resume();
    // Long before its lease is over.
    keeps_nothing(&server).await;
}

#[tokio::test]
async fn a_setting_has_each_caller_try_for_itself() {
    let timeout = ms(600);
    let mut server = Server::start();
    let by_url = format!("{}?fail_fast=no", server.url());
    let builder = || LockManager::builder().timeout(timeout);
    let managers = [
        builder().connect(&by_url).await.expect("there"),
        builder().fail_fast(false).connect(&server.url()).await.expect("there"),
    ];
    server.kill();
    for manager in &managers {
        for _ in 0..3 {
            let start = Instant::now();
            let error = lock(manager).acquire().await.expect_err("no server");
            assert_eq!(error.retry_after(), None);
            assert!(start.elapsed() > timeout / 2, "{:?}", start.elapsed());
        }
    }
    assert!(LockManager::builder().connect("memory://?fail_fast=0").await.is_err());
}

/// What has failed left nothing at the server, so nothing is waited for afterwards.
#[tokio::test]
async fn after_a_failed_call_a_lock_that_another_process_holds_is_busy_at_once() {
    let (mut server, manager) = patient().await;
    works(&manager).await;
    server.kill();
    lock(&manager).acquire().await.expect_err("no server");
    server.restart();
    let other = builder().connect(&server.url()).await.expect("there");
    let guard = lock(&other).acquire().await.expect("free");
    let is_busy = || async { lock(&manager).acquire().await.is_err_and(|error| error.is_busy()) };
    eventually("the server is back", SOON, is_busy).await;
    for _ in 0..3 {
        let start = Instant::now();
        let error = lock(&manager).acquire().await.expect_err("it is held");
        assert!(error.is_busy(), "{error}");
        assert!(start.elapsed() < ANSWER, "{:?}", start.elapsed());
    }
    guard.release().await.expect("still held");
}
