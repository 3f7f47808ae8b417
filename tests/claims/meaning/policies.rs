//! `policy`: settings of many functions in one constant, which the arguments of a function win
//! over.

use std::time::Duration;

use lockmacro_runtime::{LockError, LockManager, LockPolicy, distributed_lock};
use lockmacro_tests::{Backend, in_time, on};

use crate::{LONG_TTL, Locked, TEST_TIMEOUT, lock, ms};

const ORDERS: LockPolicy = LockPolicy::new().ttl(LONG_TTL).renew().wait(TEST_TIMEOUT);

#[distributed_lock(key = key, policy = ORDERS, guard = lock, manager = manager)]
async fn audit(manager: LockManager, key: String) -> Locked<Duration> {
    Ok(lock.remaining())
}

#[distributed_lock(
    key = key, policy = ORDERS, ttl = "30s", wait = never, guard = lock, manager = manager
)]
async fn assign(manager: &LockManager, key: &str) -> Locked<Duration> {
    Ok(lock.remaining())
}

#[distributed_lock(
    key = [key, &format!("{key}:b")], policy = ORDERS, guard = lock, manager = manager
)]
async fn both(manager: &LockManager, key: &str) -> Locked<Duration> {
    Ok(lock.remaining())
}

#[on(memory, redis, cluster, redlock, postgres)]
async fn a_lease_is_that_of_the_policy_or_of_the_argument(backend: &Backend) {
    let (manager, key) = (backend.manager().await, backend.key("order:42"));
    let of_policy = audit(manager.clone(), key.clone()).await.expect("free");
    assert!(of_policy > ms(50_000) && of_policy <= LONG_TTL, "{of_policy:?}");
    let own = assign(&manager, &key).await.expect("free");
    assert!(own > ms(20_000) && own <= ms(30_000), "{own:?}");
    let both = both(&manager, &backend.key("{order}")).await.expect("free");
    assert!(both > ms(50_000) && both <= LONG_TTL, "{both:?}");
}

#[on(memory, redis, slots, cluster, redlock, postgres)]
async fn a_call_waits_as_its_policy_says(backend: &Backend) {
    let (manager, rival, key) = backend.two_managers("order:42").await;
    let held = lock(&rival, &key).acquire().await.expect("free");
    assert!(matches!(assign(&manager, &key).await, Err(LockError::Busy { .. })));
    let mut waiting = tokio::spawn(audit(manager.clone(), key.clone()));
    tokio::time::timeout(ms(50), &mut waiting).await.expect_err("it waits");
    held.release().await.expect("released");
    assert!(in_time(waiting).await.expect("no panic").is_ok());
}

const JOBS: LockPolicy = LockPolicy::new().ttl(LONG_TTL).min_hold(ms(1_500));

#[distributed_lock(key = key, policy = JOBS, on_busy = skip, manager = manager)]
async fn job(manager: &LockManager, key: &str) -> Option<u32> {
    Some(7)
}

#[on(memory, redis, redlock, postgres)]
async fn a_key_is_kept_as_its_policy_says(backend: &Backend) {
    let (manager, other, key) = backend.two_managers("job").await;
    assert_eq!(job(&manager, &key).await, Some(7));
    assert_eq!(job(&other, &key).await, None);
    backend.becomes_free(&key, TEST_TIMEOUT).await;
}

#[on(memory, redis, postgres)]
async fn by_hand_what_follows_a_policy_wins(backend: &Backend) {
    let (manager, rival, key) = backend.two_managers("order:42").await;
    let held = lock(&rival, &key).policy(ORDERS).ttl(ms(30_000)).acquire().await.expect("free");
    assert!(held.remaining() <= ms(30_000), "{:?}", held.remaining());
    let late = lock(&manager, &key).policy(ORDERS).wait(ms(20)).acquire().await;
    assert!(matches!(late, Err(LockError::TimedOut { .. })), "{late:?}");
    held.release().await.expect("released");
}
