//! Callers of one process that share a key and come at once are asked for in one call. Each has a
//! token, a lease and an end of its own.

use std::time::Duration;

use futures::future::{join_all, maybe_done};
use futures::poll;
use lockmacro_runtime::{LockError, LockGuard, LockManager};
use lockmacro_tests::queue::Queue;
use lockmacro_tests::{Admin, Backend, Server, eventually, on};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::{
    LONG_TTL, Locked, SOON, TEST_TIMEOUT, held, is_busy, lock, manager, ms, released, soon, waiting,
};

const KEY: &str = "order:42";

/// How many scripts were called since the last time.
fn scripts(admin: &mut Admin) -> u64 {
    let calls = admin.count(&["eval", "evalsha"]);
    admin.forget_calls();
    calls
}

/// A server, and a manager whose scripts are loaded.
async fn served() -> (Server, LockManager) {
    let server = Server::start();
    let manager = manager(&server).await;
    let warm = held(lock(&manager, "other").shared()).await;
    let waits = tokio::spawn(waiting(&manager, "other").acquire());
    released([warm]).await;
    released([waits.await.expect("no panic").expect("free")]).await;
    (server, manager)
}

/// Waits until a waiter is in the queue, where it can be seen.
async fn stands(backend: &Backend, key: &str) {
    let mut queue = Queue::of(backend, key);
    let stands = || std::future::ready(queue.length().is_none_or(|length| length > 0));
    eventually("it waits", TEST_TIMEOUT, stands).await;
}

#[tokio::test]
async fn a_hundred_readers_at_once_cost_a_few_commands_whether_they_would_wait_or_not() {
    for wait in [Duration::ZERO, TEST_TIMEOUT] {
        let (server, manager) = served().await;
        let mut admin = server.admin();
        scripts(&mut admin);
        let reader = || lock(&manager, KEY).shared().wait(wait);
        let guards = join_all((0..100).map(|_| held(reader()))).await;
        let entered = scripts(&mut admin);
        assert!(is_busy(lock(&manager, KEY)).await, "they hold it");
        scripts(&mut admin);
        for end in join_all(guards.into_iter().map(LockGuard::release)).await {
            end.expect("still held");
        }
        let commands = entered + scripts(&mut admin);
        assert_eq!(admin.get(KEY), None);
        assert!(commands <= 20, "{commands} for a hundred readers that wait for {wait:?}");
    }
}

#[tokio::test]
async fn a_hundred_readers_behind_a_writer_enter_by_its_release() {
    let (server, manager) = served().await;
    let mut admin = server.admin();
    let writer = held(lock(&manager, KEY)).await;
    let mut readers = JoinSet::new();
    for _ in 0..100 {
        readers.spawn(waiting(&manager, KEY).shared().acquire());
    }
    Queue::at(&server, KEY).reaches(100).await;
    scripts(&mut admin);
    released([writer]).await;
    let guards = timeout(TEST_TIMEOUT, readers.join_all()).await.expect("all are let in");
    let guards: Vec<_> = guards.into_iter().collect::<Locked<_>>().expect("served");
    released(guards).await;
    assert_eq!(admin.get(KEY), None);
}

#[on(memory, redis, slots, cluster, postgres, both_runtimes)]
async fn the_lock_is_free_when_the_last_of_those_who_came_together_has_ended(backend: &Backend) {
    let (ours, theirs, key) = backend.two_managers(KEY).await;
    let writer = held(lock(&theirs, &key)).await;
    let readers = (0..6).map(|_| tokio::spawn(waiting(&ours, &key).shared().acquire()));
    let readers: Vec<_> = readers.collect();
    stands(backend, &key).await;
    released([writer]).await;
    let readers = readers.into_iter().map(|reader| async { reader.await.expect("no panic") });
    let mut guards = join_all(readers.map(soon)).await;
    while let Some(guard) = guards.pop() {
        assert!(is_busy(lock(&theirs, &key)).await, "{} of them hold it", guards.len() + 1);
        // However each of them ends.
        match guards.len() % 2 {
            0 => released([guard]).await,
            _ => drop(guard),
        }
    }
    backend.becomes_free(&key, TEST_TIMEOUT).await;
}

#[on(memory, redis, slots, cluster, postgres, both_runtimes)]
async fn callers_that_give_up_leave_the_lock_to_the_others(backend: &Backend) {
    let (ours, theirs, key) = backend.two_managers(KEY).await;
    let writer = held(lock(&theirs, &key)).await;
    let mut readers = vec![tokio::spawn(waiting(&ours, &key).shared().acquire())];
    stands(backend, &key).await;
    readers.extend((0..5).map(|_| tokio::spawn(waiting(&ours, &key).shared().acquire())));
    let brief = (0..3).map(|_| lock(&ours, &key).shared().wait(ms(200)).acquire());
    for refused in join_all(brief).await {
        assert!(matches!(refused, Err(LockError::TimedOut { .. })), "{refused:?}");
    }
    // The first one, and others.
    for nth in [5, 3, 0] {
        readers.remove(nth).abort();
    }
    released([writer]).await;
    let served = readers.into_iter().map(|reader| async { reader.await.expect("no panic") });
    released(join_all(served.map(soon)).await).await;
    backend.becomes_free(&key, TEST_TIMEOUT).await;
}

#[on(memory, redis, cluster, postgres)]
async fn each_of_those_who_came_together_has_a_lease_of_its_own(backend: &Backend) {
    let (ours, theirs) = (backend.manager().await, backend.manager().await);
    let (key, ttl) = (backend.key(KEY), ms(2_000));
    let shared = || lock(&ours, &key).shared().ttl(ttl);
    let all = [shared().renew(), shared().renew(), shared(), shared()];
    let guards = join_all(all.map(held)).await;
    // Outlasts two leases.
    tokio::time::sleep(ttl * 2).await;
    let are_held: Vec<_> = guards.iter().map(lockmacro_runtime::LockGuard::is_held).collect();
    assert_eq!(are_held, [true, true, false, false]);
    assert!(is_busy(lock(&theirs, &key)).await);
    drop(guards);
    backend.becomes_free(&key, TEST_TIMEOUT).await;
}

#[on(redis, cluster)]
async fn a_reader_that_is_dropped_leaves_the_lock_to_those_who_came_with_it(backend: &Backend) {
    let (ours, theirs, key) = backend.two_managers(KEY).await;
    let shared = || Box::pin(maybe_done(lock(&ours, &key).shared().acquire()));
    let mut readers: Vec<_> = (0..12).map(|_| shared()).collect();
    for reader in &mut readers {
        // Its request is sent, alone or with others; it may be answered already.
        let _ = poll!(reader);
    }
    drop(readers.split_off(9));
    drop(readers.remove(0));
    for mut reader in readers {
        timeout(SOON, &mut reader).await.expect("served in time");
        released([reader.as_mut().take_output().expect("done").expect("served")]).await;
    }
    released([soon(waiting(&theirs, &key).acquire()).await]).await;
    backend.becomes_free(&key, TEST_TIMEOUT).await;
}

#[on(redis, cluster)]
async fn a_waiting_reader_that_is_not_polled_holds_up_neither_readers_nor_writers(
    backend: &Backend,
) {
    let (ours, theirs, key) = backend.two_managers(KEY).await;
    let writer = held(lock(&theirs, &key)).await;
    let mut readers: Vec<_> =
        (0..4).map(|_| Box::pin(waiting(&ours, &key).shared().acquire())).collect();
    let waits = timeout(ms(100), join_all(readers.iter_mut())).await;
    assert!(waits.is_err(), "the writer holds it");
    let mut last = readers.pop().expect("four");
    released([writer]).await;
    released(join_all(readers.into_iter().map(soon)).await).await;
    // The last one is handed the lock, too. It is not polled, and does not confirm it.
    let next = timeout(TEST_TIMEOUT, waiting(&theirs, &key).acquire()).await;
    let next = next.expect("it has lost its place").expect("served");
    assert!(poll!(&mut last).is_pending(), "beside a writer");
    released([next]).await;
    released([soon(last).await]).await;
    backend.becomes_free(&key, TEST_TIMEOUT).await;
}

/// A caller without `wait` that came together with one that waits.
#[on(redis, cluster)]
async fn a_caller_that_does_not_wait_is_answered_while_others_wait_for_the_server(
    backend: &Backend,
) {
    let (ours, theirs, key) = backend.two_managers(KEY).await;
    let writer = held(lock(&theirs, &key)).await;
    let mut first = Box::pin(waiting(&ours, &key).shared().acquire());
    assert!(poll!(&mut first).is_pending());
    let mut waits = Box::pin(waiting(&ours, &key).shared().acquire());
    let mut brief = Box::pin(lock(&ours, &key).shared().wait(ms(1)).acquire());
    let mut at_once = Box::pin(lock(&ours, &key).shared().acquire());
    assert!(poll!(&mut waits).is_pending() && poll!(&mut brief).is_pending());
    assert!(poll!(&mut at_once).is_pending());
    let refused = timeout(TEST_TIMEOUT, at_once).await.expect("answered");
    assert!(matches!(refused, Err(LockError::Busy { .. })), "{refused:?}");
    let refused = timeout(TEST_TIMEOUT, brief).await.expect("answered");
    assert!(matches!(refused, Err(LockError::TimedOut { .. })), "{refused:?}");
    released([writer]).await;
    let (first, waits) = tokio::join!(soon(first), soon(waits));
    released([first, waits]).await;
    backend.becomes_free(&key, TEST_TIMEOUT).await;
}

#[tokio::test]
async fn a_server_that_fails_keeps_nobody_for_longer_than_it_waits() {
    let server = Server::start();
    let builder = LockManager::builder().timeout(ms(500));
    let manager = builder.connect(&server.url()).await.expect("the server is there");
    released([held(lock(&manager, KEY).shared()).await]).await;
    server.pause();
    let ask = |wait: Option<Duration>| {
        let lock = lock(&manager, KEY).shared();
        match wait {
            Some(wait) => Box::pin(lock.wait(wait).acquire()),
            None => Box::pin(lock.acquire()),
        }
    };
    let (mut first, mut waits) = (ask(Some(LONG_TTL)), ask(Some(LONG_TTL)));
    let (at_once, brief) = (ask(None), ask(Some(ms(700))));
    assert!(poll!(&mut first).is_pending() && poll!(&mut waits).is_pending());
    let refused = timeout(TEST_TIMEOUT, async { tokio::join!(at_once, brief) }).await;
    let (at_once, brief) = refused.expect("not for as long as the others wait");
    let (at_once, brief) = (at_once.expect_err("no server"), brief.expect_err("no server"));
    assert!(
        matches!(at_once, LockError::Unavailable { .. })
            && matches!(brief, LockError::Unavailable { .. }),
        "{at_once}, {brief}"
    );
    server.resume();
    let (first, waits) = tokio::join!(soon(first), soon(waits));
    released([first, waits]).await;
}

#[on(memory, redis, cluster, postgres)]
async fn threads_that_share_a_key_ask_together(backend: &Backend) {
    let (ours, theirs, key) = backend.two_managers(KEY).await;
    let writer = held(lock(&theirs, &key)).await;
    let mut threads = JoinSet::new();
    for _ in 0..6 {
        let lock = waiting(&ours, &key).shared();
        threads.spawn_blocking(move || lock.acquire_blocking());
    }
    let refused = lock(&ours, &key).shared();
    let refused = tokio::task::spawn_blocking(move || refused.acquire_blocking()).await;
    let refused = refused.expect("no panic").expect_err("the writer holds it");
    assert!(refused.is_busy(), "{refused}");
    released([writer]).await;
    let guards = timeout(TEST_TIMEOUT, threads.join_all()).await.expect("all are let in");
    let guards: Vec<_> = guards.into_iter().collect::<Locked<_>>().expect("served");
    assert!(is_busy(lock(&theirs, &key)).await, "they hold it");
    let end = move || guards.into_iter().try_for_each(|guard| guard.release_blocking());
    tokio::task::spawn_blocking(end).await.expect("no panic").expect("still held");
    eventually("the key is free", TEST_TIMEOUT, async || backend.is_free(&key).await).await;
}
