//! Messages and confirmations that come late, or not at all the first time.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use lockmacro_runtime::{Lock, LockManager, LossCause};
use lockmacro_tests::queue::Queue;
use lockmacro_tests::{Call, Clock, Fault, Proxy, Server, eventually};
use tokio::time::{sleep_until, timeout};

use crate::{
    CONFIRM_WINDOW, Held, KEY, LONG_TTL, POLLED, PUSHED, lock, manager, ms, served, waiting,
};

/// The waiter's request is in flight when the hand-off is pushed, and answered when it has run
/// out: the answer says "busy", and the push is read after it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hand_off_older_than_the_last_answer_is_not_believed() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let ours = manager(&server).await;
    let theirs = LockManager::connect(&proxy.url()).await.expect("the server is there");
    let mut admin = server.admin();
    let start = tokio::time::Instant::now();
    let guard = Lock::new(KEY).ttl(ms(3_000)).manager(&ours).acquire().await.expect("free");
    let short = Lock::new(KEY).ttl(ms(300)).manager(&theirs).wait_forever();
    let mut waiter = tokio::spawn(short.acquire());
    Queue::at(&server, KEY).reaches(1).await;
    proxy.stall(true);
    guard.release().await.expect("still held");
    // It asks when the first lease would end; by then the foreign client has the key.
    let taken = || {
        let set = ["SET", KEY, "foreign", "NX", "PX", "30000"];
        std::future::ready(admin.ask::<Option<String>>(&set).is_some())
    };
    eventually("the hand-off has run out", LONG_TTL / 4, taken).await;
    sleep_until(start + ms(3_050)).await;
    proxy.stall(false);
    let granted = timeout(PUSHED, &mut waiter).await;
    assert!(granted.is_err(), "granted beside the foreign holder: {granted:?}");
    waiter.abort();
}

#[tokio::test]
async fn a_confirmation_that_fails_is_tried_again_before_the_confirm_window_ends() {
    let server = Server::start();
    let (ours, theirs) = (manager(&server).await, manager(&server).await);
    let ttl = Duration::from_secs(300);
    let mut admin = server.admin();
    for round in 0..2 {
        let guard = lock(&ours, KEY).acquire().await.expect("free");
        let next = Lock::new(KEY).ttl(ttl).manager(&theirs).wait_forever();
        let next = Queue::at(&server, KEY).join(next.acquire()).await;
        if round == 1 {
            // The connection that confirms is cut while it is idle, as by a load balancer.
            let kill = ["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"];
            admin.ask::<i64>(&kill);
        }
        guard.release().await.expect("still held");
        let next = next.await.expect("served");
        eventually("it is confirmed", CONFIRM_WINDOW - ms(500), || {
            std::future::ready(next.remaining() > 2 * CONFIRM_WINDOW)
        })
        .await;
        assert!(admin.ttl(KEY).expect("it has an end") > 2 * CONFIRM_WINDOW);
        next.release().await.expect("still held");
    }
}

#[tokio::test]
async fn a_waiter_without_a_deadline_waits_for_a_server_too() {
    let mut server = Server::start();
    let manager = LockManager::builder().timeout(ms(1_000)).connect(&server.url()).await.unwrap();
    let guard = lock(&manager, KEY).acquire().await.expect("free");
    let mut waiter = Queue::at(&server, KEY).join(waiting(&manager, KEY).acquire()).await;
    server.kill();
    drop(guard);
    timeout(POLLED, &mut waiter).await.expect_err("there is no server");
    server.restart();
    crate::served(POLLED, waiter).await;
}

#[tokio::test]
async fn a_limit_that_passes_leaves_the_waiters_hearing() {
    let server = Server::start();
    let (holder, manager) = (manager(&server).await, manager(&server).await);
    let mut admin = server.admin();
    let guard = lock(&holder, KEY).acquire().await.expect("free");
    admin.configure("maxclients", "1");
    let refused = lock(&manager, KEY).wait(ms(20)).acquire().await;
    assert!(refused.is_err_and(|error| !error.is_busy()), "no connection to listen by");
    admin.configure("maxclients", "100");
    let waiter = Queue::at(&server, KEY).join(waiting(&manager, KEY).acquire()).await;
    guard.release().await.expect("still held");
    served(LONG_TTL, waiter).await;
    let channels: Vec<String> = admin.ask(&["PUBSUB", "CHANNELS"]);
    assert_eq!(channels.len(), 1, "{channels:?}");
}

/// A waiter leaves the queue with one command.
#[tokio::test]
async fn a_waiter_that_is_dropped_is_cleared_away_once() {
    let server = Server::start();
    let Held { theirs, mut queue, guard: _guard, .. } = Held::at(&server).await;
    let mut waiter = queue.join(waiting(&theirs, KEY).acquire()).await;
    // Its request is answered, not only carried out.
    timeout(ms(300), &mut waiter).await.expect_err("held");
    let mut admin = server.admin();
    admin.forget_calls();
    drop(waiter);
    queue.reaches(0).await;
    // Further releases would be sent after 20, 80 and 260 milliseconds.
    tokio::time::sleep(ms(700)).await;
    let calls = admin.count(&["evalsha", "eval"]);
    // The first one may have to bring its script.
    assert!(calls <= 2, "{calls} releases of one waiter");
}

#[tokio::test]
async fn a_hand_off_that_cannot_be_confirmed_is_lost_when_the_confirm_window_ends() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let ours = manager(&server).await;
    let theirs = LockManager::connect(&proxy.url()).await.expect("the server is there");
    // From then on it hears, and has no reason to ask twice.
    served(LONG_TTL, waiting(&theirs, KEY).acquire()).await;
    let guard = lock(&ours, KEY).acquire().await.expect("free");
    let next = Queue::at(&server, KEY).join(waiting(&theirs, KEY).acquire()).await;
    let handed_over = Instant::now();
    guard.release().await.expect("still held");
    let next = next.await.expect("served");
    // Before a third of the window is over.
    proxy.stall(true);
    let lost = timeout(2 * CONFIRM_WINDOW, next.lost()).await.expect("not believed any longer");
    assert_eq!(lost.cause(), LossCause::NotRenewed);
    assert!(handed_over.elapsed() > CONFIRM_WINDOW / 2, "after {:?}", handed_over.elapsed());
}

/// The request of a waiter that has gone arrives late and joins the queue; the lock is handed to
/// nobody then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_for_a_waiter_that_has_gone_is_released_at_once() {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("later");
    let clock = Arc::new(Clock::at(now));
    let server = Server::with_clock(Arc::clone(&clock));
    let proxy = Proxy::to(server.port());
    let (ours, rival) = (manager(&server).await, manager(&server).await);
    let theirs = LockManager::connect(&proxy.url()).await.expect("the server is there");
    // From then on the server knows the scripts.
    served(LONG_TTL, waiting(&theirs, KEY).acquire()).await;
    // Otherwise it would refuse a question that arrives late.
    clock.set(now - ms(60_000));
    let guard = lock(&ours, KEY).acquire().await.expect("free");
    // Their process hears of grants all the time, by any connection.
    let _other = lock(&ours, "other").acquire().await.expect("free");
    let listening = tokio::spawn(waiting(&theirs, "other").acquire());
    Queue::at(&server, "other").reaches(1).await;
    // Its releases are sent by another connection, and by then it is looked for seldom only.
    let is_question = |call: &Call<'_>| call.names("EVALSHA") && call.names(KEY);
    proxy.on_next_call(is_question, Fault::HoldLastCommand(ms(5_000)));
    let waiter = tokio::spawn(waiting(&theirs, KEY).acquire());
    eventually("its question was sent", LONG_TTL, || std::future::ready(proxy.orders_are_done()))
        .await;
    waiter.abort();
    proxy.held_commands_arrive().await;
    Queue::at(&server, KEY).reaches(1).await;
    guard.release().await.expect("still held");
    let start = Instant::now();
    served(CONFIRM_WINDOW, lock(&rival, KEY).wait(CONFIRM_WINDOW).acquire()).await;
    assert!(start.elapsed() < PUSHED, "free after {:?}", start.elapsed());
    listening.abort();
}
