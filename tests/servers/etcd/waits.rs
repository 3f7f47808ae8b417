//! Waiters of other processes are told by a watch.

use std::time::Instant;

use lockmacro_tests::times::{LONG_TTL, PUSHED};
use lockmacro_tests::{Proxy, eventually};

use super::*;

async fn is_watched(etcd: &Etcd, times: usize) {
    let watched = || async { etcd.metric("etcd_debugging_mvcc_watcher_total").await == times };
    eventually("so many keys are watched", EXPIRED, watched).await;
}

#[tokio::test]
async fn a_waiter_is_told_and_its_watch_ends_with_it() {
    let etcd = Etcd::start().await;
    let [one, other] = [manager(&etcd).await, manager(&etcd).await];
    for round in 0..5 {
        let guard = Lock::new("order").manager(&one).acquire().await.expect("granted");
        let lock = Lock::new("order").manager(&other).wait(LONG_TTL);
        let waiter = tokio::spawn(lock.acquire());
        is_watched(&etcd, 1).await;
        if round == 0 {
            waiter.abort();
            is_watched(&etcd, 0).await;
            guard.release().await.expect("released");
            continue;
        }
        let freed = Instant::now();
        guard.release().await.expect("released");
        let guard = waiter.await.expect("no panic").expect("granted");
        assert!(freed.elapsed() < PUSHED, "after {:?}", freed.elapsed());
        guard.release().await.expect("released");
        is_watched(&etcd, 0).await;
    }
    etcd.keeps_nothing().await;
}

#[tokio::test]
async fn a_deletion_while_the_watch_was_down_is_not_missed() {
    let etcd = Etcd::start().await;
    let proxy = Proxy::to(etcd.port(0));
    let far = [etcd.endpoint(proxy.port())];
    let far = EtcdStore::connect(far, EtcdOptions::default()).await.expect("etcd is there");
    let near = store(&etcd).await;
    ask(&near, "order", "a/1", LONG_TTL).await;
    // The lease of what is refused is left when the network is cut.
    ask(&far, "order", "b/2", SHORT_TTL).await;
    let mut freed = Box::pin(far.freed("order"));
    let waits = tokio::time::timeout(Duration::from_millis(100), &mut freed).await;
    assert!(waits.is_err(), "it is held");
    is_watched(&etcd, 1).await;
    proxy.refuse(true);
    proxy.cut();
    is_watched(&etcd, 0).await;
    release(&near, "order", "a/1").await;
    proxy.refuse(false);
    tokio::time::timeout(EXPIRED, freed).await.expect("it is told after all");
    etcd.keeps_nothing().await;
}

#[tokio::test]
async fn a_watch_that_was_down_ends_with_its_store() {
    let etcd = Etcd::start().await;
    let proxy = Proxy::to(etcd.port(0));
    let far = [etcd.endpoint(proxy.port())];
    let far = EtcdStore::connect(far, EtcdOptions::default()).await.expect("etcd is there");
    let near = store(&etcd).await;
    ask(&near, "order", "a/1", LONG_TTL).await;
    ask(&far, "order", "b/2", SHORT_TTL).await;
    let mut freed = Box::pin(far.freed("order"));
    let waits = tokio::time::timeout(Duration::from_millis(100), &mut freed).await;
    assert!(waits.is_err(), "it is held");
    is_watched(&etcd, 1).await;
    let address = ("127.0.0.1", proxy.port());
    drop(proxy);
    is_watched(&etcd, 0).await;
    drop(freed);
    far.close();
    let listener = tokio::net::TcpListener::bind(address).await.expect("the port is free");
    let again = tokio::time::timeout(Duration::from_millis(500), listener.accept()).await;
    assert!(again.is_err(), "nobody waits any more");
    assert!(release(&near, "order", "a/1").await);
    etcd.keeps_nothing().await;
}

#[tokio::test]
async fn a_compaction_of_what_is_watched_wakes_the_waiter() {
    let etcd = Etcd::start().await;
    let proxy = Proxy::to(etcd.port(0));
    let far = [etcd.endpoint(proxy.port())];
    let far = EtcdStore::connect(far, EtcdOptions::default()).await.expect("etcd is there");
    let near = store(&etcd).await;
    ask(&near, "order", "a/1", LONG_TTL).await;
    // The lease of what is refused is left when the network is cut.
    ask(&far, "order", "b/2", SHORT_TTL).await;
    proxy.refuse(true);
    proxy.cut();
    release(&near, "order", "a/1").await;
    etcd.ctl(&["put", "any", "value"]);
    etcd.ctl(&["del", "any"]);
    etcd.ctl(&["compaction", &etcd.revision().to_string()]);
    let freed = far.freed("order");
    proxy.refuse(false);
    tokio::time::timeout(EXPIRED, freed).await.expect("it asks again");
    etcd.keeps_nothing().await;
}

/// Each caller that wants a fence has to acquire the lock in etcd.
#[tokio::test]
async fn callers_of_one_process_pass_the_lock_on_without_etcd() {
    let etcd = Etcd::start().await;
    let locks = manager(&etcd).await;
    let lock = Lock::new("order").manager(&locks).wait(LONG_TTL);
    let began = etcd.revision();
    let callers = (0..200).map(|_| tokio::spawn(lock.clone().run(async { Locked::Ok(()) })));
    for caller in callers.collect::<Vec<_>>() {
        caller.await.expect("no panic").expect("granted");
    }
    let writes = etcd.revision() - began;
    assert!(writes < 100, "{writes} writes for 200 turns");
    etcd.keeps_nothing().await;
}
