//! Processes that draw the same random numbers.

use lockmacro_runtime::{Lock, LockManager};
use lockmacro_tests::Server;
use lockmacro_tests::queue::Queue;
use tokio::time::timeout;

use crate::{KEY, PUSHED, lock, manager, ms};

/// The application may seed them, in every process alike.
#[tokio::test]
async fn two_that_seed_alike_do_not_take_each_others_grants() {
    let server = Server::start();
    let ours = manager(&server).await;
    let guard = lock(&ours, KEY).acquire().await.expect("free");
    let mut queue = Queue::at(&server, KEY);
    let mut waiters = Vec::new();
    for _ in 0..2 {
        fastrand::seed(42);
        let manager = LockManager::connect(&server.url()).await.expect("there");
        // Short enough to be handed off as a whole, and not to be confirmed.
        let short = Lock::new(KEY).ttl(ms(5_000)).manager(&manager).wait_forever();
        waiters.push(tokio::spawn(queue.join(short.acquire()).await));
    }
    let [first, mut second] = <[_; 2]>::try_from(waiters).expect("two");
    guard.release().await.expect("held");
    let first = timeout(PUSHED, first).await.expect("served").expect("no panic").expect("served");
    timeout(ms(300), &mut second).await.expect_err("two hold it");
    first.release().await.expect("held");
    let second = timeout(PUSHED, second).await.expect("served").expect("no panic").expect("served");
    second.release().await.expect("held");
}
