//! A promoted replica grants a lock again only if it has not acknowledged it.

use std::future::ready;

use lockmacro_tests::{Group, in_time, with_replicas};

use crate::*;

/// A primary and two replicas, of which the second receives nothing any more that the first
/// receives.
async fn with_one_cut_off() -> Vec<Server> {
    let servers = with_replicas(2).await;
    let online = |count| {
        let mut admin = servers[0].admin();
        eventually("the other one is there", FAILOVER, move || {
            let info: String = admin.ask(&["INFO", "replication"]);
            ready(info.matches("state=online").count() == count)
        })
    };
    servers[2].pause();
    servers[0].admin().ask::<i64>(&["CLIENT", "KILL", "TYPE", "replica"]);
    online(1).await;
    servers
}

/// Promotes one of the replicas, and requests the lock there with the token of
/// another process.
async fn is_granted_again(servers: &mut [Server], promoted: usize) -> bool {
    servers[0].kill();
    servers[promoted].resume();
    servers[promoted].admin().ask::<()>(&["REPLICAOF", "NO", "ONE"]);
    let rival = plain(&servers[promoted]).await;
    match lock(&rival).acquire().await {
        Ok(_) => true,
        Err(error) if error.is_busy() => false,
        Err(error) => panic!("{error}"),
    }
}

#[tokio::test]
async fn without_it_a_failover_grants_a_lock_twice() {
    let mut servers = with_one_cut_off().await;
    let locks = plain(&servers[0]).await;
    let guard = lock(&locks).acquire().await.expect("free");
    assert!(is_granted_again(&mut servers, 2).await);
    assert_eq!(guard.check(), Ok(()), "two hold it now");
}

#[tokio::test]
async fn a_promoted_replica_grants_again_if_it_has_not_acknowledged() {
    for (promoted, grants) in [(1, false), (2, true)] {
        let mut servers = with_one_cut_off().await;
        let locks = manager(&servers[0], 1).await;
        let guard = lock(&locks).acquire().await.expect("the first has acknowledged");
        assert_eq!(is_granted_again(&mut servers, promoted).await, grants, "replica {promoted}");
        assert_eq!(guard.check(), Ok(()), "then two hold it");
    }
}

#[tokio::test]
async fn a_lock_that_needs_every_replica_is_refused_where_one_is_cut_off() {
    let mut servers = with_one_cut_off().await;
    let locks = patient(&servers[0], 2, ms(1_000)).await;
    assert_eq!(short(lock(&locks).acquire().await), (1, 2));
    assert!(is_granted_again(&mut servers, 2).await, "to one, the other has none");
}

/// The URL alone, sentinels, and a failover of theirs.
#[tokio::test]
async fn sentinels_promote_a_replica_that_knows_the_lock() {
    let mut group = Group::start().await;
    let url = |within| format!("{}?replicated=2&replicated_timeout={within}", group.url());
    let locks = LockManager::connect(&url("60s")).await.expect("there is a primary");
    let impatient = LockManager::connect(&url("100ms")).await.expect("there is a primary");
    let renewed = Lock::new("renewed").ttl(ms(5_000)).renew().manager(&locks);
    // A replica is waited for for a quarter of the ttl.
    let renewed = in_time(async {
        loop {
            match renewed.acquire().await {
                Err(LockError::Unavailable {
                    reason: UnavailableReason::NotAcknowledged, ..
                }) => {}
                acquired => break acquired.expect("both have it"),
            }
        }
    })
    .await;
    let guard = lock(&locks).acquire().await.expect("both have it");
    group.servers[0].kill();
    let mut admin = in_time(group.has_failed_over()).await;
    assert!(admin.get(KEY).is_some());
    let rival = LockManager::connect(&group.url()).await.expect("there is a primary");
    assert!(lock(&rival).acquire().await.expect_err("it is known").is_busy());
    assert_eq!(guard.check(), Ok(()));
    guard.release().await.expect("held");
    // Of the two replicas one is left, and it follows the new primary when the failover is over.
    eventually("the other replica follows", FAILOVER * 3, || {
        let info: String = admin.ask(&["INFO", "replication"]);
        std::future::ready(info.contains("connected_slaves:1") && info.contains("state=online"))
    })
    .await;
    // The sentinels may end connections meanwhile, and on a busy machine fail over once more.
    eventually("it is short of replicas", FAILOVER * 3, || async {
        match lock(&impatient).acquire().await {
            Err(LockError::Unavailable {
                reason: UnavailableReason::NotAcknowledged,
                detail,
                ..
            }) if detail.contains(" of 2 ") => true,
            Err(LockError::Unavailable { .. }) => false,
            // By the attempt before, which could not be released.
            Err(error) if error.is_busy() => false,
            other => panic!("{other:?}"),
        }
    })
    .await;
    // No renewal counts, and the lease ends.
    in_time(renewed.lost()).await;
}
