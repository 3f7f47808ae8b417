//! Several keys, at one server and at many.

use lockmacro_tests::{Cluster, with_replicas};

use crate::*;

#[tokio::test]
async fn several_keys_are_acknowledged_or_all_released() {
    let servers = with_replicas(1).await;
    let keys = ["account:1", "account:2", "account:3"];
    let too_few = patient(&servers[0], 2, ms(1_000)).await;
    let enough = manager(&servers[0], 1).await;
    assert_eq!(short(Lock::many(keys).ttl(FAILOVER_TTL).manager(&too_few).acquire().await), (1, 2));
    assert_eq!(servers[0].admin().keys(), Vec::<String>::new());
    let guard = Lock::many(keys).ttl(FAILOVER_TTL).manager(&enough).acquire().await.expect("free");
    let mut replica = servers[1].admin();
    for key in keys {
        assert!(replica.get(key).is_some(), "{key}");
    }
    // Keys that are waited for one after the other are acknowledged as well.
    let other = manager(&servers[0], 1).await;
    let waiting = Lock::many(keys).ttl(FAILOVER_TTL).wait(FAILOVER_TTL).manager(&other).acquire();
    let waiting = tokio::spawn(waiting);
    let mut admin = servers[0].admin();
    eventually("it is in the queue", FAILOVER, || {
        std::future::ready(admin.ask::<usize>(&["ZCARD", "lm1:wq:{account:1}"]) == 1)
    })
    .await;
    guard.release().await.expect("held");
    let guard = waiting.await.expect("no panic").expect("served");
    for key in keys {
        assert!(replica.ttl(key).is_some_and(|left| left > CONFIRM_WINDOW), "{key}");
    }
    guard.release().await.expect("held");
    keeps_nothing(&servers[0]).await;
}

#[tokio::test]
async fn in_a_cluster_the_replicas_of_each_key_are_waited_for() {
    let cluster = Cluster::start(2, 1).await;
    let url = format!("{}?replicated=1&replicated_timeout=3s", cluster.url());
    let locks = LockManager::connect(&url).await.expect("there");
    let keys: Vec<String> = (0..2)
        .map(|node| (0..).map(|n| format!("account:{n}")).find(|key| cluster.owner(key) == node))
        .map(|key| key.expect("endless"))
        .collect();
    let both = || Lock::many(keys.clone()).ttl(FAILOVER_TTL).manager(&locks);
    let guard = both().acquire().await.expect("acknowledged");
    for (node, key) in keys.iter().enumerate() {
        let mut replica = cluster.admin(2 + node);
        assert_eq!(replica.ask::<usize>(&["DBSIZE"]), 1, "{key}");
    }
    guard.release().await.expect("held");

    // One key alone needs its own node's only, and both need all.
    cluster.server(3).pause();
    let first = || Lock::new(keys[0].clone()).ttl(FAILOVER_TTL).manager(&locks);
    first().acquire().await.expect("acknowledged").release().await.expect("held");
    assert_eq!(short(both().acquire().await), (0, 1));
    for node in 0..2 {
        assert_eq!(cluster.admin(node).keys(), Vec::<String>::new());
    }
    cluster.server(3).resume();

    // While its slot moves, a lock is acknowledged where it is.
    let of_it = ["a", "b"].map(|key| format!("{{{}}}:{key}", keys[0]));
    let several = Lock::many(of_it.clone()).ttl(FAILOVER_TTL).manager(&locks);
    let several = several.acquire().await.expect("acknowledged");
    let moving = cluster.begin_to_move(&keys[0], 1);
    several.extend(FAILOVER_TTL * 2).await.expect("acknowledged");
    moving.carry(&of_it[1]);
    several.extend(FAILOVER_TTL * 3).await.expect("acknowledged here and there");
    several.release().await.expect("held");
    first().acquire().await.expect("acknowledged").release().await.expect("held");
    moving.end();
    first().acquire().await.expect("acknowledged").release().await.expect("held");
}
