//! A slot moves to another node while its locks are held and waited for.

use std::io::Write;
use std::net::TcpStream;

use futures::future::join_all;
use lockmacro_runtime::{Lock, LockError};
use lockmacro_tests::{Cluster, eventually};

use crate::rush::Rush;
use crate::waits::Waiters;
use crate::{
    FAILOVER_TTL, Locked, a_key_on_each, keeps_nothing_of, lock, manager, ms, queue_of,
    queue_reaches,
};

/// How many processes listen to the channel of a key's slot on a node.
fn listeners(cluster: &Cluster, nth: usize, key: &str) -> usize {
    let mut admin = cluster.admin(nth);
    let channels: Vec<String> = admin.ask(&["PUBSUB", "SHARDCHANNELS"]);
    channels.iter().filter(|channel| cluster.slot(channel) == cluster.slot(key)).count()
}

#[tokio::test]
async fn a_lock_is_followed_to_where_its_slot_has_moved() {
    let cluster = Cluster::start(2, 0).await;
    let (one, other) = (manager(&cluster).await, manager(&cluster).await);
    let key = &a_key_on_each(&cluster, 1)[0];
    let guard = lock(&one, key).acquire().await.expect("free");
    let dropped = lock(&one, &format!("{{{key}}}:dropped")).acquire().await.expect("free");
    cluster.begin_to_move(key, 1).end();
    guard.extend(FAILOVER_TTL).await.expect("still held");
    assert!(lock(&other, key).acquire().await.expect_err("held").is_busy());
    guard.release().await.expect("still held");
    drop(dropped);
    keeps_nothing_of(&cluster, key).await;
    let guard = lock(&other, key).acquire().await.expect("free");
    assert!(cluster.admin(1).get(key).is_some());
    guard.release().await.expect("still held");
}

#[tokio::test]
async fn waiters_follow_a_slot_and_are_served_in_order() {
    const WAITERS: usize = 6;
    let cluster = Cluster::start(2, 0).await;
    let holder = manager(&cluster).await;
    let managers = join_all((0..WAITERS).map(|_| manager(&cluster))).await;
    let key = &a_key_on_each(&cluster, 1)[0];
    let guard = lock(&holder, key).fenced().acquire().await.expect("free");
    let waiters = Waiters::queue_up(&cluster, key, &managers).await;
    let moving = cluster.begin_to_move(key, 1);
    moving.carry_keys();
    moving.end();
    // Well before a tick the waiters are notified, and listen where the slot is now.
    let mut followed = || std::future::ready(listeners(&cluster, 1, key) == WAITERS);
    eventually("all processes follow", ms(1_500), &mut followed).await;
    let mut admin = cluster.admin(1);
    assert_eq!(admin.ask::<usize>(&["ZCARD", &queue_of(key)]), WAITERS);
    guard.release().await.expect("still held");
    waiters.are_served_in_order().await;
    keeps_nothing_of(&cluster, key).await;
    assert_eq!(listeners(&cluster, 0, key), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_moves_to_and_fro_under_contention_without_two_bodies_or_a_lock_that_is_stuck() {
    let cluster = Cluster::start(3, 0).await;
    let managers = [manager(&cluster).await, manager(&cluster).await, manager(&cluster).await];
    let key = &a_key_on_each(&cluster, 1)[0];
    let rush = Rush::on(key, &managers);
    rush.goes_on(20).await;
    for to in [1, 2, 0, 1, 0, 2] {
        let moving = cluster.begin_to_move(key, to);
        tokio::task::yield_now().await;
        moving.carry_keys();
        moving.end();
        rush.goes_on(20).await;
    }
    rush.ends().await;
    keeps_nothing_of(&cluster, key).await;
}

#[tokio::test]
async fn a_lock_is_released_and_acquired_while_its_slot_is_moved() {
    let cluster = Cluster::start(2, 0).await;
    let (one, other) = (manager(&cluster).await, manager(&cluster).await);
    let key = &a_key_on_each(&cluster, 1)[0];
    let guard = lock(&one, key).acquire().await.expect("free");
    let carried = lock(&one, &format!("{{{key}}}:carried")).acquire().await.expect("free");
    let moving = cluster.begin_to_move(key, 1);
    guard.extend(FAILOVER_TTL).await.expect("still held");
    guard.release().await.expect("still held");
    // Its keys are nowhere: it is taken where the slot goes.
    let taken = lock(&other, key).acquire().await.expect("free");
    assert!(lock(&one, key).acquire().await.is_err());
    moving.carry_keys();
    carried.extend(FAILOVER_TTL).await.expect("still held");
    carried.release().await.expect("still held");
    taken.release().await.expect("still held");
    moving.end();
    keeps_nothing_of(&cluster, key).await;
}

#[tokio::test]
async fn a_shared_lock_is_kept_and_released_while_its_slot_is_moved() {
    let cluster = Cluster::start(2, 0).await;
    let (one, other) = (manager(&cluster).await, manager(&cluster).await);
    let key = &a_key_on_each(&cluster, 1)[0];
    let first = lock(&one, key).shared().acquire().await.expect("free");
    let second = lock(&other, key).shared().acquire().await.expect("shared");
    // Its companion keys for waiters do not exist, and a node takes them for moved already.
    let moving = cluster.begin_to_move(key, 1);
    first.extend(FAILOVER_TTL).await.expect("still held");
    second.release().await.expect("still held");
    assert!(lock(&other, key).acquire().await.is_err(), "one is left");
    moving.carry_keys();
    first.extend(FAILOVER_TTL).await.expect("still held");
    first.release().await.expect("still held");
    moving.end();
    keeps_nothing_of(&cluster, key).await;
}

#[tokio::test]
async fn several_locks_of_one_slot_are_kept_while_it_is_moved() {
    let cluster = Cluster::start(2, 0).await;
    let manager = manager(&cluster).await;
    let tag = &a_key_on_each(&cluster, 1)[0];
    let of_it = |key: &str| format!("{{{tag}}}:{key}");
    let several =
        |keys: [&str; 2]| Lock::many(keys.map(&of_it)).ttl(FAILOVER_TTL).manager(&manager);
    let kept = several(["a", "b"]).acquire().await.expect("free");
    let lost = several(["c", "d"]).acquire().await.expect("free");
    let moving = cluster.begin_to_move(tag, 1);
    kept.extend(FAILOVER_TTL).await.expect("all are where they were");
    moving.carry(&of_it("a"));
    moving.carry(&of_it("c"));
    kept.extend(FAILOVER_TTL).await.expect("one is here, and one is there");
    cluster.admin(0).ask::<()>(&["DEL", &of_it("d")]);
    let error = lost.extend(FAILOVER_TTL).await.expect_err("one is nowhere");
    assert!(matches!(error, LockError::Lost(_)), "{error}");
    kept.release().await.expect("still held");
    drop(lost);
    moving.end();
    keeps_nothing_of(&cluster, tag).await;
}

/// A subscription that the server ends comes as a reply that nobody asked for: whoever counts
/// replies takes the answer of one call for that of the next.
#[tokio::test]
async fn no_answer_is_taken_for_that_of_another_call_when_a_slot_moves() {
    let cluster = Cluster::start(2, 0).await;
    let (ours, theirs) = (manager(&cluster).await, manager(&cluster).await);
    let of_node = || a_key_on_each(&cluster, 1).remove(0);
    let (held, taker) = (of_node(), cluster.id(1));
    let _guard = lock(&theirs, &held).acquire().await.expect("free");
    lock(&ours, &of_node()).run(async { Locked::Ok(()) }).await.expect("free");
    for _ in 0..5 {
        // A subscription, in a slot without keys.
        let waited = of_node();
        let guard = lock(&theirs, &waited).acquire().await.expect("free");
        let waiting =
            tokio::spawn(lock(&ours, &waited).wait(FAILOVER_TTL).run(async { Locked::Ok(()) }));
        queue_reaches(&cluster, &waited, 1).await;
        guard.release().await.expect("still held");
        waiting.await.expect("no panic").expect("served");
        keeps_nothing_of(&cluster, &waited).await;

        // The server ends it just before it answers two calls.
        let slot = cluster.slot(&waited).to_string();
        let server = cluster.server(0);
        let mut admin = TcpStream::connect(("127.0.0.1", server.port())).expect("there");
        server.pause();
        let order = format!("CLUSTER SETSLOT {slot} NODE {taker}\r\n");
        admin.write_all(order.as_bytes()).expect("sent");
        let free = format!("{{{held}}}:free");
        let first = tokio::spawn(lock(&ours, &free).acquire());
        let second = tokio::spawn(lock(&ours, &held).acquire());
        // Until both are under way.
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        server.resume();
        let second = second.await.expect("no panic");
        assert!(second.as_ref().is_err_and(LockError::is_busy), "believed: {second:?}");
        first.await.expect("no panic").expect("free").release().await.expect("still held");
        cluster.admin(1).ask::<()>(&["CLUSTER", "SETSLOT", &slot, "NODE", &taker]);
    }
}
