//! Tokens of attempts in vain, of which a node has not said, or not in time, that they are gone.

use lockmacro_runtime::{Lock, LockManager};
use lockmacro_tests::{Fault, Proxy, eventually, in_time};

use crate::{KEY, LONG, Nodes, SOON, lock, ms};

/// Three nodes, the last of which is reached by a proxy, and a manager that knows all of them.
async fn behind_a_proxy() -> (Nodes, Proxy, LockManager) {
    let nodes = Nodes::start(3);
    let proxy = Proxy::to(nodes.0[2].port());
    let urls = vec![nodes.0[0].url(), nodes.0[1].url(), proxy.url()];
    let builder = LockManager::builder().durable().timeout(SOON);
    let manager = builder.redlock(urls).await.expect("all are there");
    lock(&manager).acquire().await.expect("free").release().await.expect("released");
    nodes.keep_nothing().await;
    (nodes, proxy, manager)
}

/// Three times as far as a node may be to be waited for.
#[tokio::test]
async fn who_waits_is_not_held_up_by_a_node_that_is_far_away() {
    let (nodes, proxy, manager) = behind_a_proxy().await;
    proxy.delay(ms(150));
    nodes.hold(&[0, 1], "somebody else's");
    let mut far = nodes.0[2].admin();
    far.forget_calls();
    let waiting = tokio::spawn(lock(&manager).wait(LONG).acquire());
    // Each time it grants the lock, and too late.
    let mut often = || {
        let calls = far.calls();
        std::future::ready(calls.iter().any(|(name, count)| name == "set" && *count >= 6))
    };
    eventually("it is asked again and again", SOON * 3, &mut often).await;
    assert!(!waiting.is_finished());
    nodes.free(&[0, 1]);
    let guard = in_time(waiting).await.expect("no panic").expect("given back");
    guard.release().await.expect("released");
    nodes.keep_nothing().await;
}

#[tokio::test]
async fn who_waits_in_vain_keeps_no_minority() {
    let (nodes, _proxy, manager) = behind_a_proxy().await;
    nodes.hold(&[0, 1], "somebody else's");
    let mut free = nodes.0[2].admin();
    free.forget_calls();
    let waiting = tokio::spawn(lock(&manager).wait(LONG).acquire());
    // The second question comes when the first one's token is gone.
    let mut asked = || {
        let calls = free.calls();
        std::future::ready(calls.iter().any(|(name, count)| name == "set" && *count >= 2))
    };
    eventually("it is asked twice", SOON, &mut asked).await;
    eventually("it has nothing", SOON, || std::future::ready(free.get(KEY).is_none())).await;
    waiting.abort();
    nodes.free(&[0, 1]);
    nodes.keep_nothing().await;
}

/// The node has an earlier token than the one that the lock is held with.
#[tokio::test]
async fn a_release_takes_earlier_tokens_away_too() {
    let (nodes, proxy, manager) = behind_a_proxy().await;
    nodes.hold(&[0, 1], "somebody else's");
    // The first withdrawal is lost, and for a while there is no other one.
    proxy.refuse(true);
    proxy.on_next("EVALSHA", Fault::CutCommand);
    let waiting = tokio::spawn(lock(&manager).wait(LONG).acquire());
    let lost = || std::future::ready(proxy.orders_are_done());
    eventually("a withdrawal is lost", SOON, lost).await;
    let earlier = nodes.values()[2].clone();
    nodes.free(&[0, 1]);
    let guard = in_time(waiting).await.expect("no panic").expect("two of three are free");
    let values = nodes.values();
    assert!(earlier.is_some() && values[2] == earlier && values[0] != earlier, "one token for all");
    proxy.refuse(false);
    guard.release().await.expect("released");
    nodes.keep_nothing().await;
}

/// A request that nobody has waited for takes the node at last, for nobody.
#[tokio::test]
async fn a_token_that_arrives_late_is_taken_away_by_who_still_waits() {
    let nodes = Nodes::start(3);
    let proxy = Proxy::to(nodes.0[2].port());
    let urls = vec![nodes.0[0].url(), nodes.0[1].url(), proxy.url()];
    let manager = LockManager::builder().durable().redlock(urls).await.expect("all are there");
    nodes.hold(&[0, 1], "somebody else's");
    proxy.on_next("SET", Fault::HoldLastCommand(ms(2_500)));
    let waiting = tokio::spawn(lock(&manager).wait(LONG).acquire());
    proxy.held_commands_arrive().await;
    // The first one stays taken.
    nodes.free(&[1]);
    let guard = in_time(waiting).await.expect("no panic").expect("two of three are free");
    let values = nodes.values();
    assert!(values[1].is_some() && values[1] == values[2]);
    guard.release().await.expect("released");
    nodes.free(&[0]);
    nodes.keep_nothing().await;
}

#[tokio::test]
async fn several_keys_are_given_back_at_a_node_that_hung_meanwhile() {
    let nodes = Nodes::start(3);
    let manager = nodes.manager().await;
    let keys = [KEY, "order:43"];
    let guard = Lock::many(keys).ttl(LONG).manager(&manager).acquire().await.expect("free");
    let mut last = nodes.0[2].admin();
    eventually("it has both", SOON, || std::future::ready(last.keys().len() == 2)).await;
    nodes.0[2].pause();
    guard.release().await.expect("a majority has released it");
    nodes.0[2].resume();
    nodes.keep_nothing().await;
}
