//! Callers of one process that want one key or several: their order, and what a caller of several
//! keys costs.

use std::cell::RefCell;
use std::time::Duration;

use futures::future::join_all;
use futures::poll;
use lockmacro_runtime::{LockError, LockManager};
use lockmacro_tests::{Backend, on, queue_of, spawn_polled};
use tokio::time::timeout;

use crate::{CONFIRM_WINDOW, IN_TIME, LONG_TTL, Locked, become_free, keys, lock, many, ms};

#[on(memory, redis, slots, redlock, both_runtimes)]
async fn callers_of_one_key_and_of_several_are_served_in_the_order_of_arrival(backend: &Backend) {
    let manager = backend.manager().await;
    let keys = keys::<3>(backend);
    let guard = lock(&manager, &keys[0]).acquire().await.expect("free");
    let served = RefCell::new(Vec::new());
    let mut waiters = Vec::new();
    for nth in 0..6 {
        let (served, mut keys) = (&served, keys.to_vec());
        let body = async move {
            served.borrow_mut().push(nth);
            Locked::Ok(())
        };
        // Every other caller wants the first key alone.
        keys.truncate(if nth % 2 == 0 { 3 } else { 1 });
        let mut waiter = Box::pin(many(&manager, keys).wait(LONG_TTL).run(body));
        assert!(poll!(&mut waiter).is_pending(), "busy");
        waiters.push(waiter);
    }
    guard.release().await.expect("still held");
    for ended in timeout(IN_TIME, join_all(waiters)).await.expect("in time") {
        ended.expect("served");
    }
    assert_eq!(*served.borrow(), [0, 1, 2, 3, 4, 5]);
}

#[on(memory, redis, slots, redlock, both_runtimes)]
async fn callers_of_overlapping_keys_all_have_their_turn(backend: &Backend) {
    let manager = backend.manager().await;
    let keys = keys::<4>(backend);
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

/// Which of the keys is held does not matter, nor whether the holder has several.
#[on(redis, slots)]
async fn a_caller_of_several_keys_is_refused_by_its_own_process_without_a_command(
    backend: &Backend,
) {
    let manager = backend.manager().await;
    let keys = keys::<3>(backend);
    let mut admin = backend.admin().expect("a server");
    let scripts = |admin: &mut lockmacro_tests::Admin| {
        let calls = admin.calls();
        calls.iter().filter(|(name, _)| name.starts_with("eval") || name == "set").count()
    };
    for held in [&keys[..1], &keys[2..], &keys[1..]] {
        let guard = many(&manager, held).acquire().await.expect("free");
        admin.forget_calls();
        let refused = many(&manager, &keys).acquire().await.expect_err("one is held");
        assert!(matches!(&refused, LockError::Busy { key, .. } if key.as_str() == held[0]));
        assert!(refused.free_within() > Some(LONG_TTL / 2), "{refused:?}");
        let refused = lock(&manager, &held[0]).acquire().await.expect_err("it is held");
        assert!(refused.is_busy(), "{refused:?}");
        assert_eq!(scripts(&mut admin), 0);
        guard.release().await.expect("still held");
    }
    let all = many(&manager, &keys).acquire().await.expect("free again");
    all.release().await.expect("still held");
}

#[on(redis, slots)]
async fn the_waiters_of_a_process_have_one_place_on_the_server(backend: &Backend) {
    let (ours, theirs) = (backend.manager().await, backend.manager().await);
    let keys = keys::<2>(backend);
    let mut admin = backend.admin().expect("a server");
    let guard = many(&theirs, &keys).acquire().await.expect("free");
    let waiting = || many(&ours, &keys).wait(LONG_TTL).run(async { Locked::Ok(()) });
    let mut first = Box::pin(waiting());
    let queue = queue_of(&keys[0]);
    while admin.ask::<usize>(&["ZCARD", &queue]) == 0 {
        timeout(ms(1), &mut first).await.expect_err("busy");
    }
    admin.forget_calls();
    let mut others = join_all((0..100).map(|_| waiting()));
    timeout(ms(200), &mut others).await.expect_err("busy");
    let asked = |(name, calls): &(String, u64)| {
        if name.starts_with("eval") || name == "set" { *calls } else { 0 }
    };
    let asked: u64 = admin.calls().iter().map(asked).sum();
    assert!(asked < 10, "only the first of them asks: {asked}");
    assert_eq!(admin.ask::<usize>(&["ZCARD", &queue]), 1);
    guard.release().await.expect("still held");
    timeout(IN_TIME, first).await.expect("in time").expect("served");
    for ended in timeout(IN_TIME, others).await.expect("in time") {
        ended.expect("served");
    }
}

#[on(redis, slots, both_runtimes)]
async fn a_lock_on_several_keys_has_a_token_of_its_own(backend: &Backend) {
    let manager = backend.manager_from(LockManager::builder().turn(ms(1_000))).await;
    let keys = keys::<2>(backend);
    let mut admin = backend.admin().expect("a server");
    let (mut tokens, mut waiters) = (Vec::new(), Vec::new());
    let mut guard = lock(&manager, &keys[0]).acquire().await.expect("free");
    for count in [1, 2, 1, 2] {
        let waiter = many(&manager, &keys[..count]).wait(LONG_TTL).acquire();
        let mut waiter = Box::pin(waiter);
        assert!(poll!(&mut waiter).is_pending(), "busy");
        waiters.push(waiter);
    }
    for waiter in waiters {
        tokens.push(admin.get(&keys[0]).expect("held"));
        guard.release().await.expect("still held");
        guard = timeout(IN_TIME, waiter).await.expect("in time").expect("served");
    }
    tokens.push(admin.get(&keys[0]).expect("held"));
    assert_eq!(admin.get(&keys[1]), tokens.last().cloned());
    guard.release().await.expect("still held");
    assert_eq!(tokens[0], tokens[1], "passed on");
    tokens.dedup();
    assert_eq!(tokens.len(), 4, "{tokens:?}");
}

/// In the line of the first key, in that of the second one, and while it asks the store.
#[on(memory, redis, slots, both_runtimes)]
async fn a_caller_of_several_keys_that_leaves_lets_the_next_one_have_its_turn(backend: &Backend) {
    let (ours, theirs) = (backend.manager().await, backend.manager().await);
    let keys = keys::<2>(backend);
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
            // Sooner than the lines go on without a caller that says nothing.
            timeout(CONFIRM_WINDOW / 2, ended)
                .await
                .expect("in time")
                .expect("no panic")
                .expect("served");
        }
    }
    become_free(backend, &keys).await;
}

/// Its turn lapses, and it has its turn again once it is polled.
#[on(memory, redis, slots, redlock)]
async fn a_caller_of_several_keys_that_is_not_polled_holds_up_nobody(backend: &Backend) {
    let manager = backend.manager().await;
    let keys = keys::<2>(backend);
    let guard = lock(&manager, &keys[0]).acquire().await.expect("free");
    let mut sleeper = Box::pin(many(&manager, &keys).wait(LONG_TTL).acquire());
    assert!(poll!(&mut sleeper).is_pending(), "busy");
    let next = lock(&manager, &keys[0]).wait(LONG_TTL).run(async { Locked::Ok(()) });
    let next = spawn_polled(next).await;
    guard.release().await.expect("still held");
    timeout(IN_TIME, next).await.expect("in time").expect("no panic").expect("served");
    let guard = timeout(IN_TIME, sleeper).await.expect("in time").expect("its turn again");
    guard.release().await.expect("still held");
    become_free(backend, &keys).await;
}

/// As the head of the first line, while it waits in the second one.
#[on(memory, redis)]
async fn a_caller_that_waits_for_its_second_key_keeps_its_first_line(backend: &Backend) {
    let manager = backend.manager().await;
    let keys = keys::<2>(backend);
    let guard = lock(&manager, &keys[1]).acquire().await.expect("free");
    let waiter = many(&manager, &keys).wait(LONG_TTL).acquire();
    let waiter = spawn_polled(waiter).await;
    let single = spawn_polled(lock(&manager, &keys[0]).wait(LONG_TTL).acquire()).await;
    let refused = lock(&manager, &keys[0]).acquire().await.expect_err("its process waits for it");
    assert!(matches!(&refused, LockError::Busy { holder, .. } if holder.owner.is_none()));
    let wait = Duration::from_millis(400);
    let late = lock(&manager, &keys[0]).wait(wait).acquire().await.expect_err("two are before it");
    assert!(matches!(late, LockError::TimedOut { rank: 2, .. }), "{late:?}");
    guard.release().await.expect("still held");
    let both = timeout(IN_TIME, waiter).await.expect("in time").expect("no panic").expect("served");
    assert!(!single.is_finished(), "it comes after the caller of both");
    both.release().await.expect("still held");
    let single = timeout(IN_TIME, single).await.expect("in time").expect("no panic");
    single.expect("served").release().await.expect("still held");
}
