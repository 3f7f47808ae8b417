//! Fences over several nodes: unique and growing, because they are given in two rounds.
//!
//! `FENCE_GRANTS` is how many are given while nodes, keys and answers get lost, 6,000 by default or as
//! many as 15 s allow.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::time::{Duration, Instant};

use lockmacro_runtime::{Lock, LockManager};
use lockmacro_tests::{Fault, Proxy, Server};
use redis::AsyncConnectionConfig;
use redis::aio::MultiplexedConnection;

use crate::{Nodes, SOON, connected, ms};

const KEYS: usize = 4;
const TASKS: usize = 8;
/// What the nodes give differs by as much, as if their clocks had.
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
fn lasting() -> Nodes {
    let arguments = ["--appendonly", "yes", "--appendfsync", "no"];
    Nodes((0..3).map(|_| Server::with(&arguments)).collect())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fences_are_unique_and_grow_whatever_happens_to_nodes_and_answers() {
    let grants = std::env::var("FENCE_GRANTS").ok().and_then(|grants| grants.parse().ok());
    let (most, longest) = grants.map_or((6_000, ms(15_000)), |grants: u32| (grants, SOON * 60));
    let mut nodes = lasting();
    skew(&nodes);
    let proxies: Vec<_> = nodes.0.iter().map(|server| Proxy::to(server.port())).collect();
    let urls: Vec<_> = proxies.iter().map(Proxy::url).collect();
    let (granted, over) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicBool::new(false)));
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..2 {
        let builder = LockManager::builder().durable().timeout(ms(400));
        let manager = connected(builder, urls.clone()).await;
        for _ in 0..TASKS / 2 {
            let (manager, granted, over) = (manager.clone(), granted.clone(), over.clone());
            tasks.spawn(async move {
                let mut seen = Vec::new();
                while !over.load(SeqCst) {
                    let nth = fastrand::usize(..KEYS);
                    let asked = Instant::now();
                    let lock = Lock::new(key(nth)).ttl(ms(200)).manager(&manager);
                    let Ok((guard, fence)) = lock.acquire_fenced().await else { continue };
                    let fence = fence.into();
                    seen.push(Seen { key: nth, asked, granted: Instant::now(), fence });
                    granted.fetch_add(1, SeqCst);
                    if fastrand::u32(..1_000) == 0 {
                        // Somebody who does not notice the end of its lease.
                        tokio::time::sleep(ms(220)).await;
                    }
                    // It may be lost by now.
                    let _ = guard.release().await;
                }
                seen
            });
        }
    }
    let start = Instant::now();
    let mut admins: Vec<_> = nodes.0.iter().map(Server::admin).collect();
    let mut step = 0;
    while granted.load(SeqCst) < most && start.elapsed() < longest {
        step += 1;
        let struck = fastrand::usize(..3);
        // A key that expires at one node by itself, and answers that are lost.
        // It may be loading its data.
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
        tokio::time::sleep(ms(10)).await;
    }
    over.store(true, SeqCst);
    let mut seen = Vec::new();
    while let Some(theirs) = tasks.join_next().await {
        seen.extend(theirs.expect("no panic"));
    }
    assert!(seen.len() >= 500, "only {} grants: this shows nothing", seen.len());
    println!("{} grants in {:?}, {step} steps", seen.len(), start.elapsed());
    assert_eq!(faults(&seen), (0, 0), "of {} grants", seen.len());
}

/// The same without the second round, by the same scripts: the largest fence of a majority.
#[tokio::test]
async fn without_the_second_round_fences_are_inverted() {
    const ACQUIRE: &str = concat!(
        include_str!("../../lockmacro-runtime/src/backend/redis/scripts/queue.lua"),
        include_str!("../../lockmacro-runtime/src/backend/redis/scripts/grant.lua"),
        include_str!("../../lockmacro-runtime/src/backend/redis/scripts/acquire.lua"),
    );
    let nodes = lasting();
    skew(&nodes);
    let mut connections: Vec<MultiplexedConnection> = Vec::new();
    for server in &nodes.0 {
        let client = redis::Client::open(server.url()).expect("a url");
        let patient = AsyncConnectionConfig::new().set_response_timeout(Some(SOON));
        let connection = client.get_multiplexed_async_connection_with_config(&patient).await;
        connections.push(connection.expect("it is there"));
    }
    let mut seen = Vec::new();
    for turn in 0..300 {
        let key = key(0);
        let asked = Instant::now();
        // Any two of them are a majority.
        let absent = fastrand::usize(..3);
        let mut fence = 0;
        for (nth, connection) in connections.iter_mut().enumerate() {
            if nth != absent {
                let side = |kind| format!("lm1:w{kind}:{{{key}}}");
                let mut acquire = redis::cmd("EVAL");
                acquire.arg(ACQUIRE).arg(4).arg(&key).arg(side("q")).arg(side("w")).arg(side("f"));
                acquire.arg(format!("t/{turn}")).arg(1_000).arg(1).arg(5_000).arg(0);
                let given: u64 = acquire.query_async(connection).await.expect("granted");
                fence = fence.max(given);
            }
        }
        seen.push(Seen { key: 0, asked, granted: Instant::now(), fence });
        for connection in &mut connections {
            redis::cmd("DEL").arg(&key).exec_async(connection).await.expect("given back");
        }
    }
    let (twice, inverted) = faults(&seen);
    assert!(inverted > 0, "{twice} twice: the second round would not be needed");
}

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
