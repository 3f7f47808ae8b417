//! Locks on a Redis Cluster: whichever node has a key, and while its slot moves or its node fails.

mod access;
mod failover;
mod moves;
mod routing;
mod rush;
mod waits;

use std::sync::atomic::{AtomicU32, Ordering};

use lockmacro_runtime::{Lock, LockError, LockManager};
use lockmacro_tests::times::{FAILOVER, FAILOVER_TTL, ms};
use lockmacro_tests::{Cluster, eventually, is_fence, queue_of};
use tokio::sync::OnceCell;

type Locked<T> = Result<T, LockError>;

/// Three primaries, for all tests that change nothing about them.
async fn shared() -> &'static Cluster {
    static SHARED: OnceCell<Cluster> = OnceCell::const_new();
    SHARED.get_or_init(|| Cluster::start(3, 0)).await
}

/// A key that no other test uses.
fn key(name: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("{name}:{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Keys of different slots, one on each of the first `nodes`.
fn a_key_on_each(cluster: &Cluster, nodes: usize) -> Vec<String> {
    let on = |nth| (0..).map(|_| key("of")).find(|key| cluster.owner(key) == nth).expect("endless");
    (0..nodes).map(on).collect()
}

async fn manager(cluster: &Cluster) -> LockManager {
    LockManager::connect(&cluster.url()).await.expect("the cluster is there")
}

fn lock(manager: &LockManager, key: &str) -> Lock {
    Lock::new(key).ttl(FAILOVER_TTL).manager(manager)
}

/// Waits until this many waiters are in the queue for a key.
async fn queue_reaches(cluster: &Cluster, key: &str, length: usize) {
    let mut admin = cluster.admin_of(key);
    eventually(&format!("{length} in the queue"), FAILOVER, || {
        std::future::ready(admin.ask::<usize>(&["ZCARD", &queue_of(key)]) == length)
    })
    .await;
}

/// Waits until nothing of a key is left anywhere but fences.
async fn keeps_nothing_of(cluster: &Cluster, key: &str) {
    let keeps_fence = |name: &str| is_fence(name) || name.starts_with("lm1:tf:");
    let is_left = |name: &String| name.contains(key) && !keeps_fence(name);
    eventually(&format!("nothing is left of {key}"), FAILOVER, || {
        std::future::ready(!cluster.keys().iter().any(is_left))
    })
    .await;
}
