//! Many callers of every mode at once, some of which are dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use lockmacro_runtime::{Lock, LockManager};
use lockmacro_tests::{Backend, on};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::{Locked, TEST_TIMEOUT, ms, waiting};

const TASKS: u64 = 60;
const ROUNDS: u64 = 12;
const PERMITS: i64 = 3;
/// What an exclusive holder counts for.
const WRITER: i64 = 1_000_000;

/// An independent count of the holders.
#[derive(Default)]
struct Holders(AtomicI64);

impl Holders {
    /// Enters as `weight` holders, beside at most `most` in all; leaves when it is dropped.
    fn enter(self: &Arc<Self>, weight: i64, most: i64) -> Inside {
        let now = self.0.fetch_add(weight, Ordering::SeqCst) + weight;
        assert!(now <= most, "{now} of {most}");
        Inside(Arc::clone(self), weight)
    }
}

struct Inside(Arc<Holders>, i64);

impl Drop for Inside {
    fn drop(&mut self) {
        self.0.0.fetch_sub(self.1, Ordering::SeqCst);
    }
}

/// Has many tasks of two managers hold a key in turn, in the modes that `nth` gives.
async fn crowd(backend: &Backend, mode: fn(Lock, u64) -> (Lock, i64, i64)) {
    let managers = [backend.manager().await, backend.manager().await];
    let (key, holders) = (backend.key("printer"), Arc::new(Holders::default()));
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let (manager, key) = (managers[(task % 2) as usize].clone(), key.clone());
        let holders = Arc::clone(&holders);
        tasks.spawn(async move { rounds(&manager, &key, &holders, task, mode).await });
    }
    while let Some(ended) = timeout(6 * TEST_TIMEOUT, tasks.join_next()).await.expect("stuck") {
        ended.expect("no panic");
    }
    assert_eq!(holders.0.load(Ordering::SeqCst), 0);
    backend.becomes_free(&key, TEST_TIMEOUT).await;
}

async fn rounds(
    manager: &LockManager,
    key: &str,
    holders: &Arc<Holders>,
    task: u64,
    mode: fn(Lock, u64) -> (Lock, i64, i64),
) {
    for round in 0..ROUNDS {
        let number = task * ROUNDS + round;
        let (lock, weight, most) = mode(waiting(manager, key), number);
        let body = async {
            let _inside = holders.enter(weight, most);
            tokio::time::sleep(ms(number % 3)).await;
            Locked::Ok(())
        };
        let run = lock.run(body);
        match number % 5 {
            // Gives up, before it is let in or inside of its body.
            0 => drop(timeout(ms(number % 40), run).await),
            _ => run.await.expect("served"),
        }
    }
}

#[on(memory, redis, cluster, postgres, both_runtimes)]
async fn there_are_never_more_holders_than_permits(backend: &Backend) {
    crowd(backend, |lock, _| (lock.permits(PERMITS as u32), 1, PERMITS)).await;
}

#[on(memory, redis, cluster, postgres, both_runtimes)]
async fn readers_and_writers_never_overlap(backend: &Backend) {
    let mode = |lock: Lock, number: u64| match number % 4 {
        0 => (lock, WRITER, WRITER),
        _ => (lock.shared(), 1, WRITER - 1),
    };
    crowd(backend, mode).await;
}
