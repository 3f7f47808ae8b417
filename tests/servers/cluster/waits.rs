//! Grants come by the channel of the key's slot.

use std::pin::pin;
use std::time::Instant;

use futures::future::join_all;
use lockmacro_runtime::{Lock, LockManager};
use lockmacro_tests::Cluster;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::{
    FAILOVER, FAILOVER_TTL, Locked, a_key_on_each, keeps_nothing_of, key, lock, manager, ms,
    queue_of, queue_reaches, shared,
};

/// A waiter of each manager, each of which says when it is served.
pub(crate) struct Waiters {
    tasks: JoinSet<Locked<()>>,
    heard: mpsc::UnboundedReceiver<usize>,
}

impl Waiters {
    /// Has them join the queue of a key, one after the other.
    pub(crate) async fn queue_up(cluster: &Cluster, key: &str, of: &[LockManager]) -> Waiters {
        let (said, heard) = mpsc::unbounded_channel();
        let mut tasks = JoinSet::new();
        for (nth, manager) in of.iter().enumerate() {
            let said = said.clone();
            tasks.spawn(lock(manager, key).wait(FAILOVER_TTL).run(async move {
                said.send(nth).expect("the test listens");
                Locked::Ok(())
            }));
            queue_reaches(cluster, key, nth + 1).await;
        }
        Waiters { tasks, heard }
    }

    pub(crate) async fn are_served_in_order(mut self) {
        for nth in 0..self.tasks.len() {
            assert_eq!(timeout(FAILOVER, self.heard.recv()).await, Ok(Some(nth)));
        }
        self.tasks.join_all().await.into_iter().for_each(|ended| ended.expect("served"));
    }
}

/// The channels of slots that a node is asked for.
fn channels(cluster: &Cluster, nth: usize) -> Vec<String> {
    cluster.admin(nth).ask(&["PUBSUB", "SHARDCHANNELS"])
}

#[tokio::test]
async fn a_waiter_gets_a_push_and_does_not_poll() {
    let cluster = Cluster::start(2, 0).await;
    let (holder, waiter) = (manager(&cluster).await, manager(&cluster).await);
    let key = &a_key_on_each(&cluster, 2)[1];
    // The first hand-off has the server load the scripts, and opens the channel.
    for _ in 0..2 {
        let guard = lock(&holder, key).acquire().await.expect("free");
        let waiting = Lock::new(key.as_str()).ttl(ms(5_000)).wait(FAILOVER_TTL).manager(&waiter);
        let waiting = tokio::spawn(waiting.run(async { Locked::Ok(()) }));
        queue_reaches(&cluster, key, 1).await;
        let mut admin = cluster.admin(1);
        admin.forget_calls();
        let asked = Instant::now();
        guard.release().await.expect("still held");
        waiting.await.expect("no panic").expect("served");
        let calls = admin.calls();
        assert_eq!(["spublish", "publish"].map(|name| admin.count(&[name])), [1, 0], "{calls:?}");
        // A release that finds out that it has to hand off, one that does, and another one;
        // whoever ticked would have asked, too.
        if asked.elapsed() < ms(500) {
            assert!(admin.count(&["evalsha"]) <= 3 && admin.count(&["eval"]) <= 2, "{calls:?}");
        }
    }
    keeps_nothing_of(&cluster, key).await;
    assert_eq!((channels(&cluster, 0).len(), channels(&cluster, 1).len()), (0, 1));
}

#[tokio::test]
async fn an_acquisition_of_many_waiters_costs_a_command_and_a_push_at_most() {
    let mut many = 100;
    let cluster = Cluster::start(1, 0).await;
    let managers = [manager(&cluster).await, manager(&cluster).await];
    let key = key("hot");
    for attempt in 1.. {
        let guard = lock(&managers[0], &key).acquire().await.expect("free");
        let mut tasks = JoinSet::new();
        let mut admin = cluster.admin(0);
        let start = Instant::now();
        admin.forget_calls();
        for nth in 0..many {
            let lock = Lock::new(key.as_str()).ttl(ms(5_000)).wait_forever();
            tasks.spawn(lock.manager(&managers[nth % 2]).run(async { Locked::Ok(()) }));
        }
        queue_reaches(&cluster, &key, 1).await;
        tokio::time::sleep(ms(50)).await;
        guard.release().await.expect("still held");
        tasks.join_all().await.into_iter().for_each(|ended| ended.expect("served"));
        let calls = admin.calls();
        // On a machine so loaded that they had to refresh their leases, and while the scripts are
        // loaded, it is another measure.
        if attempt > 1 && start.elapsed() < ms(1_500) {
            let waiters = many as u64;
            // Most of them are passed the lock by another one of their process.
            assert!(admin.count(&["eval", "evalsha"]) <= waiters, "{calls:?}");
            assert!(admin.count(&["spublish"]) < waiters, "{calls:?}");
            assert_eq!(admin.count(&["publish"]), 0, "{calls:?}");
            break;
        }
        // So many take longer than a tick here.
        many -= if attempt > 1 { many / 3 } else { 0 };
        assert!(many >= 10, "{many} hand-offs take longer than a tick here");
    }
}

#[tokio::test]
async fn waiters_of_several_processes_are_served_in_order_on_every_node() {
    let cluster = shared().await;
    let holder = manager(cluster).await;
    let managers = join_all((0..6).map(|_| manager(cluster))).await;
    for key in a_key_on_each(cluster, 3) {
        let guard = lock(&holder, &key).acquire().await.expect("free");
        let waiters = Waiters::queue_up(cluster, &key, &managers).await;
        guard.release().await.expect("still held");
        waiters.are_served_in_order().await;
        keeps_nothing_of(cluster, &key).await;
    }
}

#[tokio::test]
async fn a_waiter_dropped_at_any_point_leaves_no_trace() {
    let cluster = shared().await;
    let manager = manager(cluster).await;
    let key = key("dropped");
    for polls in 1..12 {
        // The last dropped request may have been in flight, and is released after its arrival.
        let guard = lock(&manager, &key).wait(FAILOVER_TTL).acquire().await.expect("free");
        let waiting = lock(&manager, &key).wait(FAILOVER_TTL).run(async { Locked::Ok(()) });
        let waiting = lockmacro_tests::drop_after_polls(waiting, polls);
        let released = async {
            tokio::task::yield_now().await;
            tokio::time::sleep(ms(polls as u64)).await;
            guard.release().await
        };
        let (_, released) = tokio::join!(waiting, released);
        released.expect("still held");
        keeps_nothing_of(cluster, &key).await;
    }
    for polls in 1..8 {
        let locked = lock(&manager, &key).run(async {
            tokio::task::yield_now().await;
            Locked::Ok(())
        });
        lockmacro_tests::drop_after_polls(locked, polls).await;
        keeps_nothing_of(cluster, &key).await;
    }
}

#[tokio::test]
async fn a_dead_waiter_is_skipped() {
    let cluster = shared().await;
    let (holder, next) = (manager(cluster).await, manager(cluster).await);
    let key = key("dead");
    let guard = lock(&holder, &key).acquire().await.expect("free");
    // A waiter whose process is gone: its channel has no subscriber.
    let mut admin = cluster.admin_of(&key);
    let record = format!("9999999999999|60000|0|1|1|lm1:{{{key}}}:gone");
    admin.ask::<()>(&["ZADD", &queue_of(&key), "1", "gone"]);
    admin.ask::<()>(&["HSET", &format!("lm1:ww:{{{key}}}"), "gone", &record]);
    let mut waiting = pin!(lock(&next, &key).wait(FAILOVER_TTL).acquire());
    let mut released = Some(guard);
    let mut start = Instant::now();
    let granted = tokio::select! {
        granted = &mut waiting => granted,
        () = async {
            queue_reaches(cluster, &key, 2).await;
            start = Instant::now();
            released.take().expect("held").release().await.expect("still held");
            std::future::pending::<()>().await
        } => unreachable!(),
    };
    let guard = granted.expect("served");
    assert!(start.elapsed() < ms(4_000), "it waited for the claim of a dead one to end");
    guard.release().await.expect("still held");
    keeps_nothing_of(cluster, &key).await;
}
