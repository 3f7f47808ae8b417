//! Waiters of the process that gives the lock back: they are told by the answer to its release.

use std::pin::pin;

use futures::poll;
use lockmacro_runtime::Lock;
use lockmacro_tests::{Server, eventually};

use crate::line::Line;
use crate::{KEY, LONG, SOON, keeps_only_fences, lock, manager, served, waiting};

/// How often the server was asked to publish a message.
fn messages(server: &Server) -> u64 {
    let calls = server.admin().calls();
    calls.iter().find(|(name, _)| name == "publish").map_or(0, |(_, count)| *count)
}

#[tokio::test]
async fn a_hand_over_within_a_process_takes_no_message() {
    let server = Server::start();
    let (ours, theirs) = (manager(&server).await, manager(&server).await);
    for (next, takes) in [(&ours, 0), (&theirs, 1)] {
        let guard = lock(&ours, KEY).acquire().await.expect("free");
        let next = Line::at(&server, KEY).join(waiting(next, KEY).acquire()).await;
        server.admin().forget_calls();
        guard.release().await.expect("still held");
        served(SOON, next).await;
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
        let next = Lock::new(KEY).ttl(LONG).wait_forever().manager(&manager).acquire_fenced();
        let next = Line::at(&server, KEY).join(next).await;
        guard.release().await.expect("still held");
        let (given, fence) = next.await.expect("served");
        assert!(Some(fence) > last && given.fence() == Some(fence));
        (guard, last) = (given, Some(fence));
    }
}

#[tokio::test]
async fn a_release_that_is_dropped_before_its_answer_has_the_next_one_ask() {
    let server = Server::start();
    let manager = manager(&server).await;
    // Who would have waited gives back by one command, which the server knows from then on.
    served(SOON, waiting(&manager, KEY).acquire()).await;
    let first = waiting(&manager, KEY).acquire().await.expect("free");
    let next = Line::at(&server, KEY).join(waiting(&manager, KEY).acquire()).await;
    let mut admin = server.admin();
    let held = admin.get(KEY);
    {
        let mut release = pin!(first.release());
        assert!(poll!(release.as_mut()).is_pending());
        let handed_over = || std::future::ready(admin.get(KEY) != held);
        eventually("the lock is handed over", LONG / 4, handed_over).await;
        // The answer is there, and nobody will look at it.
    }
    served(SOON, next).await;
    keeps_only_fences(&server, LONG).await;
}
