//! A node that was started again may have forgotten a lock that is still held.

use std::time::{Duration, Instant};

use lockmacro_runtime::{Lock, LockError, LockManager, LockManagerBuilder, Unavailability};
use lockmacro_tests::{Proxy, Server, eventually, in_time, on_a_plain_thread};

use crate::{KEY, Nodes, SOON, ms, replies};

const LONGEST: Duration = Duration::from_secs(3);

/// Has the lock held by the first and the last of three nodes, starts the last one again with
/// nothing in it, and asks for another. Tells what came of it.
async fn after_a_restart(builder: LockManagerBuilder) -> Result<(), LockError> {
    let mut nodes = Nodes::start(3);
    let holder = builder.clone().redlock(nodes.urls()).await.expect("all are there");
    let rival = builder.redlock(nodes.urls()).await.expect("all are there");
    nodes.hold(&[1], "somebody else's");
    let start = Instant::now();
    let lock = |manager: &LockManager| Lock::new(KEY).ttl(LONGEST).manager(manager);
    let guard = loop {
        match lock(&holder).acquire().await {
            Ok(guard) => break guard,
            // Young nodes do not vote.
            Err(error) => assert!(!error.is_busy() && start.elapsed() < SOON, "{error}"),
        }
    };
    nodes.free(&[1]);
    nodes.0[2].kill();
    nodes.0[2].restart();
    let asked = Instant::now();
    let result = loop {
        let result = lock(&rival).acquire().await;
        assert!(guard.is_held(), "this machine is too slow for this test");
        // Until the rival has found the node again.
        let found = |error: &LockError| error.is_busy() && asked.elapsed() < ms(1_500);
        match result {
            Err(error) if found(&error) => tokio::time::sleep(ms(20)).await,
            result => break result,
        }
    };
    result.map(drop)
}

#[tokio::test]
async fn a_node_that_has_forgotten_a_lock_gives_it_twice_when_it_votes() {
    let result = in_time(after_a_restart(LockManager::builder().durable())).await;
    assert!(result.is_ok(), "this is what the delay is for: {result:?}");
}

#[tokio::test]
async fn a_node_that_was_started_again_does_not_vote_until_all_locks_of_before_are_over() {
    let builder = LockManager::builder().longest_ttl(LONGEST).timeout(ms(400));
    let error = in_time(after_a_restart(builder)).await.expect_err("held");
    assert!(error.is_busy(), "{error}");
}

#[tokio::test]
async fn young_nodes_say_when_they_will_vote_and_do() {
    let nodes = Nodes::start(3);
    let builder = LockManager::builder().longest_ttl(ms(1_000)).timeout(ms(200));
    let manager = builder.redlock(nodes.urls()).await.expect("they are there");
    let lock = || Lock::new(KEY).ttl(ms(1_000)).manager(&manager);
    let error = lock().acquire().await.expect_err("too young");
    for reply in replies(&error) {
        let restarted = matches!(
            reply.error,
            Some(LockError::Unavailable { reason: Unavailability::Restarted, .. })
        );
        assert!(restarted && reply.to_string().contains("votes again in"), "{reply}");
    }
    let guard = lock().wait(SOON).acquire().await.expect("old enough in the end");
    guard.release().await.expect("released");
    nodes.keep_nothing().await;
}

#[tokio::test]
async fn a_ttl_above_the_longest_one_is_refused() {
    let nodes = Nodes::start(3);
    let builder = LockManager::builder().longest_ttl(ms(1_000));
    let manager = builder.redlock(nodes.urls()).await.expect("they are there");
    let error = Lock::new(KEY).ttl(ms(1_001)).manager(&manager).acquire().await;
    let Err(LockError::InvalidTtl { longest, .. }) = error else { panic!("{error:?}") };
    assert_eq!(longest, ms(1_000));
}

/// Its age does not tell what it has missed.
#[tokio::test]
async fn a_server_in_the_place_of_another_one_does_not_vote_until_all_locks_of_before_are_over() {
    let mut nodes = Nodes::start(4);
    let proxy = Proxy::to(nodes.0[2].port());
    let urls = vec![nodes.0[0].url(), nodes.0[1].url(), proxy.url()];
    let builder = LockManager::builder().longest_ttl(ms(1_000)).timeout(ms(400));
    let manager = builder.redlock(urls).await.expect("all are there");
    let lock = || Lock::new(KEY).ttl(ms(1_000)).manager(&manager);
    let guard = lock().wait(SOON).acquire().await.expect("old enough in the end");
    guard.release().await.expect("released");
    let uptime = |server: &Server| {
        let info: String = server.admin().ask(&["INFO", "server"]);
        let uptime = info.lines().find_map(|line| line.strip_prefix("uptime_in_seconds:"));
        uptime.expect("its age").parse::<u64>().expect("a number")
    };
    let old = || std::future::ready(uptime(&nodes.0[3]) > 2);
    eventually("the other one is as old as any", SOON, old).await;
    proxy.lead_to(nodes.0[3].port());
    proxy.cut();
    nodes.0[1].kill();
    let told = |error: &LockError| {
        let reason = replies(error)[2].error.clone();
        let restarted = Unavailability::Restarted;
        matches!(reason, Some(LockError::Unavailable { reason, .. }) if reason == restarted)
    };
    // Until it was found.
    let start = Instant::now();
    while !told(&lock().acquire().await.expect_err("its vote would be needed")) {
        assert!(start.elapsed() < SOON, "it is not told");
    }
    // A connection of another thread knows as much.
    let blocking = lock();
    let error = on_a_plain_thread(move || blocking.acquire_blocking()).await;
    assert!(told(&error.expect_err("its vote would be needed")));
    let guard = lock().wait(SOON).acquire().await.expect("it votes in the end");
    guard.release().await.expect("released");
}
