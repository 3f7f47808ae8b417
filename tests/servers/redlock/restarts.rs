//! A node that was started again may have forgotten a lock that is still held.

use std::pin::pin;
use std::time::{Duration, Instant};

use futures::poll;
use lockmacro_runtime::{
    Lock, LockError, LockGuard, LockManager, LockManagerBuilder, NodeReply, UnavailableReason,
};
use lockmacro_tests::AcquireFenced as _;
use lockmacro_tests::{Fault, Proxy, Server, eventually, in_time, on_a_plain_thread};

use crate::{IN_TIME, KEY, LONG_TTL, Nodes, connected, ms, replies};

/// A holder that waited confirms its lease after a third of it, and a part of the lock is forgotten
/// then: so long that the rival has asked in vain before.
const LONGEST: Duration = Duration::from_secs(6);
/// How long is waited for a lock that somebody else has.
const BRIEF: Duration = Duration::from_millis(200);
const SHORT_TTL: Duration = Duration::from_secs(3);
/// The last fence of the key.
const FENCE_KEY: &str = "lm1:wf:{order:42}";

/// Whether a node has said that it does not vote yet.
fn is_young(error: &LockError) -> bool {
    let LockError::Unavailable { reason: UnavailableReason::NoQuorum, nodes, .. } = error else {
        return false;
    };
    nodes.iter().any(|node| is_restarted(&node.error))
}

fn is_restarted(error: &Option<LockError>) -> bool {
    let restarted = UnavailableReason::Restarted;
    matches!(error, Some(LockError::Unavailable { reason, .. }) if *reason == restarted)
}

/// Whether no node has said anything while the caller waited.
fn is_unanswered(error: &LockError) -> bool {
    matches!(error, LockError::Unavailable { reason: UnavailableReason::Timeout, .. })
}

/// For how many seconds a server runs.
fn uptime(server: &Server) -> u64 {
    let info: String = server.admin().ask(&["INFO", "server"]);
    let uptime = info.lines().find_map(|line| line.strip_prefix("uptime_in_seconds:"));
    uptime.expect("its age").parse().expect("a number")
}

/// Has the lock held by the first and the last of three nodes, starts the last one again with
/// nothing in it, and asks for another, for so long. Tells what came of it, if the first was held
/// all the time.
async fn after_a_restart(
    builder: &LockManagerBuilder,
    ttl: Duration,
    wait: Duration,
    patience: Duration,
) -> Option<Result<(), LockError>> {
    let mut nodes = Nodes::start(3);
    // The second node is out of the holder's reach: its vote, however late, would be a part of the
    // lock.
    let out_of_reach = Proxy::to(nodes.0[1].port());
    out_of_reach.refuse(true);
    let mut urls = nodes.urls();
    urls[1] = out_of_reach.url();
    let holder = connected(builder.clone(), urls).await;
    let rival = connected(builder.clone(), nodes.urls()).await;
    let lock = |manager: &LockManager| Lock::new(KEY).ttl(ttl).manager(manager);
    // Young nodes do not vote.
    let guard = lock(&holder).wait(IN_TIME).acquire().await.expect("old enough in the end");
    let has_it: Vec<_> = nodes.values().iter().map(Option::is_some).collect();
    assert_eq!(has_it, [true, false, true]);
    nodes.0[2].kill();
    nodes.0[2].restart();
    let asked = Instant::now();
    loop {
        let result = lock(&rival).wait(wait).acquire().await.map(drop);
        if !guard.is_held() {
            return None;
        }
        // Until the rival has found the node again.
        if result.is_ok() || asked.elapsed() > patience {
            return Some(result);
        }
    }
}

#[tokio::test]
async fn a_node_that_has_forgotten_a_lock_grants_it_twice_when_it_votes() {
    let builder = LockManager::builder().durable();
    // The grant ends the wait, however late the rival finds the node again.
    let result = after_a_restart(&builder, 4 * LONG_TTL, LONG_TTL, LONG_TTL);
    let result = in_time(result).await.expect("held");
    assert!(result.is_ok(), "this is what the delay is for: {result:?}");
}

#[tokio::test]
async fn a_node_that_was_restarted_does_not_vote_until_all_earlier_locks_are_over() {
    let builder = LockManager::builder().longest_ttl(LONGEST);
    // On a machine that is slow the lock may be over before, or the last request without an answer.
    for _ in 0..5 {
        if let Some(result) = in_time(after_a_restart(&builder, LONGEST, BRIEF, ms(1_000))).await {
            let error = result.expect_err("held");
            if !is_unanswered(&error) {
                return assert!(error.is_busy() || is_young(&error), "{error}");
            }
        }
    }
    panic!("it was never held for long enough");
}

#[tokio::test]
async fn young_nodes_say_when_they_will_vote_and_do() {
    let nodes = Nodes::start(3);
    let manager = async |longest_ttl| {
        connected(LockManager::builder().longest_ttl(longest_ttl), nodes.urls()).await
    };
    let strict = manager(LONG_TTL).await;
    let lock = |manager| Lock::new(KEY).ttl(ms(1_000)).manager(manager);
    // One that is slow to connect, or to answer, says something else at first.
    let all_say_so = async || {
        let error = lock(&strict).wait(ms(1)).acquire().await.expect_err("too young");
        let text = error.to_string();
        let says_so = |node: &NodeReply| {
            let restarted = is_restarted(&node.error);
            assert!(!restarted || node.to_string().contains("votes again in"), "{node}");
            restarted
        };
        let all = replies(&error).iter().all(says_so);
        assert!(
            !all || text.contains("set a shorter `longest_ttl`, or use `durable` nodes"),
            "{text}"
        );
        all
    };
    eventually("all say that they are too young", IN_TIME, all_say_so).await;
    let manager = manager(ms(1_000)).await;
    let guard = lock(&manager).wait(IN_TIME).acquire().await.expect("old enough in the end");
    guard.release().await.expect("released");
    nodes.keep_nothing().await;
}

#[tokio::test]
async fn a_caller_without_a_wait_learns_at_once_that_the_nodes_are_too_young() {
    let nodes = Nodes::start(3);
    let builder = LockManager::builder()
        .timeout(IN_TIME * 6)
        .node_timeout(IN_TIME)
        .longest_ttl(LONG_TTL * 10);
    let manager = connected(builder, nodes.urls()).await;
    let start = Instant::now();
    let error =
        Lock::new(KEY).ttl(LONG_TTL).manager(&manager).acquire().await.expect_err("too young");
    // It would have asked for a minute.
    assert!(
        is_young(&error) && start.elapsed() < IN_TIME * 3,
        "{error} after {:?}",
        start.elapsed()
    );
}

/// While it had nothing to lock all nodes were started again, long ago.
#[tokio::test]
async fn a_process_that_was_idle_takes_nodes_for_as_old_as_they_are() {
    let (mut nodes, longest) = (Nodes::start(3), ms(2_000));
    let idle = connected(LockManager::builder().longest_ttl(longest), nodes.urls()).await;
    let lock = || Lock::new(KEY).ttl(ms(1_000)).manager(&idle);
    let guard = lock().wait(IN_TIME).acquire().await.expect("old enough in the end");
    guard.release().await.expect("released");
    nodes.0.iter_mut().for_each(Server::kill);
    // Uptimes are whole seconds, off by one: after this pause the servers are surely younger.
    tokio::time::sleep(ms(2_100)).await;
    nodes.0.iter_mut().for_each(Server::restart);
    let old = || std::future::ready(nodes.0.iter().all(|server| uptime(server) >= 3));
    eventually("they are old enough", IN_TIME, old).await;
    let start = Instant::now();
    while let Err(error) = lock().wait(ms(1)).acquire().await {
        assert!(!is_young(&error) && start.elapsed() < IN_TIME, "{error}");
    }
}

#[tokio::test]
async fn a_ttl_above_the_longest_one_is_refused() {
    let nodes = Nodes::start(3);
    let builder = LockManager::builder().longest_ttl(ms(1_000));
    let manager = connected(builder, nodes.urls()).await;
    let error = Lock::new(KEY).ttl(ms(1_001)).manager(&manager).acquire().await;
    let Err(LockError::InvalidSetting { setting: "ttl", detail, .. }) = error else {
        panic!("{error:?}")
    };
    assert!(detail.ends_with("and 1s"), "{detail}");
    // Of several keys each is asked for with less first; and these nodes do not vote yet.
    let builder = LockManager::builder().longest_ttl(ms(20_000));
    let manager = connected(builder, nodes.urls()).await;
    let several = Lock::many([KEY, "order:43"]).ttl(LONG_TTL).wait(ms(300)).manager(&manager);
    let error = several.acquire().await;
    assert!(matches!(error, Err(LockError::InvalidSetting { setting: "ttl", .. })), "{error:?}");
}

/// The age of a server does not show which locks it has missed.
#[tokio::test]
async fn a_server_that_replaces_another_one_does_not_vote_until_all_earlier_locks_are_over() {
    let (mut nodes, longest) = (Nodes::start(4), ms(1_000));
    let proxy = Proxy::to(nodes.0[2].port());
    let urls = vec![nodes.0[0].url(), nodes.0[1].url(), proxy.url()];
    let builder = LockManager::builder().longest_ttl(longest);
    let manager = connected(builder, urls).await;
    let lock = || Lock::new(KEY).ttl(longest).manager(&manager);
    let guard = lock().wait(IN_TIME).acquire().await.expect("old enough in the end");
    guard.release().await.expect("released");
    let old = || std::future::ready(uptime(&nodes.0[3]) > 2);
    eventually("the other one is as old as any", IN_TIME, old).await;
    let start = Instant::now();
    proxy.lead_to(nodes.0[3].port());
    proxy.cut();
    nodes.0[1].kill();
    // The vote of that node is needed. The error names it as soon as it was recognized, unless that
    // takes too long.
    let is_refused = |result: Result<LockGuard, LockError>| {
        assert!(result.is_err() || start.elapsed() >= longest, "it has voted");
        assert!(start.elapsed() < IN_TIME, "no error names it");
        result.as_ref().map_or_else(is_young, |_| true)
    };
    while !is_refused(lock().wait(BRIEF).acquire().await) {}
    // A connection of another thread knows as much.
    let blocking = || {
        let lock = lock().wait(BRIEF);
        on_a_plain_thread(move || lock.acquire_blocking())
    };
    while !is_refused(blocking().await) {}
    let guard = lock().wait(IN_TIME).acquire().await.expect("it votes in the end");
    guard.release().await.expect("released");
}

/// Polls a call that sends two commands, one after the other. Between the two another call finds
/// that the connection to the last node is gone, and so the second command goes to another server.
async fn with_another_server_between<T>(
    (nodes, proxy, manager): (&Nodes, &Proxy, &LockManager),
    (command, other): (&str, &Server),
    call: impl Future<Output = T>,
) -> T {
    const LATER: Duration = Duration::from_millis(60);
    // It needs the vote of the last node.
    nodes.0[1].admin().ask::<()>(&["SET", "order:43", "somebody else's", "PX", "60000"]);
    proxy.lead_to(other.port());
    proxy.on_next(command, Fault::CutAfterReply(LATER));
    let (mut call, other) = (pin!(call), Lock::new("order:43").ttl(SHORT_TTL).manager(manager));
    let mut other = pin!(other.acquire());
    assert!(poll!(&mut call).is_pending());
    let is_sent = || std::future::ready(proxy.orders_are_done());
    eventually("it is sent", IN_TIME, is_sent).await;
    assert!(poll!(&mut other).is_pending());
    tokio::task::yield_now().await;
    // This thread finds the reply and the end of the connection together.
    std::thread::sleep(2 * LATER);
    // In this order they are polled.
    tokio::join!(biased; other, call).1
}

/// The vote of a node that is held takes two commands.
#[tokio::test]
async fn a_vote_of_a_server_that_replaced_the_known_one_meanwhile_does_not_count() {
    let nodes = Nodes::start(3);
    let (proxy, other) = (Proxy::to(nodes.0[2].port()), Server::start());
    let urls = vec![nodes.0[0].url(), nodes.0[1].url(), proxy.url()];
    let builder = LockManager::builder().longest_ttl(SHORT_TTL);
    let manager = connected(builder.node_timeout(IN_TIME), urls).await;
    let lock = || Lock::new(KEY).ttl(SHORT_TTL).manager(&manager);
    nodes.all_have(&lock(), |server| server.admin().get(KEY).is_some()).await;
    nodes.hold(&[1, 2], "somebody else's");
    let (start, ours) = (Instant::now(), (&nodes, &proxy, &manager));
    let result = with_another_server_between(ours, ("SET", &other), lock().acquire()).await;
    // From then on the new server votes.
    assert!(result.is_err() || start.elapsed() >= SHORT_TTL, "it has voted");
}

/// The other server has the lock as well, and does not know whether it is still held elsewhere.
#[tokio::test]
async fn a_renewal_by_a_server_that_replaced_the_known_one_meanwhile_does_not_count() {
    let nodes = Nodes::start(3);
    let (proxy, other) = (Proxy::to(nodes.0[2].port()), Server::start());
    let urls = vec![nodes.0[0].url(), nodes.0[1].url(), proxy.url()];
    let builder = LockManager::builder().durable().node_timeout(IN_TIME);
    let manager = connected(builder, urls).await;
    nodes.are_known_to(&manager).await;
    let guard = Lock::new(KEY).ttl(LONG_TTL).manager(&manager).acquire().await.expect("free");
    nodes.have_it().await;
    let token = nodes.values()[2].clone().expect("just seen");
    other.admin().ask::<()>(&["SET", KEY, &token, "PX", "60000"]);
    nodes.hold(&[1], "somebody else's");
    // The renewal is sent once more, with its script.
    nodes.0[2].admin().ask::<()>(&["SCRIPT", "FLUSH"]);
    let ours = (&nodes, &proxy, &manager);
    let call = guard.extend(LONG_TTL);
    let extended = with_another_server_between(ours, ("EVALSHA", &other), call).await;
    // One of three has said yes. The extension is repeated, and by then the new server is known.
    let renewals = other.admin().count(&["evalsha", "eval"]);
    assert!(extended.is_err() || renewals > 1, "it counts: {renewals}");
}

/// All nodes are restarted one after the other, and forget everything. The holder gives each of
/// them its part of the lock back.
#[tokio::test]
async fn a_lock_that_is_renewed_outlives_a_restart_of_every_node() {
    let mut nodes = Nodes::start(3);
    let builder = LockManager::builder().longest_ttl(SHORT_TTL);
    let holder = connected(builder.clone(), nodes.urls()).await;
    let rival = connected(builder, nodes.urls()).await;
    // The last fences are far ahead of the clocks, so a node that forgot its own would fall behind.
    for server in &nodes.0 {
        server.admin().ask::<()>(&["SET", FENCE_KEY, "8000000000000000"]);
    }
    let lock = |manager: &LockManager| Lock::new(KEY).ttl(SHORT_TTL).manager(manager);
    // A node that was too young at the grant is not repaired.
    let (guard, fences, token) = loop {
        let ours = lock(&holder).renew().wait(IN_TIME);
        let (guard, fences) = ours.acquire_fenced().await.expect("old enough in the end");
        tokio::time::sleep(BRIEF).await;
        match &nodes.values()[..] {
            [Some(one), Some(two), Some(three)] if one == two && two == three => {
                break (guard, fences, one.clone());
            }
            _ => guard.release().await.expect("it was held"),
        }
    };
    let rolled = async {
        for nth in 0..3 {
            nodes.0[nth].kill();
            nodes.0[nth].restart();
            // A rival may have its vote for a moment, once it votes again.
            let has_it = async || nodes.0[nth].admin().get(KEY).as_ref() == Some(&token);
            eventually("it is repaired", IN_TIME, has_it).await;
            let last: u64 = nodes.0[nth].admin().ask(&["GET", FENCE_KEY]);
            assert!(last >= u64::from(fences[0]), "node {nth}");
            assert!(guard.is_held(), "after node {nth}");
        }
    };
    let rivals = async {
        loop {
            let granted = lock(&rival).wait(BRIEF).acquire().await;
            assert!(granted.is_err(), "it is held");
            // Without a majority of nodes that vote it fails at once.
            tokio::time::sleep(BRIEF).await;
        }
    };
    tokio::select! {
        () = rolled => {}
        () = rivals => {}
    }
    // For longer than the test waits for the release at the last node.
    for server in &nodes.0 {
        server.admin().ask::<()>(&["PEXPIRE", KEY, "600000"]);
    }
    guard.release().await.expect("it was held");
    let is_gone = async || nodes.values().iter().all(|value| value.as_ref() != Some(&token));
    eventually("no node has it", IN_TIME, is_gone).await;
    // As soon as the nodes vote again.
    let (_guard, next) = lock(&rival).wait(IN_TIME).acquire_fenced().await.expect("free");
    assert!(next[0] > fences[0]);
}
