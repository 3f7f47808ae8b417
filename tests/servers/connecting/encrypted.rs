//! `rediss-cluster://` and `rediss-sentinel://`: what others have named is spoken to by TLS as
//! well. And `redlocks://`.

use lockmacro_tests::{Certificates, Cluster, Group, in_time};

use crate::*;

/// A lock is taken, refused, handed off and released.
async fn serves(url: &str, key: &str) {
    let one = patient().connect(url).await.expect("the server is there");
    let other = patient().connect(url).await.expect("the server is there");
    let of = |manager| Lock::new(key.to_owned()).ttl(FAILOVER_TTL).manager(manager);
    let held = of(&one).acquire().await.expect("free");
    assert!(of(&other).acquire().await.expect_err("held").is_busy());
    let next = tokio::spawn(of(&other).wait_forever().acquire());
    held.release().await.expect("still held");
    let next = in_time(next).await.expect("no panic").expect("served");
    next.release().await.expect("still held");
}

async fn is_not_trusted(url: &str) {
    match patient().connect(url).await {
        Err(LockError::Unavailable { reason: UnavailableReason::Tls, .. }) => {}
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn every_node_of_a_cluster_is_spoken_to_by_tls() {
    let (certificates, strangers) = (Certificates::new(), Certificates::new());
    let (cluster, ports) = Cluster::encrypted(&certificates).await;
    for node in 0..2 {
        // The other node is learnt from the one that is named.
        let url = format!("redis-cluster://127.0.0.1:{}", ports[1 - node]);
        let key = (0..).map(|n| format!("order:{n}")).find(|key| cluster.owner(key) == node);
        let key = key.expect("endless");
        cluster.admin(node).forget_calls();
        serves(&certificates.encrypted(&url), &key).await;
        let calls = cluster.admin(node).calls();
        assert!(calls.iter().any(|(name, _)| name == "set"), "{calls:?}");
        is_not_trusted(&strangers.encrypted(&url)).await;
    }
}

#[tokio::test]
async fn every_node_of_a_redlock_is_spoken_to_by_tls() {
    let (certificates, strangers) = (Certificates::new(), Certificates::new());
    let servers: Vec<_> = (0..3).map(|_| certificates.server()).collect();
    let places: Vec<_> = servers.iter().map(|s| format!("127.0.0.1:{}", s.port())).collect();
    let url = |certificates: &Certificates| {
        let ca = certificates.path("ca.pem");
        format!("redlocks://{}?durable&node_timeout=10s&cacert={ca}", places.join(","))
    };
    serves(&url(&certificates), KEY).await;
    let replies = match patient().connect(&url(&strangers)).await {
        Err(LockError::Unavailable { reason: UnavailableReason::NoQuorum, nodes, .. }) => nodes,
        other => panic!("{other:?}"),
    };
    for reply in replies {
        let is_expected = matches!(
            reply.error,
            Some(LockError::Unavailable { reason: UnavailableReason::Tls, .. })
        );
        assert!(is_expected, "{reply}");
    }
    // Nobody trusts by these files and is not encrypted.
    let plain = url(&certificates).replace("redlocks://", "redlock://");
    match LockManager::connect(&plain).await {
        Err(LockError::InvalidSetting { setting: "cacert", detail, .. }) => {
            assert!(detail.contains("an encrypted connection"))
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn sentinels_and_the_primary_that_they_name_are_spoken_to_by_tls() {
    let (certificates, strangers) = (Certificates::new(), Certificates::new());
    let settings = certificates.settings("no");
    let mut arguments = vec!["--tls-port", "{port}", "--port", "0", "--tls-replication", "yes"];
    arguments.extend(settings.iter().map(String::as_str));
    let group = Group::alone(certificates.server(), "", &arguments);
    serves(&certificates.encrypted(&group.url()), KEY).await;
    is_not_trusted(&strangers.encrypted(&group.url())).await;
}
