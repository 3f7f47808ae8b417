//! Callers of one process that want one key or several: their order, and that none holds up
//! another.

use std::cell::RefCell;

use futures::future::join_all;
use futures::poll;
use lockmacro_tests::queue::Queue;
use lockmacro_tests::{Backend, on, spawn_polled};
use tokio::time::timeout;

use crate::{
    CONFIRM_WINDOW, IN_TIME, LONG_TTL, Locked, become_free, keys, lock, many, ms, served,
    two_managers,
};

/// Callers of one key have one place at the store, and each caller of several keys has its own.
#[on(memory, redis, slots, postgres, both_runtimes)]
async fn callers_of_several_keys_are_served_in_the_order_of_arrival_beside_those_of_one(
    backend: &Backend,
) {
    let (manager, keys) = (backend.manager().await, keys::<3>(backend));
    let guard = lock(&manager, &keys[0]).acquire().await.expect("free");
    let (served, mut queue) = (RefCell::new(Vec::new()), Queue::of(backend, &keys[0]));
    let mut waiters = Vec::new();
    for nth in 0..6 {
        let (served, mut keys) = (&served, keys.to_vec());
        let body = async move {
            served.borrow_mut().push(nth);
            Locked::Ok(())
        };
        // Every other caller wants the first key alone.
        keys.truncate(if nth % 2 == 0 { 3 } else { 1 });
        // Two that come within a round trip may overtake each other.
        waiters.push(queue.join(many(&manager, keys).wait(LONG_TTL).run(body)).await);
    }
    guard.release().await.expect("still held");
    for ended in timeout(IN_TIME, join_all(waiters)).await.expect("in time") {
        ended.expect("served");
    }
    let served = served.borrow();
    let of = |parity| served.iter().copied().filter(|nth| nth % 2 == parity).collect::<Vec<_>>();
    assert_eq!((of(0), of(1)), (vec![0, 2, 4], vec![1, 3, 5]));
}

#[on(memory, redis, slots, redlock, postgres, both_runtimes)]
async fn callers_of_overlapping_keys_all_have_their_turn(backend: &Backend) {
    let (manager, keys) = (backend.manager().await, keys::<4>(backend));
    let holders = RefCell::new([0; 4]);
    let callers = (0..24).map(|nth| {
        let (manager, holders) = (manager.clone(), &holders);
        let (first, second) = (nth % 4, (nth / 4 + nth + 1) % 4);
        let wanted = [keys[first].clone(), keys[second].clone()];
        async move {
            let body = async {
                let holds = |change| [first, second].map(|nth| holders.borrow_mut()[nth] += change);
                holds(1);
                tokio::task::yield_now().await;
                let both = [first, second].map(|nth| holders.borrow()[nth]);
                holds(-1);
                Locked::Ok(both)
            };
            if first == second {
                let both = lock(&manager, &wanted[0]).wait(LONG_TTL).run(body).await;
                assert_eq!(both.expect("served"), [2, 2], "alone, counted twice");
            } else {
                let both = many(&manager, wanted).wait(LONG_TTL).run(body).await;
                assert_eq!(both.expect("served"), [1, 1]);
            }
        }
    });
    timeout(IN_TIME, join_all(callers)).await.expect("in time");
    become_free(backend, &keys).await;
}

/// While it waits for the first key, and for the second one.
#[on(memory, redis, slots, postgres, both_runtimes)]
async fn a_caller_of_several_keys_that_leaves_lets_the_next_one_have_its_turn(backend: &Backend) {
    let (ours, theirs, keys) = two_managers::<2>(backend).await;
    for held in 0..3 {
        let holder = if held == 2 { &theirs } else { &ours };
        let guard = lock(holder, &keys[held.min(1)]).acquire().await.expect("free");
        let waiter = many(&ours, &keys).wait(LONG_TTL).acquire();
        let mut waiter = Box::pin(waiter);
        assert!(timeout(ms(20), &mut waiter).await.is_err(), "busy");
        let next = spawn_polled(many(&ours, &keys).wait(LONG_TTL).run(async { Locked::Ok(()) }));
        let single = lock(&ours, &keys[0]).wait(LONG_TTL).run(async { Locked::Ok(()) });
        let (next, single) = (next.await, spawn_polled(single).await);
        drop(waiter);
        guard.release().await.expect("still held");
        for ended in [next, single] {
            // Sooner than a key that was handed off to a caller that is gone.
            timeout(CONFIRM_WINDOW / 2, ended)
                .await
                .expect("in time")
                .expect("no panic")
                .expect("served");
        }
    }
    become_free(backend, &keys).await;
}

#[on(memory, redis, slots, redlock, postgres)]
async fn a_caller_of_several_keys_that_is_not_polled_holds_up_nobody(backend: &Backend) {
    let (manager, keys) = (backend.manager().await, keys::<2>(backend));
    let guard = lock(&manager, &keys[0]).acquire().await.expect("free");
    let mut sleeper = Box::pin(many(&manager, &keys).wait(LONG_TTL).acquire());
    assert!(poll!(&mut sleeper).is_pending(), "busy");
    let next = lock(&manager, &keys[0]).wait(LONG_TTL).run(async { Locked::Ok(()) });
    let next = spawn_polled(next).await;
    guard.release().await.expect("still held");
    timeout(IN_TIME, next).await.expect("in time").expect("no panic").expect("served");
    served(sleeper).await;
    become_free(backend, &keys).await;
}

#[on(memory, redis, postgres)]
async fn a_caller_that_waits_for_its_second_key_keeps_its_first_one(backend: &Backend) {
    let (manager, keys) = (backend.manager().await, keys::<2>(backend));
    let guard = lock(&manager, &keys[1]).acquire().await.expect("free");
    let waiter = many(&manager, &keys).wait(LONG_TTL).acquire();
    let waiter = spawn_polled(waiter).await;
    while let Ok(guard) = lock(&manager, &keys[0]).acquire().await {
        guard.release().await.expect("still held");
    }
    let single = spawn_polled(lock(&manager, &keys[0]).wait(LONG_TTL).acquire()).await;
    guard.release().await.expect("still held");
    let both = timeout(IN_TIME, waiter).await.expect("in time").expect("no panic").expect("served");
    assert!(!single.is_finished(), "it comes after the caller of both");
    both.release().await.expect("still held");
    let single = timeout(IN_TIME, single).await.expect("in time").expect("no panic");
    single.expect("served").release().await.expect("still held");
}
