//! Keys of several slots, which a server wants to be asked for apart.

use std::time::{Duration, Instant};

use lockmacro_runtime::{LockError, LockManager, UnavailableReason};
use lockmacro_tests::{Backend, Fault, Proxy, eventually, on, queue_of};
use tokio::time::timeout;

use crate::{IN_TIME, LONG_TTL, Locked, become_free, busy_key, impatient, keys, lock, many, ms};

/// A manager with all the time it wants, behind a proxy, that knows of the slots.
async fn through(proxy: &Proxy, timeout: Duration, keys: &[String]) -> LockManager {
    let manager = impatient(&proxy.url(), timeout).await;
    many(&manager, keys).wait(LONG_TTL).run(async { Locked::Ok(()) }).await.expect("free");
    manager
}

fn is_too_slow(error: &LockError) -> bool {
    matches!(error, LockError::Unavailable { reason: UnavailableReason::TooSlow, .. })
}

#[on(slots)]
async fn the_lease_counts_from_before_the_first_key_was_asked_for(backend: &Backend) {
    let (proxy, keys) = (backend.proxy(), keys::<2>(backend));
    let manager = through(&proxy, LONG_TTL, &keys).await;
    let (ttl, start) = (ms(10_000), Instant::now());
    proxy.on_next("SET", Fault::DelayReply(ms(600)));
    let guard = many(&manager, &keys).ttl(ttl).acquire().await.expect("free");
    assert!(proxy.orders_are_done());
    let believed = start.elapsed() + guard.remaining();
    assert!(believed < ttl, "{believed:?}");
    guard.release().await.expect("still held");
}

#[on(slots)]
async fn keys_that_came_too_slowly_are_released(backend: &Backend) {
    let (proxy, keys) = (backend.proxy(), keys::<3>(backend));
    let manager = through(&proxy, LONG_TTL, &keys).await;
    for _ in 0..2 {
        proxy.on_next("SET", Fault::DelayReply(ms(1_100)));
    }
    let lock = many(&manager, &keys).ttl(ms(2_000));
    let error = lock.acquire().await.expect_err("the first is over already");
    assert!(proxy.orders_are_done() && is_too_slow(&error), "{error}");
}

#[on(slots)]
async fn a_wait_ends_in_time_where_each_key_takes_long(backend: &Backend) {
    let (proxy, keys) = (backend.proxy(), keys::<24>(backend));
    let manager = through(&proxy, ms(4_000), &keys).await;
    // An answer is given a second: so much for what it waits, and as much for the last requests.
    proxy.delay(ms(600));
    let start = Instant::now();
    let error = many(&manager, &keys).wait(ms(100)).acquire().await.expect_err("no time");
    assert!(matches!(error, LockError::TimedOut { .. }), "{error}");
    // For all of them it would be 14 s and more.
    assert!(start.elapsed() < ms(12_000), "after {:?}", start.elapsed());
    proxy.delay(ms(0));
}

/// Answers come so slowly that renewals are due long before all keys are held, and every renewal
/// takes longer than the next key.
#[on(slots)]
async fn free_keys_of_many_slots_are_held_while_the_others_are_requested(backend: &Backend) {
    let keys: Vec<_> = (0..64).map(|nth| backend.key(&format!("order:{nth}"))).collect();
    let proxy = backend.proxy();
    let manager = through(&proxy, LONG_TTL, &keys).await;
    for key in &keys {
        // A request that joins the key's queue names the queue; a renewal names the key alone.
        proxy.on_next(&queue_of(key), Fault::DelayReply(ms(40)));
    }
    let mut admin = backend.admin().expect("a server");
    let (before, start, ttl) = (admin.count(&["evalsha"]), Instant::now(), ms(2_500));
    let waiter = many(&manager, &keys).ttl(ttl).wait(LONG_TTL).acquire();
    let guard = timeout(LONG_TTL, waiter).await.expect("in time").expect("free");
    // Each is asked for and confirmed, and renewed no oftener than each third of the ttl, less the
    // tenth by which that varies.
    let between = (ttl / 3).mul_f64(0.9);
    let times = u64::try_from(start.elapsed().as_millis() / between.as_millis()).expect("few");
    let calls = admin.count(&["evalsha"]) - before;
    assert!(calls <= (2 + times + 1) * 64, "{calls} calls where each may be renewed {times} times");
    guard.release().await.expect("still held");
}

#[tokio::test]
async fn a_waiter_that_meets_a_key_that_is_no_lock_releases_the_keys_before_it() {
    let backend = Backend::slots().await;
    let (manager, keys) = (backend.manager().await, keys::<3>(&backend));
    let mut admin = backend.admin().expect("a server");
    admin.ask::<()>(&["RPUSH", &keys[2], "a list"]);
    for wait in [None, Some(LONG_TTL)] {
        let lock = many(&manager, &keys);
        let lock = if let Some(wait) = wait { lock.wait(wait) } else { lock };
        let error = lock.acquire().await.expect_err("no lock");
        assert!(matches!(error, LockError::KeyNotALock { .. }), "{error}");
        assert_eq!(busy_key(&error), keys[2]);
        become_free(&backend, &keys[..2]).await;
    }
}

#[on(slots)]
async fn a_release_does_what_it_can(backend: &Backend) {
    let keys = keys::<3>(backend);
    let mut admin = backend.admin().expect("a server");
    admin.ask::<()>(&["ACL", "SETUSER", "shop", "on", ">pw", "~*", "&*", "+@all"]);
    let manager = LockManager::connect(&backend.url().replace("//", "//shop:pw@")).await;
    let manager = manager.expect("there");
    for denied in &keys {
        let guard = many(&manager, &keys).acquire().await.expect("free");
        admin.ask::<()>(&["ACL", "SETUSER", "shop", "resetkeys", "~lm1:*"]);
        for key in keys.iter().filter(|key| *key != denied) {
            admin.ask::<()>(&["ACL", "SETUSER", "shop", &format!("~{key}")]);
        }
        let error = guard.release().await.expect_err("denied");
        assert!(matches!(error, LockError::AccessDenied { .. }), "{error}");
        assert_eq!(admin.keys(), [denied.as_str()], "released before the error is returned");
        admin.ask::<()>(&["DEL", denied]);
        admin.ask::<()>(&["ACL", "SETUSER", "shop", "allkeys"]);
    }
}

/// The request for the first key is answered only the second time; the first one arrives when the
/// key was released, because another one is busy.
#[on(slots)]
async fn a_late_request_for_a_key_that_was_released_leaves_no_key(backend: &Backend) {
    let (proxy, keys) = (backend.proxy(), keys::<2>(backend));
    let (ours, theirs) = (through(&proxy, ms(1_200), &keys).await, backend.manager().await);
    let busy = lock(&theirs, &keys[1]).acquire().await.expect("free");
    proxy.on_next("SET", Fault::HoldCommand(ms(2_000)));
    let error = many(&ours, &keys).acquire().await.expect_err("busy");
    assert_eq!(busy_key(&error), keys[1]);
    proxy.held_commands_arrive().await;
    eventually("the first key is free", IN_TIME, || backend.is_free(&keys[0])).await;
    busy.release().await.expect("still held");
}
