//! Replicas receive the messages that are published on their primary.

use std::time::Duration;

use lockmacro_runtime::{LockError, LockManager};
use lockmacro_tests::Server;
use lockmacro_tests::queue::Queue;

use crate::{KEY, Locked, lock, ms};

const WAIT: Duration = Duration::from_secs(5);

async fn manager(server: &Server) -> LockManager {
    LockManager::builder().timeout(ms(500)).connect(&server.url()).await.expect("there")
}

/// An operator swaps two servers by hand. The head of the queue listens to the primary of old, and
/// receives the messages that the new one publishes.
#[tokio::test]
async fn a_subscriber_of_a_former_primary_believes_in_no_lock() {
    let before = Server::start();
    let port = before.port().to_string();
    let now = Server::with(&["--replicaof", "127.0.0.1", &port]);
    let holder = manager(&before).await;
    let _guard = lock(&holder, KEY).acquire().await.expect("free");
    let listener = manager(&before).await;
    let waiter = tokio::spawn(lock(&listener, KEY).wait(WAIT).run(async { Locked::Ok(1) }));
    Queue::at(&now, KEY).reaches(1).await;

    // The lock is free on the new primary, and the first waiter is not subscribed there.
    let mut admin = now.admin();
    admin.ask::<()>(&["REPLICAOF", "NO", "ONE"]);
    let next = manager(&now).await;
    admin.ask::<()>(&["DEL", KEY]);
    let guard = lock(&next, KEY).wait(WAIT).acquire().await.expect("granted");
    let port = now.port().to_string();
    before.admin().ask::<()>(&["REPLICAOF", "127.0.0.1", &port]);
    let refused = waiter.await.expect("no panic");
    let Err(LockError::Unavailable { nodes, .. }) = &refused else { panic!("{refused:?}") };
    assert!(nodes.is_empty(), "{refused:?}");
    guard.release().await.expect("still held");
}
