//! Thousands of leases of one manager, none of which is missed.

use std::time::{Duration, Instant};

use lockmacro_runtime::{LockGuard, LockManager};
use lockmacro_tests::{Backend, on};

use crate::{LONG_TTL, renewed};

const LEASES: usize = 10_000;

/// In hundreds: the time until an answer is not what is looked at here.
async fn acquire_all(backend: &Backend, manager: &LockManager, ttl: Duration) -> Vec<LockGuard> {
    let mut guards = Vec::new();
    for hundred in 0..LEASES / 100 {
        let keys = (0..100).map(|nth| backend.key(&format!("order:{hundred}-{nth}")));
        let locks = keys.map(|key| {
            let lock = renewed(manager, &key, ttl);
            async move { lock.acquire().await.expect("free") }
        });
        guards.extend(futures::future::join_all(locks).await);
    }
    guards
}

async fn release_all(mut guards: Vec<LockGuard>) {
    for hundred in 0..LEASES / 100 {
        let released = guards.split_off(guards.len() - 100).into_iter().map(LockGuard::release);
        for released in futures::future::join_all(released).await {
            released.unwrap_or_else(|error| panic!("{hundred}: {error}"));
        }
    }
}

#[on(memory, redis, postgres)]
async fn ten_thousand_leases_are_renewed(backend: &Backend) {
    let manager = backend.manager().await;
    // A machine that takes long for so many requests takes long for as many renewals.
    let start = Instant::now();
    release_all(acquire_all(backend, &manager, LONG_TTL * 60).await).await;
    let ttl = (6 * start.elapsed()).max(Duration::from_secs(12));
    let guards = acquire_all(backend, &manager, ttl).await;
    let start = Instant::now();
    let mut before: Vec<Duration> = guards.iter().map(LockGuard::remaining).collect();
    let mut renewals = vec![0; LEASES];
    while renewals.iter().any(|times| *times < 2) {
        tokio::time::sleep(ttl / 40).await;
        for ((guard, before), times) in guards.iter().zip(&mut before).zip(&mut renewals) {
            let now = guard.remaining();
            *times += u32::from(now > *before);
            *before = now;
        }
        let lost = before.iter().filter(|left| left.is_zero()).count();
        assert_eq!(lost, 0, "of {LEASES}");
        // At a third of the ttl each, with time to spare for a loaded machine.
        assert!(
            start.elapsed() < 2 * ttl,
            "the least were renewed {:?} times",
            renewals.iter().min()
        );
    }
    release_all(guards).await;
}
