//! More waiters than a queue takes.

use std::time::{Duration, Instant};

use futures::stream::{FuturesUnordered, StreamExt as _};
use lockmacro_runtime::{LockError, LockManager};
use lockmacro_tests::{Backend, Server, in_time};

use crate::queue::{FAR, Queue};
use crate::{KEY, LONG_TTL, Locked, keeps_only_fences, lock, ms, served, waiting};

const LONGEST: usize = 10_000;

/// Fills what is left of the queue, has one come too late and one go, and drops the others.
async fn fill(ours: LockManager, key: &str, mut queue: Queue, left: usize) {
    let guard = lock(&ours, key).ttl(10 * LONG_TTL).acquire().await.expect("free");
    let mut waiters: FuturesUnordered<_> =
        (0..left).map(|_| waiting(&ours, key).acquire()).collect();
    let full = async {
        while queue.length().is_some_and(|length| length < LONGEST) {
            tokio::time::sleep(ms(5)).await;
        }
    };
    tokio::select! {
        biased;
        Some(early) = waiters.next() => panic!("not in the queue: {early:?}"),
        () = full => {}
    }
    let start = Instant::now();
    let error = waiting(&ours, key).acquire().await.expect_err("there is no place");
    assert!(matches!(&error, LockError::QueueFull { key: told, .. } if told.as_str() == key));
    assert!(error.is_busy());
    assert!(error.to_string().contains(key), "{error}");
    assert!(start.elapsed() < LONG_TTL / 12, "after {:?}", start.elapsed());
    let skipped: Option<u32> = waiting(&ours, key).run_or_skip(async { Some(7) }).await;
    assert_eq!(skipped, None);
    let once: Locked<_> = lock(&ours, key).acquire().await;
    assert!(matches!(once, Err(LockError::Busy { .. })), "{once:?}");
    // One is served, and the queue has room again.
    guard.release().await.expect("still held");
    let first = waiters.next().await.expect("ten thousand").expect("served");
    let last = queue.join(waiting(&ours, key).acquire()).await;
    drop(waiters);
    queue.disperse();
    first.release().await.expect("still held");
    served(LONG_TTL / 4, last).await;
}

#[tokio::test]
async fn a_full_queue_of_the_memory_is_reported() {
    let backend = Backend::memory();
    let key = backend.key("full");
    let ours = backend.manager().await;
    in_time(fill(ours, &key, Queue::of(&backend, &key), LONGEST)).await;
    backend.becomes_free(&key, Duration::from_secs(5)).await;
}

#[tokio::test]
async fn a_full_queue_of_a_server_is_reported() {
    let server = Server::start();
    let ours = LockManager::connect(&server.url()).await.expect("the server is there");
    let mut queue = Queue::at(&server, KEY);
    let left = 50;
    queue.crowd(LONGEST - left, FAR);
    in_time(fill(ours, KEY, queue, left)).await;
    keeps_only_fences(&server, LONG_TTL / 4).await;
}
