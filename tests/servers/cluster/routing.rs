//! Each key is locked on the node that has it.

use lockmacro_runtime::{Lock, LockError, LockManager, UnavailableReason};
use lockmacro_tests::AcquireFenced as _;
use lockmacro_tests::{Cluster, Server, eventually};
use tokio::task::JoinSet;

use crate::{
    FAILOVER, FAILOVER_TTL, Locked, a_key_on_each, keeps_nothing_of, key, lock, manager, ms, shared,
};

#[tokio::test]
async fn a_key_is_locked_on_the_node_that_has_it() {
    let cluster = shared().await;
    let (one, other) = (manager(cluster).await, manager(cluster).await);
    for (nth, key) in a_key_on_each(cluster, 3).iter().enumerate() {
        let guard = lock(&one, key).acquire().await.expect("free");
        assert!(cluster.admin(nth).get(key).is_some());
        let busy = lock(&other, key).acquire().await.expect_err("held");
        assert!(busy.is_busy(), "{busy}");
        let (renewed, left) = (guard.extend(FAILOVER_TTL * 2).await, guard.remaining());
        assert!(renewed.is_ok() && left > FAILOVER_TTL, "{renewed:?}");
        guard.release().await.expect("still held");
        let (guard, fence) = lock(&other, key).acquire_fenced().await.expect("free");
        drop(guard);
        keeps_nothing_of(cluster, key).await;
        let (guard, later) = lock(&one, key).acquire_fenced().await.expect("free");
        assert!(fence < later);
        guard.release().await.expect("still held");
    }
}

/// Also where the calls of many are sent together.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_command_has_keys_of_several_slots() {
    let cluster = Cluster::start(1, 0).await;
    let manager = manager(&cluster).await;
    let mut all = JoinSet::new();
    for nth in 0..100 {
        let manager = manager.clone();
        all.spawn(async move {
            for _ in 0..5 {
                let body = async { Locked::Ok(()) };
                lock(&manager, &key(&format!("of {nth}"))).run(body).await.expect("free");
            }
        });
    }
    all.join_all().await;
    let errors: String = cluster.admin(0).ask(&["INFO", "errorstats"]);
    assert!(!errors.contains("CROSSSLOT"), "{errors}");
}

#[tokio::test]
async fn one_server_of_the_url_is_enough() {
    let cluster = shared().await;
    let keys = a_key_on_each(cluster, 3);
    let port = cluster.server(1).port();
    // One that has forgotten its cluster, or was never in it.
    let stranger = Server::with(&["--cluster-enabled", "yes"]);
    for url in [
        format!("redis-cluster://127.0.0.1:{port}"),
        format!("redis-cluster://localhost:{port}/0"),
        format!("redis-cluster://127.0.0.1:1,127.0.0.1:{port}"),
        format!("redis-cluster://127.0.0.1:{},127.0.0.1:{port}", stranger.port()),
    ] {
        let manager = LockManager::connect(&url).await.expect("there");
        for key in &keys {
            let ran = lock(&manager, key).run(async { Locked::Ok(7) }).await;
            assert_eq!(ran, Ok(7), "{url}");
        }
    }
}

#[tokio::test]
async fn an_uncontended_lock_is_one_set_and_one_evalsha() {
    let cluster = Cluster::start(2, 0).await;
    let manager = manager(&cluster).await;
    let keys = a_key_on_each(&cluster, 2);
    for key in &keys {
        lock(&manager, key).run(async { Locked::Ok(()) }).await.expect("free");
    }
    for (nth, key) in keys.iter().enumerate() {
        let mut admin = cluster.admin(nth);
        admin.forget_calls();
        for _ in 0..10 {
            lock(&manager, key).run(async { Locked::Ok(()) }).await.expect("free");
        }
        let calls = admin.calls();
        assert_eq!(["set", "evalsha"].map(|name| admin.count(&[name])), [10, 10], "{calls:?}");
        let inside = ["set", "evalsha", "getex", "zcard", "del"];
        assert!(calls.iter().all(|(name, _)| inside.contains(&&**name)), "{calls:?}");
    }
}

#[tokio::test]
async fn several_keys_are_locked_wherever_they_are() {
    let cluster = shared().await;
    let (one, other) = (manager(cluster).await, manager(cluster).await);
    let apart = a_key_on_each(cluster, 3);
    let tag = key("bank");
    let together: Vec<String> = (0..3).map(|nth| format!("{{{tag}}}:{nth}")).collect();
    for keys in [apart.clone(), together, [apart, vec![tag.clone()]].concat()] {
        let many = |manager| Lock::many(keys.clone()).ttl(FAILOVER_TTL).manager(manager);
        let (guard, fences) = many(&one).acquire_fenced().await.expect("free");
        assert_eq!(fences.len(), keys.len());
        for key in &keys {
            assert!(cluster.admin_of(key).get(key).is_some());
            assert!(lock(&other, key).acquire().await.expect_err("held").is_busy());
        }
        let waiting = tokio::spawn(many(&other).wait(FAILOVER_TTL).run(async { Locked::Ok(7) }));
        guard.extend(FAILOVER_TTL).await.expect("still held");
        guard.release().await.expect("still held");
        assert_eq!(waiting.await.expect("no panic"), Ok(7));
        for key in &keys {
            keeps_nothing_of(cluster, key).await;
        }
    }
}

#[tokio::test]
async fn an_order_is_audited_and_stock_is_booked_without_a_deadlock() {
    let cluster = shared().await;
    let managers = [manager(cluster).await, manager(cluster).await];
    let keys = a_key_on_each(cluster, 2);
    let turned: Vec<String> = keys.iter().rev().cloned().collect();
    let mut tasks = tokio::task::JoinSet::new();
    for nth in 0..20 {
        let keys = if nth % 2 == 0 { keys.clone() } else { turned.clone() };
        let many =
            Lock::many(keys).ttl(FAILOVER_TTL).wait(FAILOVER_TTL).manager(&managers[nth / 2 % 2]);
        tasks.spawn(many.run(async { Locked::Ok(()) }));
    }
    tasks.join_all().await.into_iter().for_each(|ended| ended.expect("served"));
    for key in &keys {
        keeps_nothing_of(cluster, key).await;
    }
}

#[tokio::test]
async fn a_server_that_is_no_cluster_is_recognised() {
    let server = Server::start();
    let url = server.url().replace("redis://", "redis-cluster://");
    let error = LockManager::connect(&url).await.expect_err("no cluster");
    assert!(matches!(error, LockError::InvalidSetting { setting: "url", .. }), "{error:?}");

    let cluster = shared().await;
    let key = &a_key_on_each(cluster, 2)[1];
    let manager = LockManager::connect(&cluster.server(0).url()).await.expect("there");
    let error = lock(&manager, key).acquire().await.expect_err("elsewhere");
    let LockError::Unavailable { reason, detail, .. } = error else { panic!("{error:?}") };
    assert_eq!(reason, UnavailableReason::ClusterDown);
    assert!(detail.contains("redis-cluster://"), "{detail}");
}

#[tokio::test]
async fn a_cluster_that_is_not_there_is_unavailable() {
    let builder = LockManager::builder().timeout(ms(300));
    let error = builder.connect("redis-cluster://127.0.0.1:1,127.0.0.1:2").await.expect_err("none");
    assert!(matches!(error, LockError::Unavailable { .. }), "{error:?}");
}

/// The error names a node, so that the mistake can be found.
#[tokio::test]
async fn a_slot_that_no_node_has_or_that_two_nodes_redirect_to_each_other_is_reported_with_a_node()
{
    let cluster = Cluster::start(2, 0).await;
    let manager = LockManager::builder().timeout(ms(400)).connect(&cluster.url()).await;
    let manager = manager.expect("there");
    let refused = async |key: &str| {
        let error = lock(&manager, key).acquire().await.expect_err("no node has it");
        let is_at = |nth: usize| format!(", at 127.0.0.1:{})", cluster.server(nth).port());
        let text = error.to_string();
        assert!((0..2).any(|nth| text.ends_with(&is_at(nth))), "{text}");
        error
    };
    let [turned, gone] = [key("turned"), key("gone")];
    let (owner, slot) = (cluster.owner(&turned), cluster.slot(&turned).to_string());
    let words = ["CLUSTER", "SETSLOT", &slot, "NODE", &cluster.id(1 - owner)];
    cluster.admin(owner).ask::<()>(&words);
    let error = refused(&turned).await;
    assert!(error.to_string().contains("in a circle"), "{error}");
    let slot = cluster.slot(&gone).to_string();
    (0..2).for_each(|nth| cluster.admin(nth).ask::<()>(&["CLUSTER", "DELSLOTS", &slot]));
    refused(&gone).await;
    // Until then a node may have heard of the slot from the other one.
    eventually("both nodes have forgotten the slot", FAILOVER, async || {
        let fresh = LockManager::builder().timeout(ms(400)).connect(&cluster.url()).await;
        let fresh = fresh.expect("there");
        let error = lock(&fresh, &gone).acquire().await.expect_err("no node has it");
        error.to_string().contains("no node has the slot, at 127.0.0.1:")
    })
    .await;
}
