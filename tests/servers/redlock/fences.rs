//! Fences over several nodes: unique and growing, because they are issued in two rounds.
//!
//! `FENCE_GRANTS` is how many are given for each number of nodes while nodes, keys and answers get
//! lost, 10,000 by default.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use lockmacro_runtime::{Lock, LockManager};
use lockmacro_tests::AcquireFenced as _;
use lockmacro_tests::{Fault, Proxy, Server};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::{LONG_TTL, Nodes, connected, ms};

const KEYS: usize = 32;
const MANAGERS: usize = 4;
/// Of each manager.
const TASKS: usize = 3;
/// The fences of the nodes differ by as much, as if their clocks did.
const SKEW: u64 = 3_600_000_000;

/// A grant as its caller saw it.
#[derive(Debug, Clone, Copy)]
struct Seen {
    key: usize,
    asked: Instant,
    granted: Instant,
    fence: u64,
}

/// How many grants had a fence that was given before, and how many one that was not larger than the
/// fence of a grant that was there before they asked.
fn faults(seen: &[Seen]) -> (usize, usize) {
    let mut by_key: HashMap<usize, Vec<Seen>> = HashMap::new();
    seen.iter().for_each(|grant| by_key.entry(grant.key).or_default().push(*grant));
    let (mut twice, mut inverted) = (0, 0);
    for grants in by_key.values_mut() {
        let different: HashSet<_> = grants.iter().map(|grant| grant.fence).collect();
        twice += grants.len() - different.len();
        let mut earlier = grants.clone();
        earlier.sort_by_key(|grant| grant.granted);
        grants.sort_by_key(|grant| grant.asked);
        let (mut earlier, mut largest) = (earlier.into_iter().peekable(), 0);
        for grant in grants {
            while let Some(before) = earlier.next_if(|before| before.granted < grant.asked) {
                largest = largest.max(before.fence);
            }
            inverted += usize::from(grant.fence <= largest);
        }
    }
    (twice, inverted)
}

fn key(nth: usize) -> String {
    format!("order:{nth}")
}

/// Lets what each node gives next be an hour after what the one before it gives.
fn skew(nodes: &Nodes) {
    let mut first = nodes.0[0].admin();
    let (seconds, _): (u64, u64) = first.ask(&["TIME"]);
    for (nth, server) in nodes.0.iter().enumerate() {
        let last = (seconds * 1_000_000 + SKEW * nth as u64).to_string();
        for key in (0..KEYS).map(key) {
            server.admin().ask::<()>(&["SET", &format!("lm1:wf:{{{key}}}"), &last]);
        }
    }
}

/// Servers that lose nothing when they are killed: what is answered was written before.
fn lasting(nodes: usize) -> Nodes {
    let arguments = ["--appendonly", "yes", "--appendfsync", "no"];
    Nodes((0..nodes).map(|_| Server::with(&arguments)).collect())
}

/// The effect of the second round at a node, and a text of the same length that lifts nothing.
const LIFTS: (&str, &str) = ("or 0) < tonumber(ARGV[2]) then", "or 0) < tonumber('0')     then");

/// Has fences given by nodes that forget locks, lose answers and are killed; without the second
/// round, if so asked, by changing its script on its way. Tells how many grants there were, and as
/// [`faults`].
async fn storm(nodes: usize, grants: usize, second_round: bool) -> (usize, (usize, usize)) {
    let mut nodes = lasting(nodes);
    skew(&nodes);
    let proxies: Vec<_> = nodes.0.iter().map(|server| Proxy::to(server.port())).collect();
    if !second_round {
        let raise =
            include_str!("../../../lockmacro-runtime/src/store/redis/scripts/raise_fence.lua");
        assert_eq!(raise.matches(LIFTS.0).count(), 1, "a passage to replace");
        proxies.iter().for_each(|proxy| proxy.rewrite(LIFTS.0, LIFTS.1));
    }
    let urls: Vec<_> = proxies.iter().map(Proxy::url).collect();
    let (granted, over) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let mut tasks = JoinSet::new();
    for _ in 0..MANAGERS {
        let builder = LockManager::builder().durable().timeout(ms(1_000)).node_timeout(ms(250));
        let manager = connected(builder, urls.clone()).await;
        for _ in 0..TASKS {
            tasks.spawn(ask(manager.clone(), Arc::clone(&granted), Arc::clone(&over)));
        }
    }
    let mut admins: Vec<_> = nodes.0.iter().map(Server::admin).collect();
    let (start, mut step) = (Instant::now(), 0);
    while granted.load(SeqCst) < grants {
        assert!(start.elapsed() < LONG_TTL * 15, "only {} grants", granted.load(SeqCst));
        if granted.load(SeqCst) < step * 10 {
            sleep(ms(1)).await;
            continue;
        }
        step += 1;
        let struck = fastrand::usize(..nodes.0.len());
        // A key that expires at one node by itself, which may be loading its data; and answers that
        // are lost.
        let _ = admins[struck].send::<()>(&["DEL", &key(fastrand::usize(..KEYS))]);
        if step % 10 == 0 {
            let fault = fastrand::choice([Fault::CutReply, Fault::LoseReply, Fault::CutCommand]);
            proxies[struck].on_next("EVALSHA", fault.expect("one of them"));
        }
        if step % 100 == 0 {
            nodes.0[struck].kill();
            nodes.0[struck].restart();
            admins[struck] = nodes.0[struck].admin();
        }
    }
    over.store(true, SeqCst);
    let mut seen = Vec::new();
    while let Some(theirs) = tasks.join_next().await {
        seen.extend(theirs.expect("no panic"));
    }
    println!("{} grants of {} nodes in {:?}", seen.len(), nodes.0.len(), start.elapsed());
    (seen.len(), faults(&seen))
}

/// Asks for locks and releases them, until it is over.
async fn ask(manager: LockManager, granted: Arc<AtomicUsize>, over: Arc<AtomicBool>) -> Vec<Seen> {
    let mut seen = Vec::new();
    while !over.load(SeqCst) {
        let nth = fastrand::usize(..KEYS);
        // Now and then somebody does not notice the end of its lease.
        let (ttl, late) = if fastrand::u32(..500) == 0 { (200, 220) } else { (5_000, 0) };
        let asked = Instant::now();
        let lock = Lock::new(key(nth)).ttl(ms(ttl)).manager(&manager);
        let Ok((guard, fences)) = lock.acquire_fenced().await else { continue };
        seen.push(Seen { key: nth, asked, granted: Instant::now(), fence: fences[0].into() });
        granted.fetch_add(1, SeqCst);
        sleep(ms(late)).await;
        // It may be lost by now.
        let _ = guard.release().await;
    }
    seen
}

macro_rules! storms {
    ($($name:ident, $counter_proof:ident: $nodes:literal),+ $(,)?) => {
        $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            let grants = std::env::var("FENCE_GRANTS").ok().and_then(|grants| grants.parse().ok());
            let (seen, faults) = storm($nodes, grants.unwrap_or(10_000), true).await;
            assert_eq!(faults, (0, 0), "of {seen} grants");
        }

        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $counter_proof() {
            let (seen, faults) = storm($nodes, 1_000, false).await;
            assert_ne!(faults, (0, 0), "of {seen} grants: the second round would not be needed");
        })+
    };
}

storms!(
    fences_of_three_nodes_are_unique_and_grow_whatever_happens_to_nodes_and_answers,
    without_the_second_round_those_of_three_nodes_are_inverted_or_given_twice: 3,
    fences_of_five_nodes_are_unique_and_grow_whatever_happens_to_nodes_and_answers,
    without_the_second_round_those_of_five_nodes_are_inverted_or_given_twice: 5,
);

#[test]
fn the_judge_finds_what_is_wrong() {
    let start = Instant::now();
    let grant = |asked, granted, fence| {
        let at = |ms| start + Duration::from_millis(ms);
        Seen { key: 0, asked: at(asked), granted: at(granted), fence }
    };
    assert_eq!(faults(&[grant(0, 1, 5), grant(2, 3, 6)]), (0, 0));
    assert_eq!(faults(&[grant(0, 2, 6), grant(1, 3, 5)]), (0, 0), "they overlap");
    assert_eq!(faults(&[grant(0, 1, 6), grant(2, 3, 5)]), (0, 1));
    assert_eq!(faults(&[grant(0, 2, 5), grant(1, 3, 5)]), (1, 0));
}
