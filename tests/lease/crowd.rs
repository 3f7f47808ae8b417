//! Thousands of leases of one manager, none of which is missed.

use std::time::{Duration, Instant};

use lockmacro_runtime::{LockGuard, LockManager};
use lockmacro_tests::Backend;

use crate::{SOON, on_memory_and_redis, renewed};

on_memory_and_redis!(ten_thousand_leases_are_renewed);

const LEASES: usize = 10_000;
const TTL: Duration = Duration::from_secs(9);

async fn ten_thousand_leases_are_renewed(backend: &Backend) {
    let manager = backend.manager_from(LockManager::builder().timeout(4 * SOON)).await;
    let mut guards: Vec<LockGuard> = Vec::new();
    // In hundreds: the time until an answer is not what is looked at here.
    for hundred in 0..LEASES / 100 {
        let keys = (0..100).map(|nth| backend.key(&format!("order:{hundred}-{nth}")));
        let locks = keys.map(|key| {
            let lock = renewed(&manager, &key, TTL);
            async { lock.acquire().await.expect("free") }
        });
        guards.extend(futures::future::join_all(locks).await);
    }
    let start = Instant::now();
    let mut least = TTL;
    while start.elapsed() < TTL * 4 / 3 {
        tokio::time::sleep(TTL / 20).await;
        let now = guards.iter().map(LockGuard::remaining).min().expect("there are some");
        least = least.min(now);
    }
    let lost = guards.iter().filter(|guard| !guard.is_held()).count();
    assert_eq!(lost, 0, "of {LEASES}");
    // Renewed at a third of the ttl, most of the rest is there at any time.
    assert!(least > TTL / 4, "{least:?}");
    for hundred in 0..LEASES / 100 {
        let released = guards.split_off(guards.len() - 100).into_iter().map(LockGuard::release);
        for released in futures::future::join_all(released).await {
            released.unwrap_or_else(|error| panic!("{hundred}: {error}"));
        }
    }
}
