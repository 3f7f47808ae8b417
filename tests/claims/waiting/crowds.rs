//! Dead waiters in the queue, more of them than one script skips.

use lockmacro_runtime::LockError;
use lockmacro_tests::queue::{FAR, Queue};
use lockmacro_tests::{Server, eventually};
use tokio::time::timeout;

use crate::{
    CONFIRM_WINDOW, Held, KEY, LONG_TTL, POLLED, PUSHED, keeps_only_fences, lock, manager, ms,
    waiting,
};

#[tokio::test]
async fn a_living_waiter_behind_a_thousand_dead_is_served_soon() {
    let server = Server::start();
    let Held { theirs, mut queue, guard, .. } = Held::at(&server).await;
    queue.crowd(1_000, FAR);
    let waiter = queue.join(waiting(&theirs, KEY).acquire()).await;
    guard.release().await.expect("held");
    let guard = timeout(POLLED + PUSHED, waiter).await.expect("in time").expect("served");
    guard.release().await.expect("held");
    keeps_only_fences(&server, PUSHED).await;
}

#[tokio::test]
async fn a_lock_that_only_dead_ones_wait_for_is_free() {
    let server = Server::start();
    let ours = manager(&server).await;
    let mut queue = Queue::at(&server, KEY);
    queue.crowd(1_000, FAR);
    let guard = lock(&ours, KEY).fenced().acquire().await.expect("nobody holds it");
    guard.release().await.expect("held");
    queue.crowd(1_000, FAR);
    let several = lockmacro_runtime::Lock::many(["order:41", KEY]).ttl(LONG_TTL).manager(&ours);
    several.acquire().await.expect("nobody holds them").release().await.expect("held");
    keeps_only_fences(&server, PUSHED).await;
}

#[tokio::test]
async fn lapsed_waiters_do_not_fill_the_queue() {
    let server = Server::start();
    let Held { theirs, mut queue, guard, .. } = Held::at(&server).await;
    queue.crowd(10_000, 1_000);
    let error = waiting(&theirs, KEY).wait(ms(100)).acquire().await.expect_err("held");
    assert!(matches!(error, LockError::TimedOut { .. }), "{error:?}");
    assert!(queue.length() < Some(10_000));
    queue.disperse();
    guard.release().await.expect("held");
    keeps_only_fences(&server, PUSHED).await;
}

/// The release of a leaving waiter is tried for as long as its lease in the queue, not only for its
/// short ttl.
#[tokio::test]
async fn a_waiter_that_is_dropped_during_a_short_outage_leaves_the_queue() {
    let server = Server::start();
    let Held { theirs, mut queue, guard: _guard, .. } = Held::at(&server).await;
    let mut waiter = queue.join(waiting(&theirs, KEY).ttl(ms(200)).acquire()).await;
    timeout(ms(200), &mut waiter).await.expect_err("held");
    server.pause();
    drop(waiter);
    // Longer than its ttl and an answer that does not come.
    tokio::time::sleep(ms(1_500)).await;
    server.resume();
    // Before the lease in the queue would lapse.
    let left = || std::future::ready(queue.length() == Some(0));
    eventually("it left the queue", CONFIRM_WINDOW + PUSHED, left).await;
}
