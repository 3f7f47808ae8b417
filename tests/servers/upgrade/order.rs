//! Waiters of both versions stand in one queue, and each hands the lock to the other by a push.

use lockmacro_tests::AcquireFenced as _;
use lockmacro_tests::queue::Queue;
use lockmacro_tests::times::{PUSHED, ms};
use tokio::time::timeout;

use crate::client::{Program, Request};
use crate::{free, is_busy, lock, manager, nothing_is_left, released, several, two_versions};

const KEY: &str = "order:42";

/// Awaits what a push must bring.
async fn pushed<T>(grant: impl Future<Output = T>) -> T {
    timeout(PUSHED, grant).await.expect("handed over by a push")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_of_both_versions_are_served_in_the_order_of_arrival() {
    let (server, ours, mut earlier) = two_versions().await;
    let mut queue = Queue::at(&server, KEY);
    let mut programs = [Program::on(&server), Program::on(&server)];
    let [second, fourth] = &mut programs;
    // Of two managers, or both would stand in the queue of one process.
    let other = manager(&server).await;
    let waiting = |manager| lock(manager, KEY, 1).wait_forever().acquire_fenced();
    let request = || Request::of(KEY).fenced();

    let theirs = earlier.ask(request()).expect("free");
    let first = queue.join(waiting(&ours)).await;
    let second = queue.join(second.acquire(request())).await;
    let third = queue.join(waiting(&other)).await;
    let mut fourth = queue.join(fourth.acquire(request())).await;
    assert_eq!(queue.length(), Some(4));
    assert!(is_busy(lock(&manager(&server).await, KEY, 1)).await);

    assert!(earlier.release(&theirs));
    let (guard, fences) = pushed(first).await.expect("served");
    assert!(theirs.fences[0][1] < u64::from(fences[0]));
    assert_eq!(queue.length(), Some(3));
    released(guard).await;
    let held = pushed(second).await;
    assert!(u64::from(fences[0]) < held.fences[0][0]);
    assert!(earlier.renew(&held) && earlier.release(&held));
    let (guard, fences) = pushed(third).await.expect("served");
    assert!(held.fences[0][1] < u64::from(fences[0]));
    // Nothing happens while that one holds the lock.
    assert!(timeout(ms(60), &mut fourth).await.is_err(), "it has overtaken");
    released(guard).await;
    let held = pushed(fourth).await;
    assert!(u64::from(fences[0]) < held.fences[0][0]);
    assert!(earlier.release(&held));
    nothing_is_left(&server);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_release_lets_in_the_shared_waiters_of_both_versions() {
    let (server, ours, mut earlier) = two_versions().await;
    let mut queue = Queue::at(&server, KEY);
    let mut programs = [Program::on(&server), Program::on(&server)];
    let [reader, writer] = &mut programs;
    let other = manager(&server).await;
    for held_by_earlier in [true, false] {
        let theirs = held_by_earlier.then(|| earlier.ask(Request::of(KEY)).expect("free"));
        let guard = if held_by_earlier { None } else { Some(free(lock(&ours, KEY, 1)).await) };
        let shared = queue.join(lock(&other, KEY, 0).wait_forever().acquire()).await;
        let theirs_shared = queue.join(reader.acquire(Request::of(KEY).permits(0))).await;
        let mut alone = queue.join(writer.acquire(Request::of(KEY))).await;
        assert!(theirs.is_none_or(|held| earlier.release(&held)));
        if let Some(guard) = guard {
            released(guard).await;
        }
        let shared = pushed(shared).await.expect("served");
        let theirs_shared = pushed(theirs_shared).await;
        assert!(earlier.ask(Request::of(KEY).permits(0)).is_none(), "it would overtake");
        assert!(is_busy(lock(&ours, KEY, 0)).await, "it would overtake");
        released(shared).await;
        assert!(timeout(ms(60), &mut alone).await.is_err(), "beside a shared holder");
        assert!(earlier.release(&theirs_shared));
        let alone = pushed(alone).await;
        assert!(is_busy(lock(&ours, KEY, 0)).await && earlier.release(&alone));
    }
    nothing_is_left(&server);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_for_several_keys_gets_them_from_the_earlier_version() {
    let (server, ours, mut earlier) = two_versions().await;
    let keys = ["a", "b"].map(str::to_owned);
    for key in &keys {
        let theirs = earlier.ask(Request::of(key)).expect("free");
        let mut queue = Queue::at(&server, key);
        let waiter = queue.join(several(&ours, &keys).wait_forever().acquire()).await;
        assert!(earlier.release(&theirs));
        let guard = pushed(waiter).await.expect("served");
        assert!(keys.iter().all(|key| earlier.ask(Request::of(key)).is_none()));
        released(guard).await;
    }
    let theirs = earlier.ask(Request::of_all(&keys)).expect("free");
    let waiter = Queue::at(&server, "b").join(lock(&ours, "b", 1).wait_forever().acquire()).await;
    assert!(earlier.release(&theirs));
    released(pushed(waiter).await.expect("served")).await;
    nothing_is_left(&server);
}
