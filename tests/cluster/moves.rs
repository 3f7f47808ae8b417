//! A slot moves to another node while its locks are held and waited for.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use lockmacro_runtime::{Lock, LockManager};
use lockmacro_tests::{Cluster, eventually};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::{
    LONG, Locked, SOON, a_key_on_each, keeps_nothing_of, line_of, line_reaches, lock, manager, ms,
};

/// How many processes listen to the channel of a key's slot on a node.
fn listeners(cluster: &Cluster, nth: usize, key: &str) -> usize {
    let mut admin = cluster.admin(nth);
    let channels: Vec<String> = admin.ask(&["PUBSUB", "SHARDCHANNELS"]);
    channels.iter().filter(|channel| cluster.slot(channel) == cluster.slot(key)).count()
}

#[tokio::test]
async fn a_lock_is_followed_to_where_its_slot_has_moved() {
    let cluster = Cluster::start(2, 0).await;
    let (one, other) = (manager(&cluster).await, manager(&cluster).await);
    let key = &a_key_on_each(&cluster, 1)[0];
    let guard = lock(&one, key).acquire().await.expect("free");
    let dropped = lock(&one, &format!("{{{key}}}:dropped")).acquire().await.expect("free");
    cluster.begin_to_move(key, 1).end();
    guard.extend(LONG).await.expect("still held");
    assert!(lock(&other, key).acquire().await.expect_err("held").is_busy());
    guard.release().await.expect("still held");
    drop(dropped);
    keeps_nothing_of(&cluster, key).await;
    let guard = lock(&other, key).acquire().await.expect("free");
    assert!(cluster.admin(1).get(key).is_some());
    guard.release().await.expect("still held");
}

#[tokio::test]
async fn waiters_follow_a_slot_and_are_served_in_order() {
    const WAITERS: usize = 12;
    let cluster = Cluster::start(2, 0).await;
    let managers = [manager(&cluster).await, manager(&cluster).await, manager(&cluster).await];
    let key = &a_key_on_each(&cluster, 1)[0];
    let guard = lock(&managers[0], key).acquire_fenced().await.expect("free").0;
    let (said, mut heard) = mpsc::unbounded_channel();
    let mut tasks = JoinSet::new();
    for nth in 0..WAITERS {
        let said = said.clone();
        tasks.spawn(lock(&managers[nth % 3], key).wait(LONG).run(async move {
            said.send(nth).expect("the test listens");
            Locked::Ok(())
        }));
        line_reaches(&cluster, key, nth + 1).await;
    }
    let moving = cluster.begin_to_move(key, 1);
    moving.carry_keys();
    moving.end();
    // Well before a tick they have been told, and listen where the slot is now.
    let mut followed = || std::future::ready(listeners(&cluster, 1, key) == 3);
    eventually("all processes follow", ms(1_500), &mut followed).await;
    let mut admin = cluster.admin(1);
    assert_eq!(admin.ask::<usize>(&["ZCARD", &line_of(key)]), WAITERS);
    guard.release().await.expect("still held");
    for nth in 0..WAITERS {
        assert_eq!(timeout(SOON, heard.recv()).await, Ok(Some(nth)));
    }
    while let Some(ended) = tasks.join_next().await {
        ended.expect("no panic").expect("served");
    }
    keeps_nothing_of(&cluster, key).await;
    assert_eq!(listeners(&cluster, 0, key), 0);
}

/// Keeps a lock busy from several processes until it is told to stop.
struct Rush {
    tasks: JoinSet<()>,
    over: Arc<AtomicBool>,
    bodies: Arc<AtomicU32>,
}

impl Rush {
    fn on(key: &str, managers: &[LockManager]) -> Rush {
        let (over, bodies) = (Arc::<AtomicBool>::default(), Arc::<AtomicU32>::default());
        let inside = Arc::new(AtomicU32::new(0));
        let mut tasks = JoinSet::new();
        for nth in 0..12 {
            let (key, manager) = (key.to_owned(), managers[nth % managers.len()].clone());
            let (over, bodies, inside) = (over.clone(), bodies.clone(), inside.clone());
            tasks.spawn(async move {
                while !over.load(Ordering::SeqCst) {
                    let body = async {
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two bodies");
                        tokio::time::sleep(ms(1)).await;
                        assert_eq!(inside.fetch_sub(1, Ordering::SeqCst), 1);
                        bodies.fetch_add(1, Ordering::SeqCst);
                        Locked::Ok(())
                    };
                    let lock = Lock::new(key.as_str()).ttl(ms(20_000)).manager(&manager);
                    // Every outcome is of its type; most are none but `Ok`.
                    lock.wait(LONG).run(body).await.expect("served");
                }
            });
        }
        Rush { tasks, over, bodies }
    }

    /// Waits until so many more bodies have run.
    async fn goes_on(&self, more: u32) {
        let from = self.bodies.load(Ordering::SeqCst);
        eventually("bodies run", SOON, || {
            std::future::ready(self.bodies.load(Ordering::SeqCst) >= from + more)
        })
        .await;
    }

    async fn ends(mut self) {
        self.over.store(true, Ordering::SeqCst);
        while let Some(ended) = self.tasks.join_next().await {
            ended.expect("no two bodies");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_moves_to_and_fro_under_contention_without_two_bodies_or_a_lock_that_is_stuck() {
    let cluster = Cluster::start(3, 0).await;
    let managers = [manager(&cluster).await, manager(&cluster).await, manager(&cluster).await];
    let key = &a_key_on_each(&cluster, 1)[0];
    let rush = Rush::on(key, &managers);
    rush.goes_on(20).await;
    for to in [1, 2, 0, 1, 0, 2] {
        let moving = cluster.begin_to_move(key, to);
        tokio::task::yield_now().await;
        moving.carry_keys();
        moving.end();
        rush.goes_on(20).await;
    }
    rush.ends().await;
    keeps_nothing_of(&cluster, key).await;
}
