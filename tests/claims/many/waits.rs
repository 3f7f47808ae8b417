//! Waiting for several keys: each in its own queue, in one order, holding those before it.

use std::time::{Duration, Instant};

use lockmacro_runtime::{LockError, LockManager};
use lockmacro_tests::queue::{FAR, Queue};
use lockmacro_tests::{Backend, eventually, on, on_a_plain_thread, queue_of};
use tokio::time::timeout;

use crate::{
    CONFIRM_WINDOW, IN_TIME, LONG_TTL, Locked, become_free, busy_key, free, impatient, keys, lock,
    many, ms, served, two_managers, until_it_holds, waits_until,
};

// There is no queue there, so the first caller is not served first.

#[on(memory, redis, slots, redlock, postgres, both_runtimes)]
async fn a_waiter_gets_all_keys_when_the_last_is_free(backend: &Backend) {
    let (ours, theirs, keys) = two_managers::<3>(backend).await;
    for busy in 0..3 {
        let guard = lock(&theirs, &keys[busy]).acquire().await.expect("free");
        let waiter = many(&ours, &keys).wait(LONG_TTL).acquire();
        let mut waiter = Box::pin(waiter);
        timeout(ms(50), &mut waiter).await.expect_err("one is busy");
        guard.release().await.expect("still held");
        let guard = timeout(IN_TIME, waiter).await.expect("in time").expect("served");
        assert_eq!(free(backend, &keys).await, [false; 3]);
        guard.release().await.expect("still held");
        assert_eq!(free(backend, &keys).await, [true; 3]);
    }
}

#[on(memory, redis, slots, redlock, postgres, both_runtimes)]
async fn each_of_several_busy_keys_is_waited_for(backend: &Backend) {
    let (ours, theirs, keys) = two_managers::<4>(backend).await;
    let mut holders = Vec::new();
    for key in [&keys[0], &keys[2], &keys[3]] {
        holders.push(lock(&theirs, key).acquire().await.expect("free"));
    }
    let mut waiter = Box::pin(many(&ours, &keys).wait(LONG_TTL).acquire());
    // The last first: it does not affect the waiter for the first.
    while let Some(guard) = holders.pop() {
        timeout(ms(50), &mut waiter).await.expect_err("one is busy");
        guard.release().await.expect("still held");
    }
    let guard = timeout(IN_TIME, waiter).await.expect("in time").expect("served");
    assert_eq!(free(backend, &keys).await, [false; 4]);
    guard.release().await.expect("still held");
}

#[on(memory, redis, slots, redlock, postgres, both_runtimes)]
async fn a_waiter_holds_what_is_before_the_busy_key_and_nothing_after_it(backend: &Backend) {
    let (ours, theirs, keys) = two_managers::<4>(backend).await;
    let guard = lock(&theirs, &keys[2]).acquire().await.expect("free");
    let waiter = many(&ours, &keys).wait(LONG_TTL).acquire();
    let waiter = until_it_holds(backend, &keys[1], waiter).await;
    assert_eq!(free(backend, &keys).await, [false, false, false, true]);
    drop(waiter);
    become_free(backend, &keys[..2]).await;
    guard.release().await.expect("still held");
}

#[on(memory, redis, slots, redlock, postgres, both_runtimes)]
async fn a_wait_in_vain_leaves_nothing_and_says_for_which_key(backend: &Backend) {
    // A loaded machine may need longer for an answer than is waited here.
    let ours = backend.manager_from(LockManager::builder().timeout(LONG_TTL / 2)).await;
    let theirs = backend.manager_from(LockManager::builder().label("web-7")).await;
    let keys = keys::<3>(backend);
    for busy in 0..3 {
        let guard = lock(&theirs, &keys[busy]).acquire().await.expect("free");
        let error = many(&ours, &keys).wait(ms(200)).acquire().await.expect_err("busy");
        let LockError::TimedOut { holder, rank, .. } = &error else { panic!("{error}") };
        let owner = &holder.owner;
        assert_eq!((busy_key(&error), owner.as_deref()), (keys[busy].as_str(), Some("web-7")));
        assert_eq!(*rank, 0);
        let others = std::array::from_fn::<_, 3, _>(|nth| nth != busy);
        assert_eq!(free(backend, &keys).await, others, "released before the error is returned");
        guard.release().await.expect("still held");
        become_free(backend, &keys).await;
    }
}

#[on(memory, redis, slots, postgres, both_runtimes)]
async fn the_lease_of_a_waiter_is_whole(backend: &Backend) {
    let (ours, theirs, keys) = two_managers::<2>(backend).await;
    for ttl in [ms(2_000), LONG_TTL] {
        let guard = lock(&theirs, &keys[1]).acquire().await.expect("free");
        let waiter = many(&ours, &keys).ttl(ttl).wait(LONG_TTL).acquire();
        let mut waiter = until_it_holds(backend, &keys[0], waiter).await;
        // Longer than the lease, in all.
        for _ in 0..21 {
            timeout(ms(100), &mut waiter).await.expect_err("one is busy");
        }
        guard.release().await.expect("still held");
        let guard = timeout(IN_TIME, waiter).await.expect("in time").expect("served");
        assert!(guard.remaining() > ttl / 2, "{:?} of {ttl:?}", guard.remaining());
        guard.release().await.expect("still held");
    }
}

#[on(memory, redis, slots, postgres, both_runtimes)]
async fn waiters_for_the_same_keys_are_served_in_order(backend: &Backend) {
    let (theirs, keys) = (backend.manager().await, keys::<3>(backend));
    let guard = many(&theirs, &keys).acquire().await.expect("free");
    let served = std::sync::Mutex::new(Vec::new());
    let mut waiters = Vec::new();
    for nth in 0..6 {
        let (served, mut keys) = (&served, keys.to_vec());
        // Each manager, which stands for a process, names them in another order.
        keys.rotate_left(nth % 3);
        let lock = many(&backend.manager().await, keys).wait(LONG_TTL);
        waiters.push(Box::pin(lock.run(async move {
            served.lock().expect("served").push(nth);
            Locked::Ok(())
        })));
    }
    let mut queue = Queue::of(backend, &keys[0]);
    for (nth, waiter) in waiters.iter_mut().enumerate() {
        assert!(futures::poll!(&mut *waiter).is_pending(), "busy");
        // On `memory://` a waiter joins the queue in its first poll.
        while queue.length().is_some_and(|length| length <= nth) {
            timeout(ms(1), &mut *waiter).await.expect_err("busy");
        }
    }
    guard.release().await.expect("still held");
    for ended in timeout(LONG_TTL / 2, futures::future::join_all(waiters)).await.expect("in time") {
        ended.expect("served");
    }
    assert_eq!(*served.lock().expect("served"), [0, 1, 2, 3, 4, 5]);
}

/// Others hand the second key to each other all the time.
#[on(memory, redis, slots, redlock, postgres, both_runtimes)]
async fn a_key_that_is_never_free_is_had_in_its_turn(backend: &Backend) {
    let (ours, keys) = (backend.manager().await, keys::<2>(backend));
    let mut others = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let (manager, key) = (backend.manager().await, keys[1].clone());
        others.spawn(async move {
            loop {
                let body = async {
                    tokio::time::sleep(ms(2)).await;
                    Locked::Ok(())
                };
                lock(&manager, &key).wait(LONG_TTL).run(body).await.expect("served");
            }
        });
    }
    for _ in 0..10 {
        let waiter = many(&ours, &keys).wait(LONG_TTL).run(async { Locked::Ok(()) });
        timeout(IN_TIME, waiter).await.expect("it is not overtaken for ever").expect("served");
    }
    others.shutdown().await;
    become_free(backend, &keys).await;
}

#[on(memory, redis, slots, postgres, both_runtimes)]
async fn a_shutdown_sends_a_waiter_away(backend: &Backend) {
    let (ours, theirs, keys) = two_managers::<2>(backend).await;
    let guard = lock(&theirs, &keys[1]).acquire().await.expect("free");
    let waiter = many(&ours, &keys).wait_forever().acquire();
    let waiter = until_it_holds(backend, &keys[0], waiter).await;
    let (shut_down, waited) = tokio::join!(ours.shutdown(LONG_TTL), waiter);
    assert_eq!(shut_down, Ok(()));
    assert_eq!(waited.expect_err("closed"), LockError::ShutDown { held: 0 });
    become_free(backend, &keys[..1]).await;
    guard.release().await.expect("still held");
}

#[on(memory, redis, slots, redlock, postgres, both_runtimes)]
async fn a_sync_caller_waits_too(backend: &Backend) {
    let (ours, theirs, keys) = two_managers::<2>(backend).await;
    let guard = lock(&theirs, &keys[1]).acquire().await.expect("free");
    let given = keys.clone();
    let thread = tokio::spawn(on_a_plain_thread(move || {
        many(&ours, &given).wait(LONG_TTL).run_blocking(|| Locked::Ok(7))
    }));
    let held = async || !backend.is_free(&keys[0]).await;
    eventually("it holds the first", IN_TIME, held).await;
    guard.release().await.expect("still held");
    assert_eq!(thread.await.expect("no panic"), Ok(7));
    become_free(backend, &keys).await;
}

#[on(memory, redis, postgres, both_runtimes)]
async fn what_a_waiter_holds_it_holds_for_as_long_as_it_waits(backend: &Backend) {
    let (ours, theirs, keys) = two_managers::<2>(backend).await;
    let guard = lock(&theirs, &keys[1]).acquire().await.expect("free");
    let waiter = many(&ours, &keys).wait_forever().acquire();
    let mut waiter = until_it_holds(backend, &keys[0], waiter).await;
    let start = Instant::now();
    while start.elapsed() < CONFIRM_WINDOW + ms(2_000) {
        timeout(ms(100), &mut waiter).await.expect_err("one is busy");
        assert!(!backend.is_free(&keys[0]).await, "after {:?}", start.elapsed());
    }
    guard.release().await.expect("still held");
    served(waiter).await;
}

#[on(memory, redis, postgres, both_runtimes)]
async fn a_waiter_that_stalls_holds_nothing_for_long_and_begins_again(backend: &Backend) {
    let (ours, theirs, keys) = two_managers::<2>(backend).await;
    let guard = lock(&theirs, &keys[1]).acquire().await.expect("free");
    let waiter = many(&ours, &keys).wait_forever().acquire();
    let waiter = until_it_holds(backend, &keys[0], waiter).await;
    // Nobody polls it any more, for longer than it may hold what it waits with.
    backend.becomes_free(&keys[0], CONFIRM_WINDOW + IN_TIME).await;
    let other = lock(&theirs, &keys[0]).acquire().await.expect("free");
    guard.release().await.expect("still held");
    let mut waiter = waiter;
    timeout(ms(1_000), &mut waiter).await.expect_err("the first key is another's by now");
    assert!(other.is_held());
    other.release().await.expect("still held");
    let guard = timeout(IN_TIME + CONFIRM_WINDOW, waiter).await.expect("in time").expect("served");
    assert_eq!(free(backend, &keys).await, [false; 2]);
    guard.release().await.expect("still held");
}

/// A key that is free for a moment although somebody waits for it.
#[on(redis)]
async fn a_waiter_for_one_key_is_not_overtaken_by_a_request_for_several(backend: &Backend) {
    let (ours, theirs, keys) = two_managers::<2>(backend).await;
    let mut admin = backend.admin().expect("a server");
    for key in &keys {
        admin.ask::<()>(&["SET", key, "php", "PX", "60000"]);
        let mut waiter = Box::pin(lock(&theirs, key).wait(LONG_TTL).acquire());
        let queue = queue_of(key);
        waits_until("it is in the queue", &mut waiter, || admin.ask(&["EXISTS", &queue])).await;
        admin.ask::<()>(&["DEL", &keys[0], &keys[1]]);
        let error = many(&ours, &keys).acquire().await.expect_err("somebody is before us");
        assert_eq!(busy_key(&error), key);
        waiter.await.expect("handed off").release().await.expect("still held");
    }
}

/// A key that is deleted, or taken, while its waiter waits for the next one.
#[on(redis, slots)]
async fn what_is_lost_while_waiting_is_waited_for_again(backend: &Backend) {
    let (ours, theirs, keys) = two_managers::<3>(backend).await;
    let mut admin = backend.admin().expect("a server");
    let last = lock(&theirs, &keys[2]).acquire().await.expect("free");
    let waiter = many(&ours, &keys).wait(LONG_TTL).acquire();
    let mut waiter = until_it_holds(backend, &keys[1], waiter).await;
    admin.ask::<()>(&["DEL", &keys[0]]);
    let first = lock(&theirs, &keys[0]).acquire().await.expect("deleted");
    last.release().await.expect("still held");
    timeout(ms(500), &mut waiter).await.expect_err("it does not have all of them");
    // A waiter for the first key holds nothing.
    become_free(backend, &keys[1..]).await;
    first.release().await.expect("still held");
    let guard = timeout(IN_TIME + CONFIRM_WINDOW, waiter).await.expect("in time").expect("served");
    assert_eq!(free(backend, &keys).await, [false; 3]);
    guard.release().await.expect("still held");
}

#[tokio::test]
async fn a_server_that_goes_away_during_a_wait_is_reported_as_that() {
    let mut server = lockmacro_tests::Server::start();
    let ours = impatient(&server.url(), ms(400)).await;
    let theirs = LockManager::connect(&server.url()).await.expect("there");
    let _busy = lock(&theirs, "order:b").acquire().await.expect("free");
    let waiter = many(&ours, ["order:a", "order:b"]).wait(ms(3_000)).acquire();
    let mut waiter = Box::pin(waiter);
    timeout(ms(200), &mut waiter).await.expect_err("busy");
    server.kill();
    let error = timeout(LONG_TTL / 2, waiter).await.expect("in time").expect_err("gone");
    assert!(matches!(error, LockError::Unavailable { .. }), "{error}");
    let wait = Duration::from_secs(1);
    let error = many(&ours, ["order:a", "order:b"]).wait(wait).acquire().await.expect_err("gone");
    assert!(matches!(error, LockError::Unavailable { .. }), "{error}");
}

/// Queues of 128 dead waiters, in front of a live one at the last key.
#[tokio::test]
async fn a_call_skips_a_bounded_number_of_dead_waiters_of_all_queues() {
    const KEYS: usize = 128;
    let backend = Backend::redis();
    let (ours, theirs) = (backend.manager().await, backend.manager().await);
    let mut admin = backend.admin().expect("one server");
    let keys: Vec<String> = (0..KEYS).map(|nth| format!("order:{nth:03}")).collect();
    let guard = many(&ours, keys.clone()).acquire().await.expect("free");
    for key in &keys {
        Queue::of(&backend, key).crowd(KEYS, FAR);
    }
    let last = keys.last().expect("some").clone();
    let waiter = tokio::spawn(lock(&theirs, &last).wait_forever().acquire());
    Queue::of(&backend, &last).reaches(KEYS + 1).await;
    admin.forget_calls();
    let released = guard.release().await;
    let passed = admin.count(&["zpopmin"]);
    released.expect("still held");
    // Some are skipped by the request that the push causes.
    assert!(passed <= 4 * KEYS as u64, "{passed} were passed in one call");
    // The next request skips a waiter that has left.
    let served = timeout(IN_TIME, waiter).await.expect("in time").expect("no panic");
    served.expect("served").release().await.expect("still held");
    many(&ours, keys).wait(IN_TIME).acquire().await.expect("free").release().await.expect("held");
}
