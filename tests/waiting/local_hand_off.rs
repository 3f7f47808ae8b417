//! Waiters of the manager that releases the lock: the answer to the release is their grant.

use std::pin::pin;

use futures::poll;
use lockmacro_runtime::{Lock, LockManager};
use lockmacro_tests::{Fault, Proxy, Server};
use tokio::time::timeout;

use crate::queue::Queue;
use crate::{KEY, LONG_TTL, PUSHED, keeps_only_fences, lock, manager, served, waiting};

/// How often the server was asked to publish a message.
fn messages(server: &Server) -> u64 {
    let calls = server.admin().calls();
    calls.iter().find(|(name, _)| name == "publish").map_or(0, |(_, count)| *count)
}

#[tokio::test]
async fn a_hand_off_within_a_manager_takes_no_push() {
    let server = Server::start();
    let (ours, theirs) = (manager(&server).await, manager(&server).await);
    for (next, takes) in [(&ours, 0), (&theirs, 1)] {
        let guard = lock(&ours, KEY).acquire().await.expect("free");
        let next = Queue::at(&server, KEY).join(waiting(next, KEY).acquire()).await;
        server.admin().forget_calls();
        guard.release().await.expect("still held");
        served(PUSHED, next).await;
        assert_eq!(messages(&server), takes);
    }
}

#[tokio::test]
async fn a_fence_comes_with_the_answer_too() {
    let server = Server::start();
    let manager = manager(&server).await;
    let mut last = None;
    let mut guard = lock(&manager, KEY).acquire().await.expect("free");
    for _ in 0..3 {
        let next = Lock::new(KEY).ttl(LONG_TTL).wait_forever().manager(&manager).acquire_fenced();
        let next = Queue::at(&server, KEY).join(next).await;
        guard.release().await.expect("still held");
        let (given, fence) = timeout(PUSHED, next).await.expect("in time").expect("served");
        assert!(Some(fence) > last && given.fence() == Some(fence));
        (guard, last) = (given, Some(fence));
    }
}

#[tokio::test]
async fn a_release_that_nobody_polls_any_more_holds_up_nobody() {
    let server = Server::start();
    let manager = manager(&server).await;
    // A holder that would have waited releases by one command, which the server then knows.
    served(PUSHED, waiting(&manager, KEY).acquire()).await;
    let first = waiting(&manager, KEY).acquire().await.expect("free");
    let next = Queue::at(&server, KEY).join(waiting(&manager, KEY).acquire()).await;
    let mut release = pin!(first.release());
    assert!(poll!(release.as_mut()).is_pending());
    served(PUSHED, next).await;
    release.await.expect("it was held");
    keeps_only_fences(&server, LONG_TTL).await;
}

#[tokio::test]
async fn an_answer_that_is_lost_has_the_next_one_ask() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let manager = LockManager::connect(&proxy.url()).await.expect("the server is there");
    served(PUSHED, waiting(&manager, KEY).acquire()).await;
    let first = waiting(&manager, KEY).acquire().await.expect("free");
    let next = Queue::at(&server, KEY).join(waiting(&manager, KEY).acquire()).await;
    // The next request is of the waiter whose turn it is.
    proxy.on_next("EVALSHA", Fault::LoseReply);
    let release = tokio::spawn(first.release());
    served(PUSHED, next).await;
    // It was not told whether it was held.
    let told = release.await.expect("no panic");
    assert!(told.is_err_and(|error| error.is_unavailable()));
    keeps_only_fences(&server, LONG_TTL).await;
}
