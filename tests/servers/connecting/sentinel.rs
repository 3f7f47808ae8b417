//! `redis-sentinel://`, and what a failover does to locks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use lockmacro_runtime::{LossCause, UnavailableReason};
use lockmacro_tests::{Group, Server, eventually, with_replicas};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::*;

async fn manager(group: &Group) -> LockManager {
    LockManager::connect(&group.url()).await.expect("there is a primary")
}

#[tokio::test]
async fn a_lock_that_a_new_primary_does_not_have_is_lost_at_once() {
    let mut group = Group::alone(Server::start(), "", &[]);
    let locks = manager(&group).await;
    // One is renewed and would be asked about in 20 s; nobody would ask about the other.
    let renewed = Lock::new("renewed").ttl(FAILOVER_TTL).renew().manager(&locks);
    let fixed = lock(&locks);
    let (renewed, fixed) = (renewed.acquire().await.expect("free"), fixed.acquire().await);
    let fixed = fixed.expect("free");
    // Their bodies know nothing of the server.
    let lost = tokio::spawn(async move {
        let fixed = fixed.run(std::future::pending::<Result<(), LockError>>()).await;
        (fixed, renewed.lost().await)
    });
    group.servers[0].kill();
    let other = Server::start();
    group.names(&other);
    let (fixed, renewed) = timeout(FAILOVER, lost).await.expect("reported").expect("no panic");
    let Err(LockError::Lost(fixed)) = fixed else { panic!("{fixed:?}") };
    assert_eq!((fixed.cause(), renewed.cause()), (LossCause::Taken, LossCause::Taken));
    // And it can be had again.
    lock(&locks).acquire().await.expect("free").release().await.expect("held");
}

#[tokio::test]
async fn a_lock_that_the_new_primary_knows_is_kept() {
    let mut servers = with_replicas(1).await;
    let (replica, primary) = (servers.pop().expect("two"), servers.pop().expect("one"));
    let group = Group::alone(primary, "", &[]);
    let locks = manager(&group).await;
    let held = lock(&locks).acquire().await.expect("free");
    let waiting = tokio::spawn(lock(&locks).wait(FAILOVER * 2).acquire());
    let mut admin = replica.admin();
    eventually("the replica knows", FAILOVER, || std::future::ready(admin.get(KEY).is_some()))
        .await;
    // It is stalled with all its connections open.
    group.servers[0].pause();
    admin.ask::<()>(&["REPLICAOF", "NO", "ONE"]);
    group.names(&replica);
    assert_eq!(held.check(), Ok(()));
    drop(held);
    let next = timeout(FAILOVER, waiting).await.expect("served").expect("no panic");
    next.expect("served").release().await.expect("still held");
    eventually("nothing is left", FAILOVER, || std::future::ready(admin.keys().is_empty())).await;
    group.servers[0].resume();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_under_load_serves_everybody_and_leaves_nothing_stuck() {
    let group = Group::start().await;
    // A lock that was released on the old primary stays on the new one for that long.
    let ttl = Duration::from_secs(5);
    let over = Arc::new(AtomicBool::new(false));
    let served = Arc::new(AtomicUsize::new(0));
    let inside: Arc<[AtomicUsize; 3]> = Arc::default();
    let mut workers = JoinSet::new();
    for nth in 0..12 {
        let locks = manager(&group).await;
        let (over, served) = (Arc::clone(&over), Arc::clone(&served));
        let inside = Arc::clone(&inside);
        workers.spawn(async move {
            let mut afterwards = 0;
            while afterwards < 3 {
                let key = format!("order:{}", nth % 3);
                let last = over.load(Ordering::SeqCst);
                let lock = Lock::new(key).ttl(ttl).wait(FAILOVER * 2).manager(&locks);
                let guard = match lock.acquire().await {
                    Ok(guard) => guard,
                    Err(LockError::Unavailable { .. }) => continue,
                    // Whose body never began has lost nothing.
                    Err(other) => panic!("{other}"),
                };
                let body = async {
                    // A caller that began before may hold a lock of the old primary.
                    let alone = last.then(|| Inside::enter(&inside[nth % 3]));
                    sleep(Duration::from_millis(1)).await;
                    drop(alone);
                    Ok(())
                };
                match guard.run(body).await {
                    Ok(()) if last => afterwards += 1,
                    Ok(()) => _ = served.fetch_add(1, Ordering::SeqCst),
                    Err(LockError::Lost(_)) => {}
                    Err(other) => panic!("{other}"),
                }
            }
            locks.shutdown(FAILOVER).await.expect("nothing is held");
        });
    }
    eventually("there is load", FAILOVER, || async { served.load(Ordering::SeqCst) > 100 }).await;
    group.fail_over();
    let mut admin = group.has_failed_over().await;
    eventually("the old primary gives up", FAILOVER, || {
        // It ends all its connections then.
        let info = group.servers[0].admin().send::<String>(&["INFO", "replication"]);
        std::future::ready(info.is_ok_and(|info| info.contains("role:slave")))
    })
    .await;
    over.store(true, Ordering::SeqCst);
    timeout(FAILOVER, workers.join_all()).await.expect("everybody is served");
    for key in admin.keys() {
        // A lock that was released on the earlier server may be here until its end.
        assert_ne!(admin.ask::<i64>(&["PTTL", &key]), -1, "{key} stays");
    }
}

#[tokio::test]
async fn a_primary_that_still_answers_is_left_when_its_sentinels_name_another() {
    let group = Group::alone(Server::start(), "", &[]);
    let locks = manager(&group).await;
    let held = lock(&locks).acquire().await.expect("free");
    let other = Server::start();
    group.names(&other);
    let lost = timeout(FAILOVER, held.lost()).await.expect("reported");
    assert_eq!(lost.cause(), LossCause::Taken);
    lock(&locks).acquire().await.expect("free").release().await.expect("held");
}

#[tokio::test]
async fn sentinels_that_disagree_one_to_one_are_not_believed() {
    let (mut groups, mut urls) = (Vec::new(), Vec::new());
    for _ in 0..2 {
        let group = Group::alone(Server::start(), "", &[]);
        urls.push(format!("127.0.0.1:{}", group.sentinels[0].port()));
        groups.push(group);
    }
    // The third is dead.
    let url = format!("redis-sentinel://{},127.0.0.1:1/main", urls.join(","));
    // A quarter of it for each answer: of one alone it would be believed.
    let patience = LockManager::builder().timeout(Duration::from_secs(8));
    match patience.connect(&url).await {
        Err(LockError::Unavailable { reason: UnavailableReason::Timeout, detail, .. }) => {
            assert!(detail.contains("do not agree"), "{detail}");
        }
        other => panic!("{other:?}"),
    }
    // A caller that has time waits until they do.
    let patient = tokio::spawn(async move {
        LockManager::builder().timeout(FAILOVER).connect(&url).await.map(drop)
    });
    groups[1].names(&groups[0].servers[0]);
    timeout(FAILOVER, patient).await.expect("in time").expect("no panic").expect("they agree");
}

#[tokio::test]
async fn sentinels_are_asked_again_and_again_by_one_connection() {
    let group = Group::alone(Server::start(), "", &[]);
    let locks = manager(&group).await;
    let held = lock(&locks).acquire().await.expect("free");
    let mut admin = group.sentinels[0].admin();
    let mut counted = || {
        let info: String = admin.ask(&["INFO", "stats"]);
        let count = |name| info.lines().find_map(|line| line.strip_prefix(name));
        let number = |name| count(name).and_then(|count| count.parse::<u64>().ok());
        let connections = number("total_connections_received:").expect("its connections");
        (connections, number("total_commands_processed:").expect("its commands"))
    };
    let (mut asked, (_, before)) = (0, counted());
    let mut so_often = |often: u64| {
        asked += 1;
        let (connections, commands) = counted();
        (commands - before >= asked + often).then_some(connections)
    };
    // The first request may be sent by a connection of its own.
    let mut connections = None;
    eventually("it is asked while a lock is held", FAILOVER, || {
        connections = so_often(6);
        std::future::ready(connections.is_some())
    })
    .await;
    let mut later = None;
    eventually("it is asked on and on", FAILOVER, || {
        later = so_often(9);
        std::future::ready(later.is_some())
    })
    .await;
    // One more where an answer took half a second.
    let new = later.expect("counted") - connections.expect("counted");
    assert!(new <= 1, "{new} for three requests");
    held.release().await.expect("held");
}

/// One body that must be the only one; leaves however it ends.
struct Inside<'a>(&'a AtomicUsize);

impl<'a> Inside<'a> {
    fn enter(inside: &'a AtomicUsize) -> Self {
        let beside = inside.fetch_add(1, Ordering::SeqCst);
        let entered = Self(inside);
        assert_eq!(beside, 0, "two bodies");
        entered
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[tokio::test]
async fn a_primary_that_sentinels_do_not_name_is_reported() {
    let unknown = Server::start();
    let (none, builder) = ("redis-sentinel://127.0.0.1:1,127.0.0.1:2/main", LockManager::builder);
    // No sentinel at all.
    let none_at_all = format!("redis-sentinel://127.0.0.1:{}/main", unknown.port());
    for (url, expected) in
        [(none, UnavailableReason::Refused), (&*none_at_all, UnavailableReason::Protocol)]
    {
        match builder().timeout(Duration::from_secs(2)).connect(url).await {
            Err(LockError::Unavailable { reason, .. }) => assert_eq!(reason, expected, "{url}"),
            other => panic!("{url}: {other:?}"),
        }
    }
    for path in ["127.0.0.1", "127.0.0.1/", "/main"] {
        match LockManager::connect(&format!("redis-sentinel://{path}")).await {
            Err(LockError::InvalidSetting { setting: "url", .. }) => {}
            other => panic!("{path}: {other:?}"),
        }
    }
}
