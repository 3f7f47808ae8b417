//! Servers that do not let us publish or listen: waiting is slower then, and works.

use std::time::Duration;

use lockmacro_runtime::LockManager;
use lockmacro_tests::Server;
use lockmacro_tests::queue::Queue;

use crate::{KEY, POLLED, PUSHED, keeps_only_fences, lock, ms, served, waiting};

/// A server with a user who has the rights given, and two managers of that user.
async fn with_user(rights: &[&str]) -> (Server, LockManager, LockManager) {
    let server = Server::start();
    let mut words = vec!["ACL", "SETUSER", "clerk", "reset", "on", ">secret"];
    words.extend(rights);
    server.admin().ask::<()>(&words);
    let url = server.url_as("clerk", "secret");
    let ours = LockManager::connect(&url).await.expect("let in");
    let theirs = LockManager::connect(&url).await.expect("let in");
    (server, ours, theirs)
}

/// Has five waiters, served within five times `each`.
async fn everybody_is_served(rights: &[&str], each: Duration) -> Server {
    let (server, ours, theirs) = with_user(rights).await;
    let mut queue = Queue::at(&server, KEY);
    let guard = lock(&ours, KEY).acquire().await.expect("free");
    let mut waiters = Vec::new();
    for nth in 0..5 {
        let manager = if nth % 2 == 0 { &theirs } else { &ours };
        let waiter = queue.join(waiting(manager, KEY).acquire()).await;
        waiters.push(tokio::spawn(served(5 * each, waiter)));
    }
    let error = lock(&theirs, KEY).wait(ms(50)).acquire().await.expect_err("held");
    assert!(matches!(error, lockmacro_runtime::LockError::TimedOut { .. }), "{error:?}");
    guard.release().await.expect("still held");
    for waiter in waiters {
        waiter.await.expect("served");
    }
    keeps_only_fences(&server, PUSHED).await;
    server
}

#[tokio::test]
async fn a_user_of_no_channel_polls() {
    everybody_is_served(&["~*", "+@all", "resetchannels"], PUSHED).await;
}

#[tokio::test]
async fn a_user_who_may_not_subscribe_polls() {
    everybody_is_served(&["~*", "&*", "+@all", "-subscribe"], PUSHED).await;
}

#[tokio::test]
async fn a_user_who_may_not_publish_is_served_by_asking() {
    everybody_is_served(&["~*", "&*", "+@all", "-publish"], POLLED).await;
}

#[tokio::test]
async fn a_user_who_may_neither_publish_nor_subscribe_polls() {
    everybody_is_served(&["~*", "&*", "+@all", "-publish", "-subscribe"], PUSHED).await;
}

#[tokio::test]
async fn our_own_channels_are_all_that_is_needed() {
    let rights = ["~order:*", "~lm1:*", "resetchannels", "&lm1:*", "+@all"];
    let server = everybody_is_served(&rights, PUSHED).await;
    let denied: Vec<redis::Value> = server.admin().ask(&["ACL", "LOG"]);
    assert_eq!(denied, [], "something was denied");
}
