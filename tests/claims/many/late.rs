//! Requests that reach the server late, when something else has been said meanwhile.

use lockmacro_runtime::LockManager;
use lockmacro_tests::{Call, Fault, Proxy, Server, queue_of};
use tokio::time::timeout;

use crate::{CONFIRM_WINDOW, IN_TIME, LONG_TTL, Locked, impatient, lock, many, ms, waits_until};

/// Keys that are held while the caller waits for another key are requested with a short ttl, and
/// confirmed with the whole one.
#[tokio::test]
async fn a_late_request_for_a_part_does_not_shorten_what_was_confirmed() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let ours = impatient(&proxy.url(), ms(1_200)).await;
    let theirs = LockManager::connect(&server.url()).await.expect("there");
    // All scripts are loaded.
    let busy = lock(&theirs, "order:b").ttl(ms(300)).acquire().await.expect("free");
    let all = many(&ours, ["order:a", "order:b"]).wait(LONG_TTL).run(async { Locked::Ok(()) });
    all.await.expect("served");
    drop(busy);

    let busy = lock(&theirs, "order:b").acquire().await.expect("free");
    // Both are asked for first; the request that joins the first key's queue is about it alone.
    let queue = queue_of("order:a");
    let joins = move |call: &Call<'_>| call.names(&queue) && !call.names("order:b");
    proxy.on_next_call(joins, Fault::HoldCommand(ms(2_500)));
    let mut waiter = Box::pin(many(&ours, ["order:a", "order:b"]).wait(LONG_TTL).acquire());
    let mut admin = server.admin();
    waits_until("it holds the first key", &mut waiter, || admin.get("order:a").is_some()).await;
    busy.release().await.expect("still held");
    let guard = timeout(IN_TIME, waiter).await.expect("in time").expect("served");
    proxy.held_commands_arrive().await;
    let left = server.admin().ttl("order:a").expect("it is held");
    assert!(
        left > CONFIRM_WINDOW && left >= guard.remaining(),
        "{left:?}, not {:?}",
        guard.remaining()
    );
    guard.release().await.expect("still held");
}

#[tokio::test]
async fn a_late_request_does_not_shorten_what_was_extended() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let ours = impatient(&proxy.url(), ms(1_200)).await;
    for lock in [lock(&ours, "order:a"), many(&ours, ["order:a", "order:b"])] {
        let lock = lock.ttl(CONFIRM_WINDOW);
        let acquire = async || lock.clone().fenced().acquire().await.expect("free");
        // The script is loaded.
        acquire().await.release().await.expect("still held");
        proxy.on_next("EVALSHA", Fault::HoldCommand(ms(1_500)));
        let guard = acquire().await;
        guard.extend(LONG_TTL).await.expect("still held");
        proxy.held_commands_arrive().await;
        let left = server.admin().ttl("order:a").expect("it is held");
        assert!(
            left > CONFIRM_WINDOW && left >= guard.remaining(),
            "{left:?}, {:?}",
            guard.remaining()
        );
        guard.release().await.expect("still held");
    }
}

/// A waiter that has lost a key releases the others, and begins again before that is
/// answered.
#[tokio::test]
async fn a_late_release_does_not_release_a_newer_acquisition() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let ours = impatient(&proxy.url(), ms(1_200)).await;
    let theirs = LockManager::connect(&server.url()).await.expect("there");
    let all = ["order:a", "order:b"];
    // The scripts are loaded.
    many(&ours, all).run(async { Locked::Ok(()) }).await.expect("free");
    let busy = lock(&theirs, "order:b").acquire().await.expect("free");
    let mut waiter = Box::pin(many(&ours, all).ttl(ms(3_000)).wait(LONG_TTL).acquire());
    let mut admin = server.admin();
    let queue = queue_of("order:b");
    waits_until("it is in the queue", &mut waiter, || admin.ask(&["EXISTS", &queue])).await;
    // It is noticed by a renewal, which names the key alone; the release names its line.
    let token = admin.get("order:a");
    admin.ask::<()>(&["DEL", "order:a"]);
    proxy.on_next(&queue_of("order:a"), Fault::HoldCommand(ms(2_500)));
    waits_until("it has begun again", &mut waiter, || {
        proxy.orders_are_done() && admin.get("order:a").is_some()
    })
    .await;
    assert_ne!(admin.get("order:a"), token, "the release may still arrive");
    busy.release().await.expect("still held");
    let guard = timeout(IN_TIME, waiter).await.expect("in time").expect("served");
    proxy.held_commands_arrive().await;
    assert!(all.iter().all(|key| admin.get(key).is_some()), "{:?}", admin.keys());
    // Its manager waits too briefly for answers to tell it by a release on a loaded machine.
    assert_eq!(guard.check(), Ok(()));
}
