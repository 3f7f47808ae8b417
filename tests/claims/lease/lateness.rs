//! Answers that come late, or in another order: a lease is counted from before its request, and a
//! renewal is given as long as its answer takes.

use std::future::ready;
use std::time::{Duration, Instant};

use lockmacro_runtime::{Lock, LockManager, LossCause};
use lockmacro_tests::{Fault, Proxy, Server, eventually, in_time};

use crate::{
    LONG_TTL, Locked, SOON, Steps, cause, joined, ms, outlast, renewed, rival, through, warm_up,
};

const KEY: &str = "order:42";

/// A server, a proxy in front of it, and a manager that has used it before. It waits for late
/// answers, and does not ask again meanwhile.
async fn proxied() -> (Server, Proxy, LockManager) {
    let (server, proxy, manager) = through(LONG_TTL).await;
    warm_up(&manager).await;
    (server, proxy, manager)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_grant_is_counted_from_before_its_request() {
    let (server, proxy, manager) = proxied().await;
    proxy.on_next("SET", Fault::DelayReply(ms(150)));
    let steps = Steps::default();
    let body = steps.clone().for_ever::<Locked<()>>();
    let holding = tokio::spawn(Lock::new(KEY).ttl(ms(400)).manager(&manager).run(body));
    steps.begin().await;
    let granted = joined(rival(&server.url(), KEY)).await;
    assert_eq!(cause(in_time(holding).await.expect("no panic")), LossCause::Expired);
    steps.ended_before(granted);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_renewal_is_counted_from_before_it_was_sent() {
    let (server, proxy, manager) = proxied().await;
    let steps = Steps::default();
    let body = steps.clone().for_ever::<Locked<()>>();
    proxy.on_next("EVALSHA", Fault::DelayReply(ms(150)));
    let holding = tokio::spawn(renewed(&manager, KEY, ms(2_000)).run(body));
    let done = async || proxy.orders_are_done();
    eventually("a renewal is in flight", SOON, done).await;
    // That one is answered. The next, which is due after a third of the ttl, does not reach the
    // server.
    outlast(ms(150)).await;
    proxy.stall(true);
    let granted = joined(rival(&server.url(), KEY)).await;
    proxy.stall(false);
    assert_eq!(cause(in_time(holding).await.expect("no panic")), LossCause::NotRenewed);
    steps.ended_before(granted);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_extension_is_counted_from_before_it_was_sent() {
    let (server, proxy, manager) = proxied().await;
    let steps = Steps::default();
    let guard = Lock::new(KEY).ttl(ms(2_000)).manager(&manager).acquire().await.expect("free");
    // An answer is waited for for a tenth of the longer ttl.
    proxy.on_next("EVALSHA", Fault::DelayReply(ms(200)));
    guard.extend(ms(5_000)).await.expect("ours");
    let holding = tokio::spawn(guard.run(steps.clone().for_ever::<Locked<()>>()));
    let granted = joined(rival(&server.url(), KEY)).await;
    assert_eq!(cause(in_time(holding).await.expect("no panic")), LossCause::Expired);
    steps.ended_before(granted);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_believed_is_held_in_whatever_order_answers_come() {
    for ttl in [ms(600), ms(4_000)] {
        let (server, proxy, manager) = proxied().await;
        let guard = renewed(&manager, KEY, ms(6_000)).acquire().await.expect("free");
        // The renewal is carried out first, and its answer comes last.
        proxy.on_next("EVALSHA", Fault::DelayReply(ms(250)));
        let done = async || proxy.orders_are_done();
        eventually("a renewal is in flight", SOON, done).await;
        let mut admin = server.admin();
        let full = || ready(admin.ttl(KEY).is_some_and(|left| left > ms(5_000)));
        eventually("it is carried out", SOON, full).await;
        guard.extend(ttl).await.expect("ours");
        let start = Instant::now();
        eventually("the late answer has come", SOON, || {
            let left = admin.ttl(KEY).unwrap_or(Duration::ZERO);
            let remaining = guard.remaining();
            assert!(remaining <= left + ms(1), "believed: {remaining:?}, held: {left:?}");
            ready(start.elapsed() > ms(800))
        })
        .await;
    }
}

#[tokio::test]
async fn an_answer_that_comes_after_the_end_revives_nothing() {
    let (server, proxy, manager) = proxied().await;
    let guard = Lock::new(KEY).ttl(ms(1_500)).manager(&manager).acquire().await.expect("free");
    let half = async || guard.remaining() <= ms(800);
    eventually("half of its time is over", SOON, half).await;
    proxy.on_next("EVALSHA", Fault::DelayReply(ms(1_000)));
    let (extended, lost) = tokio::join!(guard.extend(ms(20_000)), guard.lost());
    assert!(proxy.orders_are_done(), "the server was asked");
    assert_eq!(lost.cause(), LossCause::Expired);
    assert_eq!(cause(extended), LossCause::Expired);
    // The server has extended the lock, but a caller has learnt that the lock is lost.
    assert!(server.admin().ttl(KEY).expect("held") > ms(10_000));
    assert!(!guard.is_held());
    assert_eq!(cause(guard.run(async { Locked::Ok(()) }).await), LossCause::Expired);
    assert_eq!(server.admin().get(KEY), None, "and it is released");
}

/// Far more than an answer was waited for at least.
const ROUND_TRIP: Duration = Duration::from_millis(60);
const SHORT_TTL: Duration = Duration::from_millis(400);

/// Both the first lease of a manager, whose background thread is not connected yet, and later ones.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_of_a_few_round_trips_is_renewed() {
    in_time(async {
        let server = Server::start();
        let mut admin = server.admin();
        let (_proxy, manager) = Proxy::far_away(&server, ROUND_TRIP).await;
        warm_up(&manager).await;
        let long = renewed(&manager, "long", ms(1_500)).acquire().await.expect("free");
        let before = admin.commands();
        outlast(ms(3_000)).await;
        long.check().expect("renewed all the time");
        let ran = admin.commands() - before;
        // Its renewals, and what opening the thread's connection takes.
        assert!((4..60).contains(&ran), "{ran} commands");
        // The thread is connected now, as it is in a program that runs.
        let short = renewed(&manager, "short", SHORT_TTL).acquire().await.expect("free");
        let before = admin.commands();
        outlast(5 * SHORT_TTL).await;
        short.check().expect("renewed all the time");
        let ran = admin.commands() - before;
        assert!((10..150).contains(&ran), "{ran} commands");
        short.release().await.expect("still ours");
        long.release().await.expect("still ours");
    })
    .await;
}
