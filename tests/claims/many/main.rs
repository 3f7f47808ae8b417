//! Locks on several keys, claim by claim: on `memory://`, on a Redis server, and on one that wants
//! the keys of a script in one slot; some also on a Redlock.

mod all_or_nothing;
mod attribute;
mod faults;
mod fences;
mod late;
mod leaving;
mod losses;
mod order;
mod outages;
mod reentry;
mod sets;
mod slots;
mod traffic;
mod transfers;
mod waits;

use std::pin::Pin;
use std::time::{Duration, Instant};

use lockmacro_runtime::{Lock, LockError, LockGuard, LockKey, LockManager};
use lockmacro_tests::times::{CONFIRM_WINDOW, IN_TIME, LONG_TTL, ms};
use lockmacro_tests::{Admin, Backend, eventually};
use tokio::time::timeout;

type Locked<T> = Result<T, LockError>;

/// A lock on one key.
fn lock(manager: &LockManager, key: &str) -> Lock {
    Lock::new(key).ttl(LONG_TTL).manager(manager)
}

/// A lock on several.
fn many<K: Into<LockKey>>(manager: &LockManager, keys: impl IntoIterator<Item = K>) -> Lock {
    Lock::many(keys).ttl(LONG_TTL).manager(manager)
}

/// Keys in the order of their bytes, `order:a` and so on, in several slots.
fn keys<const N: usize>(backend: &Backend) -> [String; N] {
    std::array::from_fn(|nth| backend.key(&format!("order:{}", char::from(b'a' + nth as u8))))
}

/// Managers of two processes, and keys of the test.
async fn two_managers<const N: usize>(
    backend: &Backend,
) -> (LockManager, LockManager, [String; N]) {
    (backend.manager().await, backend.manager().await, keys(backend))
}

/// A manager that waits for an answer of the server behind `url` for this long.
async fn impatient(url: &str, timeout: Duration) -> LockManager {
    LockManager::builder().timeout(timeout).connect(url).await.expect("the server is there")
}

/// Which of the keys another process would get now.
async fn free(backend: &Backend, keys: &[String]) -> Vec<bool> {
    let mut free = Vec::new();
    for key in keys {
        free.push(backend.is_free(key).await);
    }
    free
}

/// Waits until another process would get each of the keys.
async fn become_free(backend: &Backend, keys: &[String]) {
    for key in keys {
        // A request that has arrived late is released for the last time after 6 s.
        backend.becomes_free(key, LONG_TTL).await;
    }
}

/// The key that an error is about.
fn busy_key(error: &LockError) -> &str {
    match error {
        LockError::Busy { key, .. }
        | LockError::TimedOut { key, .. }
        | LockError::KeyNotALock { key, .. } => key.as_str(),
        other => panic!("not about a key: {other}"),
    }
}

/// Polls an acquisition until it holds `key`, while it waits for another one.
async fn until_it_holds<F>(backend: &Backend, key: &str, acquiring: F) -> Pin<Box<F>>
where
    F: Future<Output = Locked<LockGuard>>,
{
    let mut acquiring = Box::pin(acquiring);
    let start = Instant::now();
    loop {
        assert!(futures::poll!(&mut acquiring).is_pending(), "it does not have to wait");
        if !backend.is_free(key).await {
            return acquiring;
        }
        assert!(start.elapsed() < IN_TIME, "it does not hold {key}");
        tokio::time::sleep(ms(1)).await;
    }
}

/// Polls a caller, which gets nothing meanwhile, until a condition holds.
async fn waits_until<F>(claim: &str, waiter: &mut F, mut condition: impl FnMut() -> bool)
where
    F: Future + Unpin,
{
    let start = Instant::now();
    while !condition() {
        assert!(timeout(ms(5), &mut *waiter).await.is_err(), "served before {claim}");
        assert!(start.elapsed() < IN_TIME, "not in time: {claim}");
    }
}

/// Awaits a waiter that must be served, and releases its lock.
async fn served(waiter: impl Future<Output = Locked<LockGuard>>) {
    let guard = timeout(IN_TIME, waiter).await.expect("in time").expect("served");
    guard.release().await.expect("still held");
}

/// Waits until the server has `count` keys.
async fn has_keys(admin: &mut Admin, count: usize) {
    let there = || std::future::ready(admin.keys().len() == count);
    eventually("that many keys", IN_TIME, there).await;
}
