//! A lock is granted exactly when a majority of the nodes lives, whichever they are.

use std::future::ready;
use std::time::Instant;

use lockmacro_runtime::{Lock, LockError, LockManager, UnavailableReason};
use lockmacro_tests::{eventually, in_time, spawn_polled};

use crate::{IN_TIME, KEY, LONG_TTL, Nodes, lock, ms, replies};

#[derive(Clone, Copy, PartialEq)]
enum Fault {
    Dead,
    Hung,
}

macro_rules! every_mask {
    ($($name:ident: $fault:ident of $nodes:literal),+ $(,)?) => {
        $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            in_time(every_mask(Fault::$fault, $nodes)).await;
        })+
    };
}

every_mask!(
    three_nodes_of_which_any_are_dead: Dead of 3,
    three_nodes_of_which_any_hang: Hung of 3,
    five_nodes_of_which_any_are_dead: Dead of 5,
    five_nodes_of_which_any_hang: Hung of 5,
);

async fn every_mask(fault: Fault, count: usize) {
    let mut nodes = Nodes::start(count);
    for mask in 0_u32..1 << count {
        let struck: Vec<_> = (0..count).filter(|nth| mask & 1 << nth != 0).collect();
        let lives = 2 * (count - struck.len()) > count;
        // Where there is a majority, whoever waits for a node that hangs is not granted it in time.
        // One that is no answer in time without a node's own timeout would take half a minute.
        let brisk = LockManager::builder().timeout(IN_TIME * 12);
        let manager = if lives { nodes.manager().await } else { nodes.manager_from(brisk).await };
        for nth in &struck {
            match fault {
                Fault::Dead => nodes.0[*nth].kill(),
                Fault::Hung => nodes.0[*nth].pause(),
            }
        }
        let start = Instant::now();
        let lock = Lock::new(KEY).ttl(IN_TIME * 20).manager(&manager);
        match if lives { lock } else { lock.wait(ms(100)) }.acquire().await {
            Ok(guard) => {
                assert!(lives, "{struck:?}: granted");
                assert!(start.elapsed() < IN_TIME, "{struck:?}: {:?}", start.elapsed());
                guard.release().await.expect("a majority has released it");
            }
            Err(error) => {
                assert!(!lives && !error.is_busy(), "{struck:?}: {error}");
                assert!(start.elapsed() < IN_TIME, "{struck:?}: {:?}", start.elapsed());
                assert!(struck.iter().all(|nth| replies(&error)[*nth].error.is_some()), "{error}");
            }
        }
        for (_, server) in nodes.0.iter().enumerate().filter(|(nth, _)| !struck.contains(nth)) {
            let mut admin = server.admin();
            let released = || std::future::ready(admin.get(KEY).is_none());
            eventually("a node that lives has nothing", IN_TIME, released).await;
        }
        for nth in &struck {
            match fault {
                Fault::Dead => nodes.0[*nth].restart(),
                Fault::Hung => nodes.0[*nth].resume(),
            }
        }
        nodes.keep_nothing().await;
    }
}

#[tokio::test]
async fn a_lock_has_as_many_nodes_as_there_are() {
    let nodes = Nodes::start(5);
    let manager = nodes.manager().await;
    nodes.are_known_to(&manager).await;
    let guard = lock(&manager).acquire().await.expect("free");
    nodes.have_it().await;
    let values = nodes.values();
    assert!(values.iter().all(|value| *value == values[0]));
    guard.release().await.expect("released");
    nodes.keep_nothing().await;
}

#[tokio::test]
async fn what_others_hold_at_a_majority_is_busy_and_at_a_minority_is_not() {
    let nodes = Nodes::start(3);
    let manager = nodes.manager().await;
    let theirs = format!("web-7/{:032x}", 7);
    nodes.hold(&[1], &theirs);
    let guard = lock(&manager).acquire().await.expect("two of three are free");
    guard.release().await.expect("released");
    nodes.hold(&[2], &theirs);
    let error = lock(&manager).acquire().await.expect_err("two of three are taken");
    assert!(error.is_busy() && error.to_string().contains("web-7"), "{error}");
    assert!(error.holder().free_within.is_some_and(|left| left > ms(30_000)), "{error}");
    let released = || std::future::ready(nodes.values()[0].is_none());
    eventually("the node that granted is released", IN_TIME, released).await;
    assert_eq!(nodes.values(), [None, Some(theirs.clone()), Some(theirs)]);
}

/// As a holder that died with one of three nodes would leave it, or one that holds the node that is
/// dead.
#[tokio::test]
async fn a_possible_holder_is_named_and_an_impossible_one_is_not() {
    let mut nodes = Nodes::start(3);
    let manager = nodes.manager().await;
    let holder = async || loop {
        match lock(&manager).wait(ms(1)).acquire().await {
            Err(LockError::TimedOut { holder, .. }) => return (holder.owner, holder.free_within),
            // A node of a loaded machine may be late when it releases a part.
            Err(LockError::Unavailable { reason: UnavailableReason::NoQuorum, .. }) => {}
            other => panic!("{other:?}"),
        }
    };
    for nth in 0..3 {
        nodes.hold(&[nth], &format!("web-{nth}/{nth:032x}"));
    }
    assert_eq!(in_time(holder()).await, (None, None), "each has one of three");
    nodes.free(&[0]);
    nodes.0[2].kill();
    let (owner, left) = in_time(holder()).await;
    assert_eq!(owner.as_deref(), Some("web-1"));
    assert!(left.is_some_and(|left| left > ms(30_000)), "{left:?}");
}

#[tokio::test]
async fn a_lock_is_renewed_by_a_majority_of_all_nodes_and_lost_without_one() {
    let mut nodes = Nodes::start(5);
    // Most of those that grant it are no majority.
    nodes.0[3].kill();
    nodes.0[4].kill();
    let manager = nodes.manager().await;
    let held = Lock::new(KEY).ttl(ms(4_000)).renew().manager(&manager);
    let guard = held.acquire().await.expect("free");
    let held = tokio::time::timeout(ms(4_500), guard.lost()).await;
    held.expect_err("longer than its ttl, by three of five");
    nodes.0[2].kill();
    let lost = tokio::time::timeout(IN_TIME, guard.lost()).await.expect("it is lost");
    assert_eq!(lost.cause(), lockmacro_runtime::LossCause::NotRenewed);
}

#[tokio::test]
async fn a_lock_that_a_majority_has_lost_is_lost_at_its_renewal() {
    let nodes = Nodes::start(3);
    let manager = nodes.manager().await;
    nodes.are_known_to(&manager).await;
    let held = Lock::new(KEY).ttl(ms(4_000)).renew().manager(&manager);
    let guard = held.acquire().await.expect("free");
    nodes.have_it().await;
    nodes.free(&[0, 2]);
    let lost = tokio::time::timeout(IN_TIME, guard.lost()).await.expect("it is lost");
    assert_eq!(lost.cause(), lockmacro_runtime::LossCause::Taken);
    drop(guard);
    nodes.keep_nothing().await;
}

/// The other nodes may keep others out until the body learns of the loss.
#[tokio::test]
async fn a_lock_that_a_majority_has_lost_stays_at_the_other_nodes_until_its_body_ends() {
    let nodes = Nodes::start(3);
    let manager = nodes.manager().await;
    nodes.are_known_to(&manager).await;
    let held = Lock::new(KEY).ttl(ms(9_000)).renew().manager(&manager);
    let guard = held.acquire().await.expect("free");
    nodes.have_it().await;
    // A loss makes its process ask for those who wait.
    let waiting = spawn_polled(lock(&manager).wait(LONG_TTL).acquire()).await;
    let own = nodes.values();
    nodes.hold(&[0, 2], "somebody else's");
    let mut first = nodes.0[0].admin();
    first.forget_calls();
    let lost = tokio::time::timeout(IN_TIME, guard.lost()).await.expect("it is lost");
    assert_eq!(lost.cause(), lockmacro_runtime::LossCause::Taken);
    eventually("it is asked for", IN_TIME, || ready(first.count(&["set"]) >= 2)).await;
    assert_eq!(nodes.values()[1], own[1], "released under a body");
    drop(guard);
    nodes.free(&[0, 2]);
    let next = in_time(waiting).await.expect("no panic").expect("free");
    next.release().await.expect("released");
    nodes.keep_nothing().await;
}
