//! Servers that do not let us publish or listen: waiting is slower then, and works. One that does
//! not speak RESP3 is refused.

use std::time::Duration;

use lockmacro_runtime::{LockError, LockManager, LockManagerBuilder, UnavailableReason};
use lockmacro_tests::queue::Queue;
use lockmacro_tests::{Server, log};

use crate::{KEY, LONG_TTL, POLLED, PUSHED, keeps_only_fences, lock, manager, ms, served, waiting};

/// A server with a user who has the rights given, and two managers of that user.
pub(crate) async fn with_user(
    rights: &[&str],
    builder: LockManagerBuilder,
) -> (Server, LockManager, LockManager) {
    let server = Server::start();
    let words = ["ACL", "SETUSER", "clerk", "reset", "on", ">secret"];
    server.admin().ask::<()>(&[&words, rights].concat());
    let url = server.url_as("clerk", "secret");
    let connect = async || builder.clone().connect(&url).await.expect("let in");
    let (ours, theirs) = (connect().await, connect().await);
    (server, ours, theirs)
}

/// Has five waiters of a user with these rights, served within five times `each`.
async fn everybody_is_served(rights: &[&str], each: Duration) -> Server {
    everybody_is_served_at(with_user(rights, LockManager::builder()).await, each).await
}

async fn everybody_is_served_at(
    (server, ours, theirs): (Server, LockManager, LockManager),
    each: Duration,
) -> Server {
    let mut queue = Queue::at(&server, KEY);
    let guard = lock(&ours, KEY).acquire().await.expect("free");
    let mut waiters = Vec::new();
    for nth in 0..5 {
        let manager = if nth % 2 == 0 { &theirs } else { &ours };
        let waiter = queue.join(waiting(manager, KEY).acquire()).await;
        waiters.push(tokio::spawn(served(5 * each, waiter)));
    }
    let error = lock(&theirs, KEY).wait(ms(50)).acquire().await.expect_err("held");
    assert!(matches!(error, LockError::TimedOut { .. }), "{error:?}");
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

#[tokio::test]
async fn a_request_that_the_server_has_refused_is_followed_by_no_release() {
    let rights = ["~order:*", "~lm1:*", "&lm1:*", "+@all"];
    let (server, locks, _) = with_user(&rights, LockManager::builder()).await;
    let error = lock(&locks, "invoice:1").acquire().await.expect_err("not its own");
    assert!(matches!(error, LockError::AccessDenied { .. }), "{error:?}");
    locks.shutdown(LONG_TTL).await.expect("nothing is held");
    assert_eq!(server.admin().refused("NOPERM"), 1);
}

#[tokio::test]
async fn where_pub_sub_is_refused_waiters_poll_and_the_log_says_so_once() {
    log::start();
    let refused = ["SUBSCRIBE", "PUBLISH", "PUBSUB"];
    let arguments = refused.iter().flat_map(|command| ["--rename-command", command, ""]);
    let server = Server::with(&arguments.collect::<Vec<_>>());
    let (ours, theirs) = (manager(&server).await, manager(&server).await);
    let server = everybody_is_served_at((server, ours.clone(), theirs.clone()), PUSHED).await;
    let clients: String = server.admin().ask(&["CLIENT", "LIST"]);
    // One of each manager, that of the background thread, and the one that looks.
    assert!(clients.lines().count() <= 5, "{clients}");
    let log = log::so_far();
    let place = format!("127.0.0.1:{}", server.port());
    let lines = log.lines().filter(|line| line.starts_with("WARN") && line.contains(&place));
    let lines: Vec<_> = lines.collect();
    assert_eq!(lines.len(), 2, "one of each manager: {lines:?}");
    assert!(lines.iter().all(|line| line.contains("waiters poll")), "{lines:?}");
}

#[tokio::test]
async fn a_server_that_does_not_know_hello_is_refused_and_the_error_says_why() {
    let server = Server::with(&["--rename-command", "HELLO", ""]);
    let error = LockManager::connect(&server.url()).await.map(drop).expect_err("no RESP3");
    assert_eq!(error.reason(), Some(UnavailableReason::Protocol), "{error:?}");
    assert!(error.to_string().contains("locks need RESP3"), "{error}");
}
