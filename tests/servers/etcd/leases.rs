//! Keys, their leases and their fences, as the store makes them.

use std::time::{Duration, Instant};

use lockmacro_tests::times::FAILOVER_TTL;
use lockmacro_tests::{Fault, Proxy, eventually};

use super::*;

const LONG: Duration = Duration::from_secs(60);

#[tokio::test]
async fn a_repeated_request_finds_its_lock_with_the_same_fence() {
    let etcd = Etcd::start().await;
    let store = store(&etcd).await;
    let first = fence(&ask(&store, "order", "a/1", LONG).await);
    assert_eq!(fence(&ask(&store, "order", "a/1", SHORT_TTL).await), first);
    let held = ask(&store, "order", "b/2", LONG).await;
    let Outcome::Held { by, left } = held else { panic!("it is held") };
    assert_eq!(by.as_deref(), Some("a/1"));
    // The second request did not shorten it.
    assert!(left.is_some_and(|left| left > LONG / 2 && left <= LONG), "{left:?}");
    assert!(release(&store, "order", "a/1").await);
    assert!(!release(&store, "order", "a/1").await);
    assert!(fence(&ask(&store, "order", "b/2", LONG).await) > first);
    assert!(release(&store, "order", "b/2").await);
    etcd.keeps_nothing().await;
}

#[tokio::test]
async fn a_longer_ttl_keeps_the_fence_and_leaves_no_lease() {
    let etcd = Etcd::start().await;
    let store = store(&etcd).await;
    let before = fence(&ask(&store, "order", "a/1", SHORT_TTL).await);
    let held = HeldKey::new("order", "a/1");
    assert!(store.renew(held, LONG).await.expect("an answer"));
    let Outcome::Held { left, .. } = ask(&store, "order", "b/2", LONG).await else {
        panic!("it is held")
    };
    assert!(left.is_some_and(|left| left > LONG / 2), "{left:?}");
    assert_eq!(fence(&ask(&store, "order", "a/1", SHORT_TTL).await), before);
    let one = || std::future::ready(etcd.left() == (1, 1));
    eventually("only the new lease is left", EXPIRED, one).await;
    assert!(!store.renew(HeldKey::new("order", "b/2"), LONG).await.expect("an answer"));
    assert!(release(&store, "order", "a/1").await);
    assert!(!store.renew(held, LONG).await.expect("an answer"), "it never acquires");
    etcd.keeps_nothing().await;
}

#[tokio::test]
async fn renewals_at_once_leave_the_longest_ttl() {
    let etcd = Etcd::start().await;
    let store = store(&etcd).await;
    let held = HeldKey::new("order", "a/1");
    for _ in 0..20 {
        ask(&store, "order", "a/1", SHORT_TTL).await;
        let short = store.renew(held, 2 * SHORT_TTL);
        let (long, short) = tokio::join!(store.renew(held, LONG), short);
        assert!(long.expect("an answer") && short.expect("an answer"));
        let Outcome::Held { left, .. } = ask(&store, "order", "b/2", LONG).await else {
            panic!("it is held")
        };
        assert!(left.is_some_and(|left| left > LONG / 2), "{left:?}");
        assert!(release(&store, "order", "a/1").await);
    }
    etcd.keeps_nothing().await;
}

#[tokio::test]
async fn a_lock_that_nobody_renews_ends_in_time_and_fences_grow_over_it() {
    let mut etcd = Etcd::start().await;
    let store = store(&etcd).await;
    let began = Instant::now();
    let first = fence(&ask(&store, "order", "a/1", SHORT_TTL).await);
    let ended =
        || async { matches!(ask(&store, "order", "b/2", LONG).await, Outcome::Granted { .. }) };
    eventually("it ends", EXPIRED, ended).await;
    assert!(began.elapsed() >= SHORT_TTL, "after {:?}", began.elapsed());
    let second = fence(&ask(&store, "order", "b/2", LONG).await);
    assert!(second > first);
    etcd.kill(0);
    etcd.restart(0);
    etcd.answers().await;
    // Its connection is a new one.
    let held = HeldKey::new("order", "b/2");
    let renews = || async { store.renew(held, LONG).await.is_ok() };
    eventually("it answers again", EXPIRED, renews).await;
    assert!(release(&store, "order", "b/2").await, "a restart keeps locks");
    assert!(fence(&ask(&store, "order", "c/3", LONG).await) > second);
    assert!(release(&store, "order", "c/3").await);
    etcd.keeps_nothing().await;
}

#[tokio::test]
async fn a_key_that_is_kept_after_its_release_belongs_to_nobody() {
    let etcd = Etcd::start().await;
    let store = store(&etcd).await;
    let token = "web/0123456789abcdef0123456789abcdef";
    ask(&store, "order", token, LONG).await;
    let held = HeldKey::new("order", token);
    assert!(store.release(held, SHORT_TTL).await.expect("an answer"));
    assert!(!store.renew(held, LONG).await.expect("an answer"));
    assert!(!release(&store, "order", token).await);
    let Outcome::Held { by, .. } = ask(&store, "order", "b/2", LONG).await else {
        panic!("it is kept")
    };
    assert_eq!(by, Some(held.kept()));
    etcd.keeps_nothing().await;
}

#[tokio::test]
async fn refused_requests_leave_no_lease() {
    let etcd = Etcd::start().await;
    let store = store(&etcd).await;
    ask(&store, "order", "a/1", LONG).await;
    for nth in 0..50 {
        let refused = ask(&store, "order", &format!("b/{nth}"), LONG).await;
        assert!(matches!(refused, Outcome::Held { .. }));
    }
    let one = || std::future::ready(etcd.left() == (1, 1));
    eventually("only the holder's lease is left", EXPIRED, one).await;
    assert!(release(&store, "order", "a/1").await);
    etcd.keeps_nothing().await;
}

#[tokio::test]
async fn a_key_of_somebody_else_is_not_a_lock() {
    let etcd = Etcd::start().await;
    let locks = manager(&etcd).await;
    etcd.ctl(&["put", "lockmacro/order", "a value"]);
    let refused = Lock::new("order").manager(&locks).acquire().await.expect_err("not a lock");
    assert!(matches!(refused, LockError::KeyNotALock { .. }), "{refused:?}");
    let only = || std::future::ready(etcd.left() == (1, 0));
    eventually("its own lease is not left", EXPIRED, only).await;
}

#[tokio::test]
async fn a_release_right_before_the_end_of_its_manager_leaves_no_lease() {
    let etcd = Etcd::start().await;
    for _ in 0..10 {
        let locks = manager(&etcd).await;
        let guard = Lock::new("order").ttl(FAILOVER_TTL).manager(&locks).acquire().await;
        guard.expect("granted").release().await.expect("released");
        locks.shutdown(LONG).await.expect("nothing is held");
    }
    etcd.keeps_nothing().await;
}

#[tokio::test]
async fn a_renewal_restarts_the_lease_that_the_key_has_by_then() {
    let etcd = Etcd::start().await;
    let proxy = Proxy::to(etcd.port(0));
    let far = [etcd.endpoint(proxy.port())];
    let far = EtcdStore::connect(far, EtcdOptions::default().timeout(LONG)).await.expect("there");
    ask(&far, "order", "a/1", LONG).await;
    proxy.on_next_with("lockmacro/order", Fault::DelayReply(Duration::from_secs(1)));
    let renewal = async { far.renew(HeldKey::new("order", "a/1"), LONG).await };
    // Another renewal gives it another lease, and has not ended the former one yet.
    let another = async {
        let read = || std::future::ready(proxy.orders_are_done());
        eventually("it is read", EXPIRED, read).await;
        let granted = etcd.ctl(&["lease", "grant", "10"]);
        let lease = granted.split_whitespace().nth(1).expect("a number");
        etcd.ctl(&["put", "lockmacro/order", "a/1", "--lease", lease]);
    };
    let (renewed, ()) = tokio::join!(renewal, another);
    assert!(renewed.expect("an answer"));
    let Outcome::Held { left, .. } = ask(&store(&etcd).await, "order", "b/2", LONG).await else {
        panic!("it is held")
    };
    assert!(left.is_some_and(|left| left > LONG / 2), "{left:?}");
    assert!(release(&far, "order", "a/1").await);
}

#[tokio::test]
async fn a_grant_says_for_how_long_etcd_keeps_it() {
    let etcd = Etcd::with(1, &["--election-timeout", "5000"], &[]).await;
    let store = store(&etcd).await;
    for _ in 0..2 {
        let granted = ask(&store, "order", "a/1", SHORT_TTL).await;
        let Outcome::Granted { ttl, .. } = granted else { panic!("it is free") };
        assert_eq!(ttl, Some(Duration::from_secs(8)), "an election may take that long");
    }
    assert!(release(&store, "order", "a/1").await);
    etcd.keeps_nothing().await;
}
