//! A node fails, or hands its slots to its replica, while there are holders and waiters.

use std::time::Instant;

use lockmacro_runtime::{Lock, LockError, LockManager, LossCause, UnavailableReason};
use lockmacro_tests::AcquireFenced as _;
use lockmacro_tests::{Cluster, eventually};

use crate::rush::Rush;
use crate::{FAILOVER, FAILOVER_TTL, Locked, a_key_on_each, keeps_nothing_of, lock, manager, ms};

/// Waits until the manager that holds a lock has read the slot map for the first time.
async fn has_looked(cluster: &Cluster) {
    (0..3).for_each(|nth| cluster.admin(nth).forget_calls());
    eventually("it has read the slot map", FAILOVER, || {
        let mut calls = (0..3).flat_map(|nth| cluster.admin(nth).calls());
        std::future::ready(calls.any(|(name, _)| name == "cluster|slots"))
    })
    .await;
}

#[tokio::test]
async fn the_keys_of_a_node_that_is_down_are_unavailable_and_others_go_on() {
    let mut cluster = Cluster::start(3, 0).await;
    let builder = LockManager::builder().timeout(ms(1_500));
    let manager = builder.connect(&cluster.url()).await.expect("there");
    let keys = a_key_on_each(&cluster, 3);
    for key in &keys {
        lock(&manager, key).run(async { Locked::Ok(()) }).await.expect("free");
    }
    let held = lock(&manager, &format!("{{{}}}:held", keys[1])).acquire().await.expect("free");
    has_looked(&cluster).await;
    cluster.server_mut(1).kill();
    for tries in 0..3 {
        let down = lock(&manager, &keys[1]).acquire().await.expect_err("down");
        // Only the first caller tries for the whole timeout, and only with a key of this node.
        assert_eq!(down.retry_after().is_some(), tries > 0, "{down}");
        let LockError::Unavailable { reason, .. } = down else { panic!("{down:?}") };
        assert_eq!(reason, UnavailableReason::ClusterDown);
        for nth in [0, 2] {
            lock(&manager, &keys[nth]).run(async { Locked::Ok(()) }).await.expect("free");
        }
    }
    // All or nothing: what was taken on the others is released.
    let both = Lock::many(keys.clone()).ttl(FAILOVER_TTL).manager(&manager);
    assert!(matches!(both.acquire().await, Err(LockError::Unavailable { .. })));
    cluster.server_mut(1).restart();
    cluster.serves().await;
    eventually("all keys can be had again", FAILOVER, || async {
        let all = Lock::many(keys.clone()).ttl(FAILOVER_TTL).manager(&manager);
        all.run(async { Locked::Ok(7) }).await == Ok(7)
    })
    .await;
    // It has saved nothing, and its clients ask whether it has their locks.
    let lost = tokio::time::timeout(FAILOVER, held.lost()).await.expect("reported in time");
    assert_eq!(lost.cause(), LossCause::Taken);
}

/// An operator has a replica take over: nothing is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_takes_over_on_demand_goes_on_with_holders_and_waiters() {
    let cluster = Cluster::start(3, 1).await;
    let managers = [manager(&cluster).await, manager(&cluster).await];
    let keys = a_key_on_each(&cluster, 1);
    let rush = Rush::on(&keys[0], &managers);
    let held = Lock::new(format!("{{{}}}:held", keys[0])).ttl(FAILOVER_TTL).manager(&managers[0]);
    let (guard, fence) = held.acquire_fenced().await.expect("free");
    rush.goes_on(20).await;
    for next in [3, 0] {
        // On a loaded machine the nodes give it up after 5 s.
        let (mut asked, mut again) = (Instant::now(), true);
        eventually("it has taken over", FAILOVER, || {
            if again || asked.elapsed() > ms(6_000) {
                (asked, again) = (Instant::now(), false);
                let _ = cluster.admin(next).send::<()>(&["CLUSTER", "FAILOVER"]);
            }
            std::future::ready(cluster.owner(&keys[0]) == next)
        })
        .await;
        rush.goes_on(20).await;
        guard.extend(FAILOVER_TTL).await.expect("still held");
    }
    guard.release().await.expect("still held");
    rush.ends().await;
    let held = Lock::new(format!("{{{}}}:held", keys[0])).ttl(FAILOVER_TTL).manager(&managers[1]);
    let (guard, later) = held.acquire_fenced().await.expect("free");
    assert!(fence < later);
    guard.release().await.expect("still held");
    cluster.serves().await;
    keeps_nothing_of(&cluster, &keys[0]).await;
}

/// Writes that a primary had acknowledged and not passed on are lost with it, as in any cluster. So
/// bodies may overlap here, and nothing else may go wrong.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_that_is_killed_under_load_leaves_nobody_stuck() {
    let mut cluster = Cluster::start(3, 1).await;
    let managers = [manager(&cluster).await, manager(&cluster).await];
    let keys = a_key_on_each(&cluster, 3);
    let rush = Rush::that_may_lose(&keys[1], &managers);
    let others = Rush::on(&keys[0], &managers);
    rush.goes_on(20).await;
    cluster.server_mut(1).kill();
    others.goes_on(20).await;
    eventually("its replica has taken over", FAILOVER, || {
        std::future::ready(cluster.owner(&keys[1]) == 4)
    })
    .await;
    rush.goes_on(20).await;
    // The bodies of before were short, and the old primary has been dead for long.
    rush.excludes_again();
    rush.goes_on(40).await;
    others.ends().await;
    rush.ends().await;
    cluster.server_mut(1).restart();
    cluster.serves().await;
    for key in &keys {
        keeps_nothing_of(&cluster, key).await;
    }
}

/// A stalled node answers nothing, and closes nothing.
#[tokio::test]
async fn a_primary_that_hangs_is_left_for_its_replica() {
    let cluster = Cluster::start(3, 1).await;
    let builder = LockManager::builder().timeout(ms(400));
    let manager = builder.connect(&cluster.url()).await.expect("there");
    let key = &a_key_on_each(&cluster, 2)[1];
    lock(&manager, key).run(async { Locked::Ok(()) }).await.expect("free");
    cluster.server(1).pause();
    let waited = lock(&manager, key).wait(FAILOVER_TTL).run(async { Locked::Ok(7) }).await;
    assert_eq!((waited, cluster.owner(key)), (Ok(7), 4));
    // The thread in the background has waited, by its own connections. A caller that does not wait
    // gets an error until those of the program have noticed the failover, too.
    let start = Instant::now();
    while let Err(error) = lock(&manager, key).run(async { Locked::Ok(7) }).await {
        assert!(
            matches!(error, LockError::Unavailable { .. }) && start.elapsed() < FAILOVER,
            "{error:?}"
        );
    }
    cluster.server(1).resume();
}

/// Also where nobody asks for anything but the manager by itself.
#[tokio::test]
async fn a_lease_that_a_failover_forgot_is_reported_as_lost_and_never_taken_again() {
    for extends in [false, true] {
        let mut cluster = Cluster::start(3, 1).await;
        let manager = manager(&cluster).await;
        let key = &a_key_on_each(&cluster, 2)[1];
        let guard = lock(&manager, key).acquire().await.expect("free");
        if !extends {
            has_looked(&cluster).await;
        }
        cluster.server(4).admin().ask::<()>(&["CLUSTER", "FAILOVER", "TAKEOVER"]);
        let has_taken_over = || std::future::ready(cluster.owner(key) == 4);
        eventually("it has taken over", FAILOVER, has_taken_over).await;
        // The replica has not seen it.
        cluster.admin(4).ask::<()>(&["DEL", key]);
        cluster.server_mut(1).kill();
        let start = Instant::now();
        if extends {
            loop {
                match guard.extend(FAILOVER_TTL).await {
                    Err(LockError::Unavailable { .. }) if start.elapsed() < FAILOVER => {}
                    Err(LockError::Lost(_)) => break,
                    other => panic!("{other:?}"),
                }
            }
        }
        let lost = tokio::time::timeout(FAILOVER, guard.lost()).await.expect("reported in time");
        assert_eq!(lost.cause(), LossCause::Taken);
        assert_eq!(cluster.admin(4).get(key), None);
    }
}
