//! Waiters of the manager that releases the lock: they have it without a command.

use std::pin::pin;

use futures::poll;
use lockmacro_runtime::{Lock, LockError, LockManager};
use lockmacro_tests::Server;
use lockmacro_tests::times::SOON;
use tokio::time::timeout;

use crate::queue::Queue;
use crate::{KEY, LONG_TTL, PUSHED, keeps_only_fences, lock, manager, ms, served, waiting};

/// How many commands the server was sent.
fn commands(server: &Server) -> u64 {
    let calls = server.admin().calls();
    let of_locks = |name: &str| ["set", "evalsha", "eval", "publish"].contains(&name);
    calls.iter().filter(|(name, _)| of_locks(name)).map(|(_, count)| count).sum()
}

#[tokio::test]
async fn a_pass_takes_no_command() {
    let server = Server::start();
    let builder = LockManager::builder().turn(ms(1_000));
    let manager = builder.connect(&server.url()).await.expect("there");
    let guard = lock(&manager, KEY).acquire().await.expect("free");
    let mut waiters = Vec::new();
    for _ in 0..5 {
        waiters.push(Queue::at(&server, KEY).join(waiting(&manager, KEY).acquire()).await);
    }
    let last = waiters.pop().expect("five");
    server.admin().forget_calls();
    guard.release().await.expect("still held");
    for waiter in waiters {
        served(PUSHED, waiter).await;
    }
    let last = last.await.expect("served");
    assert_eq!(commands(&server), 0);
    last.release().await.expect("still held");
    // The release, which may have to bring its script.
    assert!(commands(&server) <= 2);
    keeps_only_fences(&server, LONG_TTL).await;
}

#[tokio::test]
async fn without_a_turn_every_release_goes_to_the_server() {
    let server = Server::start();
    let manager = LockManager::connect(&format!("{}?turn=0s", server.url())).await.expect("there");
    let guard = lock(&manager, KEY).acquire().await.expect("free");
    let next = Queue::at(&server, KEY).join(waiting(&manager, KEY).acquire()).await;
    server.admin().forget_calls();
    guard.release().await.expect("still held");
    assert!(commands(&server) >= 1, "it was released");
    served(PUSHED, next).await;
    keeps_only_fences(&server, LONG_TTL).await;
}

#[tokio::test]
async fn a_call_that_does_not_wait_is_refused_without_a_command() {
    let server = Server::start();
    let (ours, theirs) = (manager(&server).await, manager(&server).await);
    let guard = lock(&ours, KEY).name("first").acquire().await.expect("free");
    // Behind the holder, and behind a waiter of the same process.
    let waiter = Queue::at(&server, KEY).join(waiting(&theirs, KEY).acquire()).await;
    for manager in [&ours, &theirs] {
        server.admin().forget_calls();
        let refused = lock(manager, KEY).acquire().await.expect_err("it is held");
        assert_eq!(commands(&server), 0);
        assert!(matches!(refused, LockError::Busy { .. }), "{refused:?}");
        assert!(refused.owner().is_some_and(|owner| owner.ends_with(":first")), "{refused:?}");
        assert!(refused.free_within() > Some(LONG_TTL / 2), "{refused:?}");
    }
    guard.release().await.expect("still held");
    served(PUSHED, waiter).await;
    assert!(lock(&ours, KEY).acquire().await.is_ok(), "nobody has it any more");
}

#[tokio::test]
async fn a_fence_grows_from_one_holder_to_the_next() {
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
    // A turn of no time: the release is sent.
    let manager = LockManager::connect(&format!("{}?turn=0s", server.url())).await.expect("there");
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
async fn a_lock_that_was_passed_on_may_be_extended_beyond_its_ttl() {
    let server = Server::start();
    let manager = LockManager::builder().turn(ms(1_000)).connect(&server.url()).await;
    let manager = manager.expect("there");
    let guard = lock(&manager, KEY).acquire().await.expect("free");
    let waiter = waiting(&manager, KEY).acquire();
    let next = Queue::at(&server, KEY).join(waiter).await;
    server.admin().forget_calls();
    guard.release().await.expect("still held");
    let next = timeout(SOON, next).await.expect("in time").expect("served");
    assert_eq!(commands(&server), 0, "it was passed on");
    next.extend(4 * LONG_TTL).await.expect("still held");
    assert!(next.remaining() > 3 * LONG_TTL, "{:?}", next.remaining());
    next.release().await.expect("still held");
}
