//! Tokens of attempts in vain, of which a node has not said, or not in time, that they are gone.

use std::future::{Ready, ready};

use lockmacro_runtime::{Lock, LockGuard, LockManager};
use lockmacro_tests::{Admin, Fault, Polled, Proxy, drop_after_polls, eventually, in_time};

use crate::{IN_TIME, KEY, LONG_TTL, Nodes, behind_a_proxy, connected, lock, ms};

/// Whether a node was asked for the lock so often.
fn is_asked(node: &mut Admin, times: u64) -> Ready<bool> {
    ready(node.count(&["set"]) >= times)
}

/// Three times as far as a node may be to be waited for.
#[tokio::test]
async fn a_waiter_is_not_delayed_by_a_distant_node() {
    let (nodes, proxy, manager) = behind_a_proxy().await;
    proxy.delay(ms(150));
    nodes.hold(&[0, 1], "somebody else's");
    let mut far = nodes.0[2].admin();
    far.forget_calls();
    let waiting = tokio::spawn(lock(&manager).wait(LONG_TTL).acquire());
    // Each time it grants the lock, and too late.
    eventually("it is asked again and again", IN_TIME * 3, || is_asked(&mut far, 6)).await;
    assert!(!waiting.is_finished());
    nodes.free(&[0, 1]);
    let guard = in_time(waiting).await.expect("no panic").expect("released");
    guard.release().await.expect("released");
    nodes.keep_nothing().await;
}

#[tokio::test]
async fn a_waiter_in_vain_keeps_no_minority() {
    let (nodes, _proxy, manager) = behind_a_proxy().await;
    nodes.hold(&[0, 1], "somebody else's");
    let mut free = nodes.0[2].admin();
    free.forget_calls();
    let waiting = tokio::spawn(lock(&manager).wait(LONG_TTL).acquire());
    // The second request comes when the first one's token is gone.
    eventually("it is asked twice", IN_TIME, || is_asked(&mut free, 2)).await;
    eventually("it has nothing", IN_TIME, || ready(free.get(KEY).is_none())).await;
    waiting.abort();
    nodes.free(&[0, 1]);
    nodes.keep_nothing().await;
}

/// The node has an earlier token than the one that the lock is held with.
#[tokio::test]
async fn a_release_takes_earlier_tokens_away_too() {
    let nodes = Nodes::start(3);
    let manager = nodes.manager().await;
    nodes.are_known_to(&manager).await;
    nodes.hold(&[0, 1], "somebody else's");
    // It can be asked for the lock, and not to release it.
    let mut last = nodes.0[2].admin();
    last.ask::<()>(&["ACL", "SETUSER", "default", "-eval", "-evalsha"]);
    let waiting = tokio::spawn(lock(&manager).wait(LONG_TTL).acquire());
    eventually("it has a token", IN_TIME, || ready(last.get(KEY).is_some())).await;
    // One of the next attempt, which does not ask it.
    let mut first = nodes.0[0].admin();
    first.forget_calls();
    eventually("the others are asked again", IN_TIME, || is_asked(&mut first, 2)).await;
    nodes.free(&[0, 1]);
    let guard = in_time(waiting).await.expect("no panic").expect("two of three are free");
    let values = nodes.values();
    assert!(values[0].is_some() && values[2].is_some() && values[0] != values[2], "one for all");
    last.ask::<()>(&["ACL", "SETUSER", "default", "+eval", "+evalsha"]);
    guard.release().await.expect("released");
    nodes.keep_nothing().await;
}

/// A request that nobody has waited for takes the node at last, for nobody.
#[tokio::test]
async fn a_token_that_arrives_late_is_removed_by_a_waiter() {
    let (nodes, proxy, manager) = behind_a_proxy().await;
    nodes.hold(&[0], "somebody else's");
    nodes.0[1].pause();
    proxy.on_next("SET", Fault::HoldLastCommand(ms(2_500)));
    let waiting = tokio::spawn(lock(&manager).wait(LONG_TTL).acquire());
    proxy.held_commands_arrive().await;
    // The first one stays taken, so that it cannot do without the last one.
    nodes.0[1].resume();
    let guard = in_time(waiting).await.expect("no panic").expect("two of three are free");
    let values = nodes.values();
    assert!(values[1].is_some() && values[1] == values[2]);
    guard.release().await.expect("released");
    nodes.free(&[0]);
    nodes.keep_nothing().await;
}

/// A lock that also a distant node has, which does not know the script of the release.
async fn held_at_a_distant_node() -> (Nodes, Proxy, LockManager, LockGuard) {
    let (nodes, proxy, manager) = behind_a_proxy().await;
    // Twice as far as a release waits once the others have answered.
    proxy.delay(ms(25));
    let guard = lock(&manager).acquire().await.expect("free");
    nodes.have_it().await;
    nodes.0[2].admin().ask::<()>(&["SCRIPT", "FLUSH"]);
    (nodes, proxy, manager, guard)
}

#[tokio::test]
async fn the_most_distant_node_keeps_no_key_that_was_released() {
    let (nodes, _proxy, _manager, guard) = held_at_a_distant_node().await;
    guard.release().await.expect("a majority has released it");
    nodes.keep_nothing().await;
}

#[tokio::test]
async fn the_most_distant_node_keeps_no_key_after_a_shutdown() {
    let (nodes, proxy, manager, guard) = held_at_a_distant_node().await;
    guard.release().await.expect("a majority has released it");
    manager.shutdown(IN_TIME).await.expect("released");
    proxy.refuse(true);
    proxy.cut();
    assert_eq!(nodes.values(), [const { None }; 3]);
}

/// Further away than a release waits for its last nodes, which is five times as long as for a vote.
#[tokio::test]
async fn a_far_node_that_does_not_know_the_release_keeps_no_key() {
    const KEYS: usize = 24;
    for shuts_down in [false, true] {
        let (nodes, proxy, manager) = behind_a_proxy().await;
        let mut far = nodes.0[2].admin();
        let mut guards = Vec::new();
        for nth in 0..KEYS {
            let lock = Lock::new(format!("far:{nth}")).ttl(LONG_TTL).manager(&manager);
            guards.push(lock.acquire().await.expect("free"));
        }
        eventually("it has most", IN_TIME, || ready(far.keys().len() > KEYS / 2)).await;
        proxy.delay(ms(300));
        far.ask::<()>(&["SCRIPT", "FLUSH"]);
        for guard in guards {
            guard.release().await.expect("a majority has released it");
        }
        if shuts_down {
            manager.shutdown(IN_TIME).await.expect("released");
            proxy.refuse(true);
            proxy.cut();
            assert!(far.keys().is_empty(), "{:?}", far.keys());
        }
        nodes.keep_nothing().await;
    }
}

#[tokio::test]
async fn several_keys_are_released_at_a_node_that_hung_meanwhile() {
    let nodes = Nodes::start(3);
    let manager = nodes.manager().await;
    nodes.are_known_to(&manager).await;
    let keys = [KEY, "order:43"];
    let guard = Lock::many(keys).ttl(LONG_TTL).manager(&manager).acquire().await.expect("free");
    let mut last = nodes.0[2].admin();
    eventually("it has both", IN_TIME, || ready(last.keys().len() == 2)).await;
    nodes.0[2].pause();
    guard.release().await.expect("a majority has released it");
    nodes.0[2].resume();
    nodes.keep_nothing().await;
}

/// The caller learns that the last key is busy long before a node has the first.
#[tokio::test]
async fn of_several_keys_a_token_that_arrives_late_is_released() {
    let nodes = Nodes::start(3);
    let proxies: Vec<_> = nodes.0.iter().map(|server| Proxy::to(server.port())).collect();
    let urls = proxies.iter().map(Proxy::url).collect();
    let manager = connected(LockManager::builder().durable().timeout(IN_TIME), urls).await;
    nodes.are_known_to(&manager).await;
    // So that the last node does not hear of the others before it has answered.
    proxies[..2].iter().for_each(|proxy| proxy.delay(ms(10)));
    for server in &nodes.0 {
        server.admin().ask::<()>(&["SET", "order:8", "somebody else's", "PX", "60000"]);
    }
    proxies[2].on_next("order:1", Fault::HoldLastCommand(ms(2_500)));
    let keys = (1..=8).map(|nth| format!("order:{nth}"));
    let error = Lock::many(keys).ttl(LONG_TTL).manager(&manager).acquire().await;
    assert!(error.expect_err("one is held").is_busy());
    proxies[2].held_commands_arrive().await;
    for server in &nodes.0 {
        let mut admin = server.admin();
        let only_theirs = || ready(admin.keys() == ["order:8"]);
        eventually("nothing is left behind", IN_TIME * 2, only_theirs).await;
    }
}

/// It was withdrawn, and comes once more: as it would if the request had been held up in flight.
#[tokio::test]
async fn a_token_of_old_is_recognised_and_withdrawn_again() {
    let (nodes, proxy, manager) = behind_a_proxy().await;
    nodes.hold(&[0, 1], "somebody else's");
    let mut last = nodes.0[2].admin();
    last.forget_calls();
    proxy.on_next("SET", Fault::LoseReply);
    let waiting = tokio::spawn(lock(&manager).wait(LONG_TTL).acquire());
    let mut token = None;
    let has_it = || {
        token = last.get(KEY);
        ready(token.is_some())
    };
    eventually("it has the first token", IN_TIME, has_it).await;
    let token = token.expect("it has one");
    // It is not asked with another one before it has said that the first is gone.
    eventually("it is asked again", IN_TIME * 2, || is_asked(&mut last, 2)).await;
    // It arrives as the request would: where nobody has the lock just then.
    let once_more = ["SET", KEY, &token, "NX", "PX", "60000"];
    let arrives = || ready(last.ask::<Option<String>>(&once_more).is_some());
    eventually("it arrives once more", IN_TIME, arrives).await;
    // The first stays taken: it is not granted without the last.
    nodes.free(&[1]);
    let guard =
        tokio::time::timeout(IN_TIME * 3, waiting).await.expect("long before that token ends");
    guard.expect("no panic").expect("two of three are free").release().await.expect("released");
    nodes.free(&[0]);
    nodes.keep_nothing().await;
}

#[tokio::test]
async fn an_acquire_of_several_keys_dropped_at_any_point_is_done_with() {
    let nodes = Nodes::start(3);
    let manager = nodes.manager().await;
    nodes.are_known_to(&manager).await;
    for polls in 0..200 {
        let several = Lock::many([KEY, "order:43"]).ttl(LONG_TTL).manager(&manager);
        match drop_after_polls(several.acquire(), polls).await {
            Polled::Completed(Ok(guard)) => {
                guard.release().await.expect("released");
                // Nobody goes on to release what is gone.
                return manager.shutdown(IN_TIME * 2).await.expect("nothing is left to release");
            }
            // The last dropped request may have been in flight, and is released after its arrival.
            Polled::Completed(Err(error)) => assert!(error.is_busy(), "{error}"),
            Polled::Dropped => {}
        }
        nodes.keep_nothing().await;
    }
    panic!("it never completed");
}

/// The lock is released while the request is on its way to the node.
#[tokio::test]
async fn a_token_that_arrives_after_its_release_is_released_once_more() {
    let (nodes, proxy, manager) = behind_a_proxy().await;
    proxy.on_next("SET", Fault::HoldLastCommand(ms(2_500)));
    let guard = lock(&manager).acquire().await.expect("two of three are free");
    guard.release().await.expect("released");
    proxy.held_commands_arrive().await;
    // Earlier than its ttl ends.
    let mut last = nodes.0[2].admin();
    eventually("it is released", LONG_TTL / 2, || ready(last.get(KEY).is_none())).await;
    nodes.keep_nothing().await;
}
