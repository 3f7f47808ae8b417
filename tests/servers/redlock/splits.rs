//! Callers that ask at the same moment, none of which gets a majority.

use lockmacro_runtime::{LockError, LockGuard, LockManager, LockManagerBuilder};
use lockmacro_tests::{Proxy, eventually, in_time};
use tokio::task::JoinHandle;

use crate::{IN_TIME, LONG_TTL, Nodes, connected, lock, ms};

type Asking = JoinHandle<Result<LockGuard, LockError>>;

/// Two callers with one node each: each is close to one that is far from the other. A third one has
/// the third.
struct Split {
    nodes: Nodes,
    managers: [LockManager; 2],
    far: [Proxy; 2],
}

impl Split {
    async fn new() -> Split {
        let nodes = Nodes::start(3);
        let far = [Proxy::to(nodes.0[1].port()), Proxy::to(nodes.0[0].port())];
        let (near, third) = ([nodes.0[0].url(), nodes.0[1].url()], nodes.0[2].url());
        let manager = async |builder: LockManagerBuilder, urls: [String; 3]| {
            // So that each is waited for as long as it takes.
            let builder = builder.durable().timeout(IN_TIME * 4).node_timeout(IN_TIME);
            let manager = connected(builder, urls.into()).await;
            nodes.are_known_to(&manager).await;
            manager
        };
        let builder = LockManager::builder;
        let managers = [
            manager(builder().label("one"), [&near[0], &far[0].url(), &third].map(String::clone))
                .await,
            manager(builder().label("two"), [&far[1].url(), &near[1], &third].map(String::clone))
                .await,
        ];
        nodes.hold(&[2], "somebody else's");
        // Longer than it takes both to ask.
        far.iter().for_each(|far| far.delay(ms(2_000)));
        Split { nodes, managers, far }
    }

    /// Has both ask, and waits until the nodes are split between them.
    async fn ask(&self, wait: bool) -> [Asking; 2] {
        let asking = self.managers.each_ref().map(|manager| {
            let lock = lock(manager);
            let lock = if wait { lock.wait(LONG_TTL) } else { lock };
            tokio::spawn(lock.acquire())
        });
        let label = |value: &Option<String>| value.as_ref().map(|value| value[..3].to_owned());
        let split = || {
            let values = self.nodes.values();
            let labels = (label(&values[0]), label(&values[1]));
            std::future::ready(labels == (Some("one".to_owned()), Some("two".to_owned())))
        };
        eventually("each has one node", IN_TIME, split).await;
        self.far.iter().for_each(|far| far.delay(ms(50)));
        asking
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_callers_that_split_the_nodes_one_wins_and_the_other_is_busy() {
    let split = Split::new().await;
    let [one, two] = split.ask(false).await;
    let (one, two) = in_time(async { (one.await, two.await) }).await;
    let results = [one.expect("no panic"), two.expect("no panic")];
    let won = results.iter().filter(|result| result.is_ok()).count();
    assert_eq!(won, 1, "{results:?}");
    for result in results {
        match result {
            Ok(guard) => guard.release().await.expect("released"),
            Err(error) => {
                assert!(error.is_busy() && error.holder().free_within.is_some(), "{error}")
            }
        }
    }
    split.nodes.free(&[2]);
    split.nodes.keep_nothing().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_waiters_that_split_the_nodes_both_are_served() {
    let split = Split::new().await;
    let waiters = split.ask(true).await.map(|asking| {
        tokio::spawn(async move {
            let guard = asking.await.expect("no panic").expect("served");
            guard.release().await.expect("released");
        })
    });
    for waiter in waiters {
        in_time(waiter).await.expect("served");
    }
    split.nodes.free(&[2]);
    split.nodes.keep_nothing().await;
}
