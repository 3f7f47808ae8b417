//! Three nodes: a leader that is gone, and a majority that is.

use std::time::Instant;

use lockmacro_tests::eventually;
use lockmacro_tests::times::{FAILOVER, LONG_TTL};

use super::*;

/// Renewed every two seconds; longer than an election takes.
const TTL: Duration = Duration::from_secs(6);

fn lock(locks: &LockManager) -> Lock {
    Lock::new("order").ttl(TTL).renew().manager(locks)
}

/// Waits until a lock was renewed twice, or lost.
async fn is_renewed(guard: &LockGuard) -> Locked<()> {
    for _ in 0..2 {
        let mut left = guard.remaining();
        eventually("it is renewed", FAILOVER, || {
            let before = std::mem::replace(&mut left, guard.remaining());
            std::future::ready(left > before || !guard.is_held())
        })
        .await;
        guard.check()?;
    }
    Ok(())
}

/// Whether this version has etcd's defect 15247: a leader that was stuck may end a lease that was
/// renewed at its successor.
async fn has_defect(etcd: &Etcd) -> bool {
    let said = etcd.ctl(&["endpoint", "status", "-w", "fields"]);
    let version = said.lines().find_map(|line| line.strip_prefix("\"Version\" : "));
    let version = version.expect("a version").trim_matches('"');
    let parts: Vec<u32> = version.split('.').filter_map(|part| part.parse().ok()).collect();
    matches!(parts[..], [3, 4, patch] if patch < 31)
        || matches!(parts[..], [3, 5, patch] if patch < 13)
}

/// A lock outlives what is done to the leader, and its return when the lease that it knew is over.
/// Nobody else is granted the lock.
async fn outlives(harm: impl FnOnce(&mut Etcd, usize), mend: impl FnOnce(&mut Etcd, usize)) {
    let mut etcd = Etcd::cluster().await;
    let [one, other] = [manager(&etcd).await, manager(&etcd).await];
    let (guard, first) = fenced(&lock(&one)).await.expect("granted");
    let waiter = tokio::spawn({
        let lock = lock(&other).wait(FAILOVER);
        async move { fenced(&lock).await }
    });
    let leader = etcd.leader().await;
    harm(&mut etcd, leader);
    let since = Instant::now();
    while since.elapsed() < TTL + SHORT_TTL {
        is_renewed(&guard).await.expect("it is held all the time");
    }
    mend(&mut etcd, leader);
    match is_renewed(&guard).await {
        Ok(()) => {
            assert!(!waiter.is_finished(), "nobody else is granted it");
            guard.release().await.expect("released");
        }
        // The loss is told, and the next fence is larger, as for any lock that is taken away.
        Err(lost) => assert!(has_defect(&etcd).await, "{lost:?}"),
    }
    let (guard, second) = waiter.await.expect("no panic").expect("granted");
    assert!(second > first, "{second:?} after {first:?}");
    guard.release().await.expect("released");
    etcd.keeps_nothing().await;
}

#[tokio::test]
async fn a_lock_outlives_a_leader_that_is_killed() {
    outlives(Etcd::kill, Etcd::restart).await;
}

#[tokio::test]
async fn a_lock_outlives_a_leader_that_is_stopped() {
    outlives(|etcd, leader| etcd.pause(leader), |etcd, leader| etcd.resume(leader)).await;
}

#[tokio::test]
async fn a_lock_outlives_a_leader_that_is_cut_off() {
    let cut = |is_cut| move |etcd: &mut Etcd, leader| etcd.cut_off(leader, is_cut);
    outlives(cut(true), cut(false)).await;
}

/// A former leader does not know that it is one, and would restart leases that another one ends.
#[tokio::test]
async fn a_leader_that_is_cut_off_renews_nothing() {
    let etcd = Etcd::cluster().await;
    let leader = etcd.leader().await;
    let alone = etcd.endpoint(etcd.port(leader));
    let alone = lockmacro_etcd::connect([alone], EtcdOptions::default()).await.expect("there");
    let others = (0..3).filter(|node| *node != leader).map(|node| etcd.port(node));
    let others = others.map(|port| etcd.endpoint(port));
    let others = lockmacro_etcd::connect(others, EtcdOptions::default()).await.expect("there");
    let short = Lock::new("order").ttl(SHORT_TTL).renew();
    let (guard, first) = fenced(&short.clone().manager(&alone)).await.expect("granted");
    etcd.cut_off(leader, true);
    let lock = short.clone().manager(&others).wait(LONG_TTL);
    let (next, second) = fenced(&lock).await.expect("granted in the end");
    assert!(!guard.is_held(), "the first one knew that it had lost it");
    assert!(second > first);
    let refused = short.manager(&alone).acquire().await.expect_err("not by a minority");
    assert!(matches!(refused, LockError::Unavailable { .. }), "{refused:?}");
    next.release().await.expect("released");
    etcd.cut_off(leader, false);
    etcd.keeps_nothing().await;
}

#[tokio::test]
async fn without_a_majority_locks_end_in_time_and_with_one_they_are_granted_again() {
    let etcd = Etcd::cluster().await;
    let locks = manager(&etcd).await;
    let (guard, first) = fenced(&lock(&locks)).await.expect("granted");
    etcd.pause(0);
    etcd.pause(1);
    let began = Instant::now();
    guard.lost().await;
    assert!(began.elapsed() < TTL, "after {:?}", began.elapsed());
    let refused = lock(&locks).acquire().await.expect_err("not by a minority");
    assert!(matches!(refused, LockError::Unavailable { .. }), "{refused:?}");
    etcd.resume(0);
    etcd.resume(1);
    let works = || async { lock(&locks).acquire().await.is_ok() };
    eventually("it is granted again", FAILOVER, works).await;
    let (guard, second) = fenced(&lock(&locks).wait(LONG_TTL)).await.expect("granted");
    assert!(second > first, "{second:?} after {first:?}");
    guard.release().await.expect("released");
    etcd.keeps_nothing().await;
}

#[tokio::test]
async fn a_node_that_is_stopped_costs_one_answer_and_no_lock() {
    let etcd = Etcd::cluster().await;
    let leader = etcd.leader().await;
    let [first, second] = [1, 2].map(|later| (leader + later) % 3);
    // The first of the nodes is asked first, and the others agree without it.
    let nodes = [first, second, leader].map(|node| etcd.endpoint(etcd.port(node)));
    let locks = lockmacro_etcd::connect(nodes, EtcdOptions::default()).await.expect("there");
    let works = async || {
        // What the node is asked before it stops may leave a lease.
        let lock = Lock::new("order").ttl(SHORT_TTL).manager(&locks);
        lock.acquire().await.expect("granted").release().await.expect("released");
    };
    works().await;
    etcd.pause(first);
    works().await;
    let began = Instant::now();
    works().await;
    assert!(began.elapsed() < Duration::from_millis(400), "after {:?}", began.elapsed());
    etcd.resume(first);
    etcd.keeps_nothing().await;
}

#[tokio::test]
async fn impatient_callers_leave_a_node_that_is_stopped() {
    let etcd = Etcd::cluster().await;
    let leader = etcd.leader().await;
    let [first, second] = [1, 2].map(|later| (leader + later) % 3);
    let nodes = [first, second, leader].map(|node| etcd.endpoint(etcd.port(node)));
    let store = EtcdStore::connect(nodes, EtcdOptions::default()).await.expect("there");
    // This manager gives no answer the time that the store gives a node.
    let builder = LockManager::builder().timeout(Duration::from_secs(1));
    let locks = builder.connect_store(store).await.expect("there");
    let guard = lock(&locks).acquire().await.expect("granted");
    etcd.pause(first);
    let other = Lock::new("other").ttl(SHORT_TTL).manager(&locks);
    let works = || async { other.acquire().await.is_ok() };
    eventually("another node is asked", FAILOVER, works).await;
    is_renewed(&guard).await.expect("it is held all the time");
    guard.release().await.expect("released");
    etcd.resume(first);
    etcd.keeps_nothing().await;
}
