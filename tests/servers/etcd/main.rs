//! Locks in etcd: what its servers can do to them, and what the caller is told.

mod bodies;
mod cluster;
mod conforms;
mod entering;
mod leases;
mod network;
mod waits;

use std::time::Duration;

use lockmacro_etcd::{EtcdOptions, EtcdStore};
use lockmacro_runtime::store::{AcquireRequest, HeldKey, LockStore as _, Outcome};
use lockmacro_runtime::{Fence, Lock, LockError, LockGuard, LockManager};
use lockmacro_tests::Etcd;
use lockmacro_tests::times::LONG_TTL;

type Locked<T> = Result<T, LockError>;

/// The shortest ttl of etcd.
const SHORT_TTL: Duration = Duration::from_secs(2);
/// etcd looks for leases that are over every half second; and what a loaded machine adds.
const EXPIRED: Duration = Duration::from_secs(5);

/// A node on its own has all the time for its answers, as one that a busy machine delays would leave
/// a lease.
fn options(etcd: &Etcd) -> EtcdOptions {
    let options = EtcdOptions::default();
    if etcd.endpoints().len() == 1 { options.timeout(LONG_TTL) } else { options }
}

/// A store that asks all nodes.
async fn store(etcd: &Etcd) -> EtcdStore {
    EtcdStore::connect(etcd.endpoints(), options(etcd)).await.expect("etcd is there")
}

/// A manager of its own, as another process would have it.
async fn manager(etcd: &Etcd) -> LockManager {
    lockmacro_etcd::connect(etcd.endpoints(), options(etcd)).await.expect("etcd is there")
}

/// Acquires a lock with a fence.
async fn fenced(lock: &Lock) -> Locked<(LockGuard, Fence)> {
    let guard = lock.clone().fenced().acquire().await?;
    let fence = guard.fence().expect("it is fenced");
    Ok((guard, fence))
}

/// What a store answers to a token that asks for a key.
async fn ask(store: &EtcdStore, key: &str, token: &str, ttl: Duration) -> Outcome {
    store.acquire(AcquireRequest::new(key, token, ttl)).await.expect("an answer")
}

/// The fence of a grant.
fn fence(outcome: &Outcome) -> u64 {
    match outcome {
        Outcome::Granted { fence, .. } => fence.expect("every grant has one"),
        held => panic!("not granted: {held:?}"),
    }
}

/// Releases a key of a token.
async fn release(store: &EtcdStore, key: &str, token: &str) -> bool {
    store.release(HeldKey::new(key, token), Duration::ZERO).await.expect("an answer")
}
