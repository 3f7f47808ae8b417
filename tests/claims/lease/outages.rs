//! A server that is stalled for longer than a lease: the body ends before anybody else begins.

use std::future::{pending, ready};
use std::time::{Duration, Instant};

use lockmacro_runtime::{LockError, LossCause};
use lockmacro_tests::queue::Queue;
use lockmacro_tests::times::CONFIRM_WINDOW;
use lockmacro_tests::{Server, eventually, in_time};

use crate::{
    Locked, SOON, Steps, cause, connect, joined, lock, ms, outlast, renewed, rival, within,
};

const TTL: Duration = Duration::from_millis(120);
const KEY: &str = "order:42";

fn rounds() -> u64 {
    let asked = std::env::var("LEASE_ROUNDS").ok().and_then(|rounds| rounds.parse().ok());
    asked.unwrap_or(50)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_whose_server_stalls_ends_before_a_rival_is_granted() {
    let server = Server::start();
    let manager = within(ms(400), &server.url()).await;
    let mut admin = server.admin();
    let mut closest = Duration::MAX;
    for round in 0..rounds() {
        let free = || ready(admin.get(KEY).is_none());
        eventually("the last rival is gone", SOON, free).await;
        let steps = Steps::default();
        let (lock, its) = (renewed(&manager, KEY, TTL), steps.clone());
        let holding = tokio::spawn(async move {
            loop {
                let result = lock.run(its.clone().for_ever::<Locked<()>>()).await;
                // A machine in need may be past so short a lease before the body begins.
                if its.last().is_some() || !matches!(result, Err(LockError::Lost(_))) {
                    return result;
                }
            }
        });
        steps.begin().await;
        let rival = rival(&server.url(), KEY);
        // At another moment between two renewals in each round.
        tokio::time::sleep(ms(round * 13 % 90)).await;
        server.pause();
        // Past the end of the last renewal that it may have carried out, and a little longer.
        tokio::time::sleep(TTL + ms(round * 7 % 25)).await;
        server.resume();
        let granted = joined(rival).await;
        let result = in_time(holding).await.expect("no panic");
        assert_eq!(cause(result), LossCause::NotRenewed, "round {round}");
        closest = closest.min(steps.ended_before(granted));
    }
    println!("closest: {closest:?}");
}

#[tokio::test]
async fn a_server_that_does_not_come_back_ends_the_body_at_its_deadline() {
    let mut server = Server::start();
    let manager = within(ms(400), &server.url()).await;
    let steps = Steps::default();
    let start = Instant::now();
    let mut begun = start;
    let body = steps.clone().for_ever::<Locked<()>>();
    let result = renewed(&manager, KEY, ms(500)).run(async {
        // Its lease has begun before.
        begun = Instant::now();
        server.kill();
        body.await
    });
    assert_eq!(cause(in_time(result).await), LossCause::NotRenewed);
    let last = steps.last().expect("it began") - begun;
    assert!(last < ms(500) && start.elapsed() > ms(400), "{last:?} of {:?}", start.elapsed());
    // The release has not found the server either, and does not try for ever.
    assert!(start.elapsed() < 2 * SOON, "{:?}", start.elapsed());
}

#[tokio::test]
async fn a_lock_that_was_extended_is_released_after_an_outage_longer_than_its_ttl() {
    let server = Server::start();
    let manager = within(ms(800), &server.url()).await;
    let guard = lock(&manager, KEY).ttl(ms(1_500)).acquire().await.expect("free");
    guard.extend(Duration::from_secs(600)).await.expect("held");
    server.pause();
    drop(guard);
    // Longer than the ttl that the lock began with.
    outlast(ms(2_200)).await;
    server.resume();
    let mut admin = server.admin();
    eventually("the key is free", SOON, || ready(admin.get(KEY).is_none())).await;
}

/// A server hands a lock off for 5 s. The answer to the first renewal makes that the whole ttl.
#[tokio::test]
async fn a_server_that_stalls_as_the_bodies_begin_ends_only_the_lock_that_was_waited_for() {
    let server = Server::start();
    let ours = connect(&server.url()).await;
    let theirs = connect(&server.url()).await;
    let ttl = Duration::from_secs(300);
    let free = lock(&ours, "order:43").ttl(ttl).acquire().await.expect("free");
    let before = lock(&theirs, KEY).acquire().await.expect("free");
    let body = async {
        server.pause();
        pending::<Locked<()>>().await
    };
    let waited = lock(&ours, KEY).ttl(ttl).wait_forever().run(body);
    let next = async {
        Queue::at(&server, KEY).reaches(1).await;
        let released = Instant::now();
        // The server may stall before it has answered.
        let _ = before.release().await;
        released
    };
    let (result, released) = in_time(async { tokio::join!(waited, next) }).await;
    assert_eq!(cause(result), LossCause::NotRenewed);
    assert!(released.elapsed() < 2 * CONFIRM_WINDOW, "{:?}", released.elapsed());
    free.check().expect("its whole ttl was granted");
    assert!(free.remaining() > ttl / 2, "{:?}", free.remaining());
    server.resume();
}
