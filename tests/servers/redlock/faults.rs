//! Late answers, lost answers, forgotten scripts, and futures that are dropped.

use std::pin::pin;

use lockmacro_runtime::{Lock, LockManager};
use lockmacro_tests::AcquireFenced as _;
use lockmacro_tests::{Fault, Polled, Proxy, drop_after_polls, eventually, in_time};

use crate::{IN_TIME, KEY, LONG_TTL, Nodes, behind_a_proxy, connected, lock, ms};

#[tokio::test]
async fn an_answer_that_comes_after_the_lease_is_no_grant() {
    let nodes = Nodes::start(3);
    let manager = nodes.manager_from(LockManager::builder().timeout(IN_TIME)).await;
    let ttl = ms(600);
    let mut admin = nodes.0[0].admin();
    admin.forget_calls();
    let mut acquiring = pin!(Lock::new(KEY).ttl(ttl).manager(&manager).acquire());
    assert!(futures::poll!(&mut acquiring).is_pending());
    let sent = || std::future::ready(admin.count(&["set"]) == 1);
    eventually("it has left", IN_TIME, sent).await;
    // The answers arrive, and whoever has asked is stalled for too long.
    tokio::time::sleep(ttl * 2).await;
    let guard = acquiring.await.expect("granted in the second attempt");
    assert!(guard.is_held());
    assert!(admin.count(&["set"]) >= 2, "the late grant was believed in");
    drop(guard);
    nodes.keep_nothing().await;
}

#[tokio::test]
async fn scripts_that_are_forgotten_are_sent_again() {
    let nodes = Nodes::start(3);
    let (ours, theirs) = (nodes.manager().await, nodes.manager().await);
    let flush = || nodes.0.iter().for_each(|s| s.admin().ask::<()>(&["SCRIPT", "FLUSH"]));
    for _ in 0..5 {
        flush();
        let guard = lock(&ours).fenced().acquire().await.expect("free");
        flush();
        assert!(lock(&theirs).acquire().await.expect_err("held").is_busy());
        flush();
        guard.extend(LONG_TTL * 2).await.expect("held");
        flush();
        guard.release().await.expect("released");
    }
}

#[tokio::test]
async fn a_node_that_loses_answers_is_no_loss() {
    let nodes = Nodes::start(3);
    let proxy = Proxy::to(nodes.0[1].port());
    let urls = vec![nodes.0[0].url(), proxy.url(), nodes.0[2].url()];
    let manager = connected(LockManager::builder().durable().timeout(IN_TIME), urls).await;
    for fault in [Fault::CutReply, Fault::CutCommand, Fault::LoseReply, Fault::DelayReply(ms(80))] {
        for command in ["SET", "EVALSHA"] {
            proxy.on_next(command, fault);
            let guard = lock(&manager).acquire().await;
            guard.expect("two of three").release().await.expect("two of three");
            nodes.keep_nothing().await;
        }
    }
}

/// A withdrawal whose answer never came may arrive late, and then the node would forget a lock that
/// it was counted for.
#[tokio::test]
async fn a_late_withdrawal_does_not_take_away_a_later_grant() {
    let (nodes, proxy, manager) = behind_a_proxy().await;
    nodes.hold(&[0, 1], "somebody else's");
    proxy.on_next("EVALSHA", Fault::HoldCommand(ms(2_500)));
    let waiting = tokio::spawn(lock(&manager).wait(LONG_TTL).acquire());
    let ordered = || std::future::ready(proxy.orders_are_done());
    eventually("an attempt in vain is released", IN_TIME, ordered).await;
    // The first one stays taken: it is not granted without the node that has lost the withdrawal.
    // By a new connection, that is. Then the withdrawal arrives by the old one.
    nodes.free(&[1]);
    let guard = in_time(waiting).await.expect("no panic").expect("free");
    let has_it = || nodes.values()[2].is_some() && nodes.values()[2] == nodes.values()[1];
    let mut arriving = pin!(proxy.held_commands_arrive());
    while futures::poll!(&mut arriving).is_pending() {
        assert!(has_it(), "it was taken away");
        tokio::time::sleep(ms(20)).await;
    }
    assert!(has_it() && guard.is_held());
    guard.release().await.expect("released");
    nodes.free(&[0]);
    nodes.keep_nothing().await;
}

#[tokio::test]
async fn a_fenced_acquire_dropped_at_any_point_leaves_no_lock() {
    let nodes = Nodes::start(3);
    let manager = nodes.manager().await;
    for polls in 0..200 {
        let acquiring = lock(&manager).acquire_fenced();
        match drop_after_polls(acquiring, polls).await {
            Polled::Completed(Ok((guard, _))) => return guard.release().await.expect("released"),
            // The last dropped request may have been in flight, and is released after its arrival.
            Polled::Completed(Err(error)) => assert!(error.is_busy(), "{error}"),
            Polled::Dropped => {}
        }
        let free = || std::future::ready(nodes.values().iter().all(Option::is_none));
        eventually("no node has the key", IN_TIME, free).await;
    }
    panic!("it never completed");
}

#[tokio::test]
async fn a_refused_acquire_dropped_at_any_point_leaves_nothing_at_a_minority() {
    let nodes = Nodes::start(3);
    let manager = nodes.manager().await;
    nodes.hold(&[0, 2], "somebody else's");
    for polls in 0..200 {
        let polled = drop_after_polls(lock(&manager).acquire(), polls).await;
        let free = || std::future::ready(nodes.values()[1].is_none());
        eventually("the free node has nothing", IN_TIME, free).await;
        if let Polled::Completed(result) = polled {
            return assert!(result.expect_err("held").is_busy());
        }
    }
    panic!("it never completed");
}
