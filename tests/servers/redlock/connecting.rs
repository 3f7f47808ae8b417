//! Which servers make a Redlock.

use lockmacro_runtime::{Lock, LockError, LockManager, LossCause};
use lockmacro_tests::{Proxy, Server, eventually, in_time, log};
use tokio::time::timeout;

use crate::{IN_TIME, KEY, LONG_TTL, Nodes, connected, lock, ms, replies};

async fn refused(urls: Vec<String>) -> String {
    let error = LockManager::builder().redlock(urls).await.expect_err("not usable");
    assert!(matches!(error, LockError::InvalidSetting { setting: "url", .. }), "{error:?}");
    error.to_string()
}

#[tokio::test]
async fn few_and_even_numbers_of_nodes_are_refused_with_the_reason() {
    let urls = |count| (1..=count).map(|nth| format!("redis://u:hunter2@h{nth}")).collect();
    for (count, why) in
        [(0, "3 or more"), (1, "3 or more"), (2, "3 or more"), (4, "an even number")]
    {
        let error = refused(urls(count)).await;
        assert!(error.contains(why) && !error.contains("hunter2"), "{error}");
    }
}

#[tokio::test]
async fn two_names_of_one_server_are_refused() {
    let mut nodes = Nodes::start(2);
    let proxy = Proxy::to(nodes.0[0].port());
    let mut urls = nodes.urls();
    urls.push(nodes.0[0].url());
    assert!(refused(urls.clone()).await.contains("one server"));
    urls[2] = proxy.url();
    // So that it cannot do without either of them.
    nodes.0[1].kill();
    assert!(refused(urls).await.contains("one server"));
}

#[tokio::test]
async fn a_node_that_comes_back_as_another_one_or_becomes_one_does_not_vote() {
    for comes_back in [true, false] {
        let mut nodes = Nodes::start(3);
        let proxy = Proxy::to(nodes.0[2].port());
        if comes_back {
            proxy.refuse(true);
        }
        let urls = vec![nodes.0[0].url(), nodes.0[1].url(), proxy.url()];
        let builder = LockManager::builder().durable().timeout(IN_TIME);
        let manager = connected(builder, urls).await;
        proxy.lead_to(nodes.0[0].port());
        proxy.refuse(false);
        proxy.cut();
        nodes.0[1].kill();
        eventually("the error says that one server has two names", IN_TIME, async || {
            let asked = lock(&manager).wait(ms(200)).acquire().await;
            asked.expect_err("one server has two names").to_string().contains("are one server")
        })
        .await;
    }
}

#[tokio::test]
async fn a_renewal_counts_no_server_twice() {
    let mut nodes = Nodes::start(3);
    let proxy = Proxy::to(nodes.0[2].port());
    let urls = vec![nodes.0[0].url(), nodes.0[1].url(), proxy.url()];
    let builder = LockManager::builder().durable().timeout(IN_TIME * 4).node_timeout(IN_TIME);
    let manager = connected(builder, urls).await;
    nodes.are_known_to(&manager).await;
    nodes.0[1].kill();
    let guard = Lock::new(KEY).ttl(ms(3_000)).renew().manager(&manager).acquire().await;
    let guard = guard.expect("two of three");
    proxy.lead_to(nodes.0[0].port());
    proxy.cut();
    // One of three has it from now on, whatever two names say.
    let lost = timeout(IN_TIME, guard.lost()).await.expect("it is lost");
    assert_eq!(lost.cause(), LossCause::NotRenewed);
}

#[tokio::test]
async fn a_majority_is_enough_to_connect_and_a_dead_node_is_taken_in_later() {
    let mut nodes = Nodes::start(3);
    nodes.0[1].kill();
    let manager = nodes.manager().await;
    nodes.0[1].restart();
    nodes.0[2].kill();
    // Without the one that came back there would be no majority.
    let granted = async || match lock(&manager).acquire().await {
        Ok(guard) => guard.release().await.is_ok(),
        Err(error) => panic!("{error}"),
    };
    assert!(granted().await);
    nodes.0[1].kill();
    let builder = LockManager::builder().durable().timeout(ms(2_000));
    let error = builder.redlock(nodes.urls()).await.expect_err("one of three");
    let said: Vec<_> = replies(&error).iter().map(|reply| reply.error.is_some()).collect();
    assert_eq!(said, [false, true, true], "{error}");
}

#[tokio::test]
async fn one_url_names_all_nodes() {
    let nodes = Nodes::start(3);
    let places: Vec<_> = nodes.0.iter().map(|s| format!("127.0.0.1:{}", s.port())).collect();
    let url = format!("redlock://{}/1?durable", places.join(","));
    let builder = LockManager::builder().timeout(IN_TIME * 4);
    let manager = builder.connect(&url).await.expect("all are there");
    let in_database_one = |server: &Server| {
        let info: String = server.admin().ask(&["INFO", "keyspace"]);
        info.contains("db1:keys=1")
    };
    nodes.all_have(&lock(&manager), in_database_one).await;
    for (setting, wrong) in [
        ("url", "redlock://a,b"),
        ("url", "redlock://a,,b"),
        ("url", "redlock://a,b,c?quick"),
        ("longest_ttl", "redlock://a,b,c?longest_ttl=10"),
        ("node_timeout", "redlock://a,b,c?node_timeout=0s"),
        ("replicated", "redlock://a,b,c?durable&replicated=1"),
    ] {
        let error = LockManager::connect(wrong).await.expect_err("not usable");
        let LockError::InvalidSetting { setting: its, .. } = error else { panic!("{error:?}") };
        assert_eq!(its, setting, "{wrong}");
    }
}

#[tokio::test]
async fn by_the_url_alone_new_servers_vote_when_no_lock_of_before_can_be_left() {
    let nodes = Nodes::start(3);
    let places: Vec<_> = nodes.0.iter().map(|s| format!("127.0.0.1:{}", s.port())).collect();
    let url = format!("redlock://{}?longest_ttl=1s&node_timeout=10s", places.join(","));
    let builder = LockManager::builder().timeout(IN_TIME * 4).longest_ttl(LONG_TTL);
    let manager = builder.connect(&url).await.expect("all are there");
    let long = lock(&manager).acquire().await.expect_err("longer than any");
    assert!(matches!(&long, LockError::InvalidSetting { setting: "ttl", .. }), "{long:?}");
    assert!(long.to_string().ends_with("and 1s"), "{long}");
    let guard = lock(&manager).ttl(ms(1_000)).wait(IN_TIME).acquire().await;
    guard.expect("old enough in the end").release().await.expect("released");
    nodes.keep_nothing().await;
}

#[tokio::test]
async fn a_user_without_the_right_to_ask_for_its_age_cannot_be_a_node() {
    let nodes = Nodes::start(3);
    let rights = "on >pw ~* &* +@all -info".split(' ');
    for server in &nodes.0 {
        let words: Vec<_> = ["ACL", "SETUSER", "shop"].into_iter().chain(rights.clone()).collect();
        server.admin().ask::<()>(&words);
    }
    let urls: Vec<_> = nodes.0.iter().map(|server| server.url_as("shop", "pw")).collect();
    // The error comes at once: the refusal does not pass by itself.
    let connecting = LockManager::builder().timeout(IN_TIME * 60).redlock(urls);
    let error = in_time(connecting).await.expect_err("no rights");
    let denied = |error: &Option<LockError>| matches!(error, Some(LockError::AccessDenied { .. }));
    assert!(replies(&error).iter().all(|reply| denied(&reply.error)), "{error}");
}

/// Without a majority of primaries every lock would fail.
#[tokio::test]
async fn a_majority_that_cannot_vote_is_refused_with_the_reason_of_each_node() {
    let primary = Server::start();
    let port = primary.port().to_string();
    let replica = Server::with(&["--replicaof", "127.0.0.1", &port]);
    let mut second = Server::start();
    let urls = vec![primary.url(), replica.url(), second.url()];
    let young = LockManager::builder().timeout(ms(2_000)).node_timeout(ms(200));
    let mut managers = Vec::new();
    // One replica leaves a majority, also while no node is old enough to vote.
    for builder in [young.clone(), young.clone().durable()] {
        let manager = connected(builder.clone(), urls.clone()).await;
        managers.push((builder, manager));
    }
    second.kill();
    let named = format!("connect to its primary, 127.0.0.1:{port}");
    for (builder, manager) in managers {
        // A loaded machine may be too slow for the answer of the primary.
        eventually("each node has its reason", IN_TIME * 3, async || {
            let connecting = builder.clone().redlock(urls.clone()).await;
            [connecting.err(), manager.ready().await.err()].into_iter().all(|error| {
                let error = error.expect("one of three can vote");
                let replies = replies(&error);
                let is_named =
                    replies[1].error.as_ref().is_some_and(|e| e.to_string().contains(&named));
                let is_gone = matches!(replies[2].error, Some(LockError::Unavailable { .. }));
                let is_first = replies[0].error.is_none() && error.to_string().contains(&named);
                is_first && is_named && is_gone
            })
        })
        .await;
    }
}

#[tokio::test]
async fn a_node_that_is_lost_is_logged_and_again_when_it_is_back() {
    log::start();
    let mut nodes = Nodes::start(3);
    let manager = nodes.manager().await;
    nodes.are_known_to(&manager).await;
    let port = nodes.0[2].port().to_string();
    let logged = async |words: &str| {
        eventually(words, IN_TIME * 2, async || {
            let guard = lock(&manager).acquire().await.expect("two are enough");
            guard.release().await.expect("released");
            log::so_far().lines().any(|line| line.contains(words) && line.contains(&port))
        })
        .await;
    };
    nodes.0[2].kill();
    logged("WARN message=lock server down").await;
    nodes.0[2].restart();
    logged("INFO message=lock server back").await;
}

#[tokio::test]
async fn failures_are_no_news_while_a_majority_is_lost() {
    log::start();
    const NAME: &str = "majority-lost";
    let mut nodes = Nodes::start(3);
    let manager = nodes.brisk_manager().await;
    nodes.are_known_to(&manager).await;
    for nth in [1, 2] {
        nodes.0[nth].kill();
    }
    let refused = async |level: &str| {
        let before = log::so_far().len();
        lock(&manager).name(NAME).acquire().await.expect_err("one is not enough");
        let log = log::so_far();
        let news = &log[before..];
        news.lines().any(|line| line.starts_with(level) && line.contains(NAME))
    };
    eventually("both are lost", IN_TIME * 2, async || {
        refused("DEBUG message=lock unavailable").await
    })
    .await;
    assert!(!refused("WARN").await);
}
