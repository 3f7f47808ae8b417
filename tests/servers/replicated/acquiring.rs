//! No body starts before the replicas have its lock.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use futures::future::{join, join_all};
use lockmacro_runtime::{Fence, LockGuard, UnavailableReason};
use lockmacro_tests::AcquireFenced as _;
use lockmacro_tests::{Fault, Proxy, in_time, on_a_plain_thread, with_replicas};
use tokio::time::timeout;

use crate::*;

#[tokio::test]
async fn too_few_replicas_are_reported_in_time_and_nothing_is_left() {
    let servers = with_replicas(1).await;
    let manager = patient(&servers[0], 2, ms(1_000)).await;
    let ran = AtomicBool::new(false);
    let start = Instant::now();
    let body = async {
        ran.store(true, Ordering::SeqCst);
        Locked::Ok(())
    };
    let result = lock(&manager).run(body).await;
    assert!(start.elapsed() >= ms(1_000) && start.elapsed() < FAILOVER, "{:?}", start.elapsed());
    // The lock is released before the error is returned.
    assert_eq!(servers[0].admin().keys(), Vec::<String>::new());
    let error = result.expect_err("one replica is no two");
    let text = error.to_string();
    assert!(text.contains("only 1 of 2 replicas") && text.contains(KEY), "{text}");
    assert!(text.ends_with(&format!(", at 127.0.0.1:{})", servers[0].port())), "{text}");
    assert!(!error.is_busy() && !ran.load(Ordering::SeqCst), "{error:?}");
    assert_eq!(short::<()>(Err(error)), (1, 2));
    // Blocking callers get the same error.
    let blocking = lock(&manager);
    let refused = on_a_plain_thread(move || blocking.acquire_blocking().map(drop)).await;
    assert_eq!(short(refused), (1, 2));
    keeps_nothing(&servers[0]).await;
}

#[tokio::test]
async fn a_server_without_replicas_gives_no_lock() {
    let server = Server::start();
    let manager = patient(&server, 1, ms(50)).await;
    assert_eq!(short(lock(&manager).acquire().await), (0, 1));
    assert_eq!(server.admin().keys(), Vec::<String>::new());
}

#[tokio::test]
async fn a_body_starts_when_the_replicas_have_its_lock_and_holds_up_nobody_meanwhile() {
    let servers = with_replicas(1).await;
    let manager = patient(&servers[0], 1, FAILOVER).await;
    let early =
        Lock::new("early").ttl(FAILOVER_TTL).manager(&manager).acquire().await.expect("free");
    let other = plain(&servers[0]).await;
    servers[1].pause();
    let started = Arc::new(AtomicBool::new(false));
    let running = Arc::clone(&started);
    let waiting = tokio::spawn(lock(&manager).run(async move {
        running.store(true, Ordering::SeqCst);
        Locked::Ok(())
    }));
    queue_reaches(&servers[0], 1).await;
    // The requests of other callers take less than a second, and the first caller waits for ten.
    let others = async {
        // A caller of the same process waits for the answer to the question that is in flight.
        assert!(lock(&other).acquire().await.expect_err("taken").is_busy());
        early.release().await.expect("held");
    };
    timeout(FAILOVER / 2, others).await.expect("nobody else waits");
    assert!(!started.load(Ordering::SeqCst), "no replica has it");
    servers[1].resume();
    in_time(waiting).await.expect("no panic").expect("acknowledged");
    assert!(started.load(Ordering::SeqCst));
    // And a body finds its lock at the replica.
    let guard = lock(&manager).acquire().await.expect("free");
    let token = servers[1].admin().get(KEY);
    assert!(token.is_some() && token == servers[0].admin().get(KEY));
    guard.release().await.expect("held");
}

#[tokio::test]
async fn a_lock_that_is_handed_off_is_acknowledged_before_its_body_starts() {
    let servers = with_replicas(1).await;
    let (holder, waiter) = (plain(&servers[0]).await, patient(&servers[0], 1, FAILOVER).await);
    let guard = lock(&holder).acquire().await.expect("free");
    let next = tokio::spawn(lock(&waiter).wait(FAILOVER_TTL).acquire());
    are_queued(&servers[0], 1).await;
    servers[1].pause();
    guard.release().await.expect("held");
    queue_reaches(&servers[0], 1).await;
    assert!(!next.is_finished(), "no replica has it");
    servers[1].resume();
    let guard = in_time(next).await.expect("no panic").expect("handed off");
    assert!(guard.remaining() > CONFIRM_WINDOW, "all of the ttl is confirmed");
    guard.release().await.expect("held");
    keeps_nothing(&servers[0]).await;
}

#[tokio::test]
async fn a_waiter_learns_of_too_few_replicas_and_the_next_one_gets_its_turn() {
    let servers = with_replicas(1).await;
    let (holder, waiter) = (plain(&servers[0]).await, patient(&servers[0], 2, ms(1_000)).await);
    let guard = lock(&holder).acquire().await.expect("free");
    let short_of = tokio::spawn(lock(&waiter).wait(FAILOVER_TTL).acquire());
    are_queued(&servers[0], 1).await;
    let other = plain(&servers[0]).await;
    let next = tokio::spawn(lock(&other).wait(FAILOVER_TTL).acquire());
    are_queued(&servers[0], 2).await;
    guard.release().await.expect("held");
    assert_eq!(short(in_time(short_of).await.expect("no panic")), (1, 2));
    let next = in_time(next).await.expect("no panic").expect("served");
    next.release().await.expect("held");
    keeps_nothing(&servers[0]).await;
}

/// As by a failover: the server that acknowledges is another one than the one that granted it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_that_is_gone_before_its_body_starts_is_asked_for_again() {
    let servers = with_replicas(1).await;
    let proxy = Proxy::to(servers[0].port());
    let builder = LockManager::builder().timeout(FAILOVER_TTL).replicated(1, FAILOVER);
    let manager = builder.connect(&proxy.url()).await.expect("the server is there");
    let mut admin = servers[0].admin();
    // The scripts are loaded, and the connections open.
    lock(&manager).acquire().await.expect("free").release().await.expect("held");
    // Returns the last token that it has taken away.
    let mut is_gone = async |times| {
        let mut token = None;
        for _ in 0..times {
            proxy.on_next("WAIT", Fault::HoldCommand(ms(700)));
            let held = || std::future::ready(proxy.orders_are_done());
            eventually("it is to be acknowledged", FAILOVER, held).await;
            token = admin.ask::<Option<String>>(&["GETDEL", KEY]);
            assert!(token.is_some());
        }
        token
    };
    let several = || Lock::many([KEY, "order:43"]).ttl(FAILOVER_TTL).manager(&manager);
    let (blocking, several_blocking) = (lock(&manager), several());
    let blocking = on_a_plain_thread(move || blocking.acquire_blocking());
    let several_blocking = on_a_plain_thread(move || several_blocking.acquire_blocking());
    for asked in [
        Box::pin(lock(&manager).acquire())
            as Pin<Box<dyn Future<Output = Locked<LockGuard>> + Send>>,
        Box::pin(lock(&manager).wait(FAILOVER_TTL).acquire()),
        Box::pin(several().acquire()),
        Box::pin(blocking),
        Box::pin(several_blocking),
    ] {
        let (guard, token) = in_time(join(tokio::spawn(asked), is_gone(1))).await;
        let guard = guard.expect("no panic").expect("it is free");
        assert_eq!(guard.check(), Ok(()));
        let now = servers[0].admin().get(KEY);
        assert!(now.is_some() && servers[1].admin().get(KEY) == now);
        assert_ne!(now, token, "the release of the first token may still arrive");
        guard.release().await.expect("held");
    }
    // A caller that does not wait asks once more.
    let (asked, _) = in_time(join(tokio::spawn(lock(&manager).acquire()), is_gone(2))).await;
    let error = asked.expect("no panic").expect_err("it goes again");
    assert!(
        matches!(error, LockError::Unavailable { reason: UnavailableReason::Replaced, .. }),
        "{error:?}"
    );
    keeps_nothing(&servers[0]).await;
}

#[tokio::test]
async fn fences_grow_whatever_replicas_do() {
    let servers = with_replicas(1).await;
    let (enough, too_few) = (manager(&servers[0], 1).await, patient(&servers[0], 2, ms(20)).await);
    let mut last: Option<Fence> = None;
    for _ in 0..3 {
        let (guard, fence) = lock(&enough).acquire_fenced().await.expect("free");
        assert!(last < Some(fence[0]), "{last:?} {fence:?}");
        last = Some(fence[0]);
        guard.release().await.expect("held");
        short(lock(&too_few).acquire_fenced().await);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_shares_a_few_connections() {
    let servers = with_replicas(1).await;
    let manager = patient(&servers[0], 1, FAILOVER).await;
    servers[1].pause();
    let crowd = (0..40).map(|nth| {
        let lock = Lock::new(format!("order:{nth}")).ttl(FAILOVER_TTL).manager(&manager);
        tokio::spawn(async move { lock.acquire().await })
    });
    let crowd: Vec<_> = crowd.collect();
    queue_reaches(&servers[0], 16).await;
    let clients: String = servers[0].admin().ask(&["CLIENT", "LIST", "TYPE", "normal"]);
    // Two that are shared, and ours.
    assert!(clients.lines().count() <= 16 + 3, "{clients}");
    servers[1].resume();
    for guard in in_time(join_all(crowd)).await {
        guard.expect("no panic").expect("free").release().await.expect("held");
    }
    manager.shutdown(FAILOVER).await.expect("nothing is held");
    drop(manager);
    let mut admin = servers[0].admin();
    eventually("no connection is left", FAILOVER, || {
        let clients: String = admin.ask(&["CLIENT", "LIST", "TYPE", "normal"]);
        std::future::ready(clients.lines().count() == 1)
    })
    .await;
}

#[tokio::test]
async fn connections_that_were_ended_meanwhile_are_replaced() {
    let servers = with_replicas(1).await;
    let manager = manager(&servers[0], 1).await;
    for _ in 0..3 {
        lock(&manager).acquire().await.expect("free").release().await.expect("held");
        servers[0].admin().ask::<i64>(&["CLIENT", "KILL", "TYPE", "normal"]);
    }
}
