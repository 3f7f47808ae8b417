//! More waiters than a queue takes.

use std::time::{Duration, Instant};

use futures::stream::{FuturesUnordered, StreamExt as _};
use lockmacro_runtime::{LockError, LockManager};
use lockmacro_tests::queue::{FAR, Queue};
use lockmacro_tests::{Backend, Server, in_time};

use crate::{KEY, LONG_TTL, Locked, keeps_only_fences, lock, served, waiting};

const LONGEST: usize = 10_000;

/// Fills the queue of a process, has one caller come too late and one leave, and drops the others.
async fn fill(ours: LockManager, key: &str) {
    let guard = lock(&ours, key).ttl(10 * LONG_TTL).acquire().await.expect("free");
    let mut waiters: FuturesUnordered<_> =
        (0..LONGEST).map(|_| waiting(&ours, key).acquire()).collect();
    let polled = futures::poll!(waiters.next());
    assert!(polled.is_pending(), "not in the queue: {polled:?}");
    let start = Instant::now();
    let error = waiting(&ours, key).acquire().await.expect_err("there is no place");
    assert!(matches!(&error, LockError::QueueFull { key: full, .. } if full.as_str() == key));
    assert!(error.is_busy());
    assert!(error.to_string().contains(key), "{error}");
    assert!(start.elapsed() < LONG_TTL / 12, "after {:?}", start.elapsed());
    let skipped: Option<u32> = waiting(&ours, key).skip_when_busy().run(async { Some(7) }).await;
    assert_eq!(skipped, None);
    let once: Locked<_> = lock(&ours, key).acquire().await;
    assert!(matches!(once, Err(LockError::Busy { .. })), "{once:?}");
    // One is served, and there is a place again.
    guard.release().await.expect("still held");
    let first = waiters.next().await.expect("ten thousand").expect("served");
    let mut last = Box::pin(waiting(&ours, key).acquire());
    assert!(futures::poll!(&mut last).is_pending());
    drop(waiters);
    first.release().await.expect("still held");
    served(LONG_TTL / 4, last).await;
}

#[tokio::test]
async fn a_full_line_of_a_process_is_reported() {
    for backend in [Backend::memory(), Backend::redis()] {
        let (key, ours) = (backend.key("full"), backend.manager().await);
        in_time(fill(ours, &key)).await;
        backend.becomes_free(&key, Duration::from_secs(5)).await;
    }
}

/// Every caller of a process that finds no place for it.
#[tokio::test]
async fn a_full_queue_of_a_server_is_reported() {
    let server = Server::start();
    let (ours, theirs) = (crate::manager(&server).await, crate::manager(&server).await);
    let mut queue = Queue::at(&server, KEY);
    let guard = lock(&ours, KEY).acquire().await.expect("free");
    queue.crowd(LONGEST, FAR);
    let waits = (0..3).map(|_| waiting(&theirs, KEY).acquire());
    for refused in in_time(futures::future::join_all(waits)).await {
        assert!(matches!(refused, Err(LockError::QueueFull { .. })), "{refused:?}");
    }
    queue.disperse();
    let next = queue.join(waiting(&theirs, KEY).acquire()).await;
    guard.release().await.expect("still held");
    served(LONG_TTL / 4, next).await;
    keeps_only_fences(&server, LONG_TTL / 4).await;
}
