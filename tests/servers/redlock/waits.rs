//! Waiting without a queue: at random intervals, up to a deadline.

use std::time::Instant;

use lockmacro_runtime::{Lock, LockError, LockManager};
use lockmacro_tests::AcquireFenced as _;
use lockmacro_tests::{Proxy, eventually, in_time, is_fence};

use crate::{IN_TIME, KEY, LONG_TTL, Nodes, connected, lock, ms};

#[tokio::test]
async fn a_waiter_gets_the_lock_when_it_is_released() {
    let nodes = Nodes::start(3);
    let (ours, theirs) = (nodes.manager().await, nodes.manager().await);
    let guard = lock(&ours).acquire().await.expect("free");
    let waiting = tokio::spawn(lock(&theirs).wait(IN_TIME).acquire());
    tokio::task::yield_now().await;
    guard.release().await.expect("released");
    let guard = in_time(waiting).await.expect("no panic").expect("released");
    guard.release().await.expect("held");
}

#[tokio::test]
async fn a_waiter_in_vain_learns_the_holder_when_its_wait_has_passed() {
    let nodes = Nodes::start(3);
    let manager = nodes.manager().await;
    nodes.hold(&[0, 1, 2], &format!("web-7/{:032x}", 7));
    let start = Instant::now();
    let error = lock(&manager).wait(ms(300)).acquire().await.expect_err("held");
    assert!(start.elapsed() >= ms(300) && start.elapsed() < IN_TIME, "{:?}", start.elapsed());
    let LockError::TimedOut { holder, .. } = error else { panic!("{error}") };
    let owner = holder.owner;
    assert_eq!(owner.as_deref(), Some("web-7"));
}

#[tokio::test]
async fn a_waiter_outlasts_a_time_without_a_majority() {
    let nodes = Nodes::start(3);
    let manager = nodes.brisk_manager().await;
    nodes.0[0].pause();
    nodes.0[1].pause();
    let mut third = nodes.0[2].admin();
    third.forget_calls();
    let waiting = tokio::spawn(lock(&manager).wait(LONG_TTL).acquire());
    let is_asked = || std::future::ready(third.count(&["set"]) >= 3);
    eventually("the third is asked again and again", IN_TIME, is_asked).await;
    assert!(!waiting.is_finished());
    nodes.0[0].resume();
    nodes.0[1].resume();
    let guard = in_time(waiting).await.expect("no panic").expect("a majority is back");
    guard.release().await.expect("released");
}

/// Callers that ask at the same moment take one node each, and none has a majority.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_that_split_the_nodes_are_all_served_in_the_end() {
    let nodes = Nodes::start(3);
    let mut waiters = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let manager = nodes.brisk_manager().await;
        waiters.spawn(async move {
            for _ in 0..5 {
                let guard = lock(&manager).wait(LONG_TTL * 5).acquire().await.expect("served");
                guard.release().await.expect("released");
            }
        });
    }
    in_time(waiters.join_all()).await;
    nodes.keep_nothing().await;
}

#[tokio::test]
async fn a_waiter_of_several_keys_takes_them_in_turn() {
    let nodes = Nodes::start(3);
    let (ours, theirs) = (nodes.manager().await, nodes.manager().await);
    let both = |manager, keys: [&str; 2]| Lock::many(keys).ttl(IN_TIME).manager(manager);
    let (guard, fences) = both(&ours, [KEY, "order:43"]).acquire_fenced().await.expect("free");
    assert_eq!(fences.len(), 2);
    assert!(both(&theirs, ["order:44", KEY]).acquire().await.expect_err("held").is_busy());
    let waiting = tokio::spawn(both(&theirs, ["order:44", KEY]).wait(IN_TIME).acquire());
    tokio::task::yield_now().await;
    guard.release().await.expect("released");
    let guard = in_time(waiting).await.expect("no panic").expect("released");
    guard.release().await.expect("released");
    for server in &nodes.0 {
        let mut admin = server.admin();
        let only_fences = || std::future::ready(admin.keys().iter().all(|key| is_fence(key)));
        eventually("only fences stay", IN_TIME, only_fences).await;
    }
}

#[tokio::test]
async fn a_waiter_for_several_keys_outlasts_a_time_without_a_majority() {
    let nodes = Nodes::start(3);
    let manager = nodes.brisk_manager().await;
    nodes.are_known_to(&manager).await;
    nodes.hold(&[0, 1, 2], "somebody else's");
    let lock = Lock::many(["order:41", KEY]).ttl(LONG_TTL).wait(LONG_TTL).manager(&manager);
    let waiting = tokio::spawn(lock.acquire());
    let mut first = nodes.0[0].admin();
    let has_it = || std::future::ready(first.get("order:41").is_some());
    eventually("it has one of them", IN_TIME, has_it).await;
    nodes.0[1].pause();
    nodes.0[2].pause();
    // Longer than its next renewal may take.
    tokio::time::sleep(ms(2_500)).await;
    assert!(!waiting.is_finished());
    nodes.0[1].resume();
    nodes.0[2].resume();
    nodes.free(&[0, 1, 2]);
    let guard = in_time(waiting).await.expect("no panic").expect("a majority is back");
    guard.release().await.expect("released");
    nodes.keep_nothing().await;
}

#[tokio::test]
async fn a_waiter_for_more_keys_than_its_wait_allows_times_out() {
    let nodes = Nodes::start(3);
    let proxies: Vec<_> = nodes.0.iter().map(|server| Proxy::to(server.port())).collect();
    let urls = proxies.iter().map(Proxy::url).collect();
    let builder = LockManager::builder().durable().timeout(ms(4_000)).node_timeout(IN_TIME);
    let manager = connected(builder, urls).await;
    // An answer is given a second: so much for what it waits, and as much for the last requests.
    proxies.iter().for_each(|proxy| proxy.delay(ms(50)));
    let keys: Vec<_> = (10..55).map(|nth| format!("order:{nth}")).collect();
    let wanted = Lock::many(keys).ttl(LONG_TTL).wait(ms(300)).manager(&manager);
    let error = in_time(wanted.acquire()).await.expect_err("45 times 50 ms are longer");
    assert!(matches!(error, LockError::TimedOut { .. }), "{error}");
    nodes.keep_nothing().await;
}

/// A node that is too slow for a short ttl is fast enough for a long one.
#[tokio::test]
async fn a_caller_with_little_time_keeps_no_nodes_from_others() {
    let nodes = Nodes::start(3);
    let proxies: Vec<_> = nodes.0.iter().map(|server| Proxy::to(server.port())).collect();
    let urls = proxies.iter().map(Proxy::url).collect();
    let builder = LockManager::builder().durable().timeout(IN_TIME * 4).node_timeout(IN_TIME);
    let manager = connected(builder, urls).await;
    nodes.are_known_to(&manager).await;
    proxies.iter().for_each(|proxy| proxy.delay(ms(1_000)));
    // A tenth of its ttl is long over then, and no node has answered.
    let short = Lock::new("order:41").ttl(ms(50)).manager(&manager).acquire();
    assert!(tokio::time::timeout(ms(300), short).await.is_err());
    let long = lock(&manager).wait(ms(1)).acquire().await;
    long.expect("the nodes are asked").release().await.expect("released");
    proxies.iter().for_each(|proxy| proxy.delay(ms(0)));
    nodes.keep_nothing().await;
}

/// Each of many waiters asks every node.
#[tokio::test]
async fn a_waiter_asks_about_ten_times_a_second() {
    let nodes = Nodes::start(3);
    let manager = nodes.manager().await;
    nodes.hold(&[0, 1, 2], "somebody else's");
    let mut node = nodes.0[0].admin();
    node.forget_calls();
    lock(&manager).wait(ms(3_000)).acquire().await.expect_err("held");
    let sets = node.count(&["set"]);
    assert!((1..=80).contains(&sets), "{sets} times in three seconds");
}
