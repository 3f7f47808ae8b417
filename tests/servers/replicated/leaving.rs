//! A future that is dropped at any point leaves nothing behind.

use futures::future::join_all;
use lockmacro_tests::{Polled, drop_after_polls, with_replicas};
use tokio::time::timeout;

use crate::*;

/// More polls than any of these futures needs.
const ENOUGH: usize = 400;

#[tokio::test]
async fn an_acquire_dropped_at_any_point_leaves_nothing() {
    let servers = with_replicas(1).await;
    let manager = manager(&servers[0], 1).await;
    for polls in 0..ENOUGH {
        let polled = drop_after_polls(lock(&manager).acquire(), polls).await;
        let done = matches!(&polled, Polled::Completed(Ok(_)));
        drop(polled);
        keeps_nothing(&servers[0]).await;
        if done {
            return queue_reaches(&servers[0], 0).await;
        }
    }
    panic!("it never completed");
}

#[tokio::test]
async fn a_waiter_dropped_at_any_point_of_its_grant_leaves_nothing() {
    let servers = with_replicas(1).await;
    let (holder, waiter) = (plain(&servers[0]).await, manager(&servers[0], 1).await);
    let mut admin = servers[0].admin();
    for polls in 1..ENOUGH {
        // The last dropped request may have been in flight, and is released after its arrival.
        let guard = lock(&holder).wait(FAILOVER_TTL).acquire().await.expect("free");
        let waiting =
            tokio::spawn(drop_after_polls(lock(&waiter).wait(FAILOVER_TTL).acquire(), polls));
        eventually("it is in the queue, or gone", FAILOVER, || {
            let line: usize = admin.ask(&["ZCARD", "lm1:wq:{order:42}"]);
            std::future::ready(line == 1 || waiting.is_finished())
        })
        .await;
        guard.release().await.expect("held");
        let polled = timeout(FAILOVER, waiting).await.expect("in time").expect("no panic");
        let done = matches!(&polled, Polled::Completed(Ok(_)));
        drop(polled);
        keeps_nothing(&servers[0]).await;
        if done {
            return;
        }
    }
    panic!("it never completed");
}

/// More of them than there are connections to wait by.
#[tokio::test]
async fn a_caller_dropped_while_replicas_are_waited_for_leaves_nothing() {
    let servers = with_replicas(1).await;
    let manager = patient(&servers[0], 1, FAILOVER).await;
    servers[1].pause();
    for _ in 0..20 {
        let waiting = tokio::spawn(lock(&manager).acquire());
        queue_reaches(&servers[0], 1).await;
        waiting.abort();
        assert!(waiting.await.is_err_and(|error| error.is_cancelled()));
        queue_reaches(&servers[0], 0).await;
        keeps_nothing(&servers[0]).await;
    }
    servers[1].resume();
    lock(&manager).acquire().await.expect("free").release().await.expect("held");
}

/// More of them than there are connections to wait by: some wait for one.
#[tokio::test]
async fn a_caller_that_is_not_polled_blocks_no_connection_and_has_its_lock_when_it_is() {
    let servers = with_replicas(1).await;
    let manager = patient(&servers[0], 1, FAILOVER_TTL).await;
    servers[1].pause();
    let each =
        (0..20).map(|nth| Lock::new(format!("order:{nth}")).ttl(FAILOVER_TTL).manager(&manager));
    let mut left_alone = Box::pin(join_all(each.map(|lock| lock.acquire())));
    tokio::select! {
        answers = &mut left_alone => panic!("without a replica: {answers:?}"),
        () = queue_reaches(&servers[0], 16) => {}
    }
    servers[1].resume();
    let other = Lock::new("order:other").ttl(FAILOVER_TTL).manager(&manager).acquire();
    let other = timeout(FAILOVER, other).await.expect("it has its turn").expect("free");
    other.release().await.expect("held");
    for answer in left_alone.await {
        answer.expect("acknowledged").release().await.expect("held");
    }
    keeps_nothing(&servers[0]).await;
}
