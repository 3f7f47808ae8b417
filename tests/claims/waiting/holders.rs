//! Holders that die, and holders that take long: a waiter is served when the lease has ended, and
//! not before.

use std::mem;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use futures::poll;
use lockmacro_runtime::{Lock, LockGuard, LockManager};
use lockmacro_tests::queue::Queue;
use lockmacro_tests::times::IN_TIME;
use lockmacro_tests::{Backend, Clock, Server, eventually, on};
use tokio::time::timeout;

use crate::{
    CONFIRM_WINDOW, Held, KEY, LONG_TTL, Locked, POLLED, PUSHED, handed_off, lock, ms, requests,
    served, timeout_here, waiting,
};

/// Longer than a caller keeps a lock that it has asked for, alone in its process, without being
/// polled: the time of an answer, the patience with a late waiter, and the interval of the sweep.
const ASKED_ALONE: Duration = Duration::from_secs(20);

/// A process that dies leaves a lock that nobody releases.
fn die(guard: LockGuard) {
    mem::forget(guard);
}

/// `virtual_time` claims it on `memory`.
#[tokio::test]
async fn a_dead_holder_is_succeeded_at_its_ttl() {
    const TTL: Duration = ms(100);
    // The lease lasts for as long as the queue needs to form.
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("later");
    let clock = Arc::new(Clock::at(now));
    let server = Server::with_clock(Arc::clone(&clock));
    let patient = async || {
        let builder = LockManager::builder().timeout(LONG_TTL);
        builder.connect(&server.url()).await.expect("the server is there")
    };
    let (ours, theirs) = (patient().await, patient().await);
    let mut queue = Queue::at(&server, KEY);
    die(Lock::new(KEY).ttl(TTL).manager(&ours).acquire().await.expect("free"));
    let first = queue.join(waiting(&theirs, KEY).acquire()).await;
    let second = queue.join(waiting(&theirs, KEY).acquire()).await;
    clock.set(now + TTL - ms(1));
    // Each answer says when the lease ends, and at that time there is a question. Of those that
    // come every two seconds there are fewer.
    let (mut admin, first) = (server.admin(), tokio::spawn(first));
    admin.forget_calls();
    let asked = || std::future::ready(requests(&mut admin) >= 10);
    eventually("it asks at the end of the lease", IN_TIME, asked).await;
    assert!(!first.is_finished(), "the lease of the dead holder is not over");
    clock.set(now + TTL + ms(1));
    served(PUSHED, async { first.await.expect("no panic") }).await;
    served(PUSHED, second).await;
}

#[on(memory, redis, postgres, both_runtimes)]
async fn several_dead_holders_are_succeeded_one_after_the_other(backend: &Backend) {
    const TTL: Duration = ms(600);
    let (ours, theirs, key) = backend.two_managers("order:42").await;
    let mut queue = Queue::of(backend, &key);
    // The first of the short leases begins after all of them are in the queue.
    let before = lock(&ours, &key).acquire().await.expect("free");
    let mut waiters = Vec::new();
    for _ in 0..5 {
        let short = Lock::new(&*key).ttl(TTL).manager(&theirs).wait_forever();
        waiters.push(queue.join(short.acquire()).await);
    }
    // The lease of a holder is over before any other caller has the lock.
    let mut ends = Instant::now();
    before.release().await.expect("still held");
    for waiter in waiters {
        let guard = timeout_here(TTL + POLLED, waiter).await.expect("at the ttl").expect("served");
        let granted = Instant::now();
        assert!(granted >= ends, "{:?} before the end", ends - granted);
        ends = granted + guard.remaining();
        die(guard);
    }
    backend.becomes_free(&key, TTL + PUSHED).await;
}

/// It takes more than five seconds, so it is not done in four ways.
#[on(memory, redis, postgres)]
async fn a_body_longer_than_the_confirm_window_is_held_throughout(backend: &Backend) {
    let (ours, theirs) = (backend.manager().await, backend.manager().await);
    let rival = backend.manager().await;
    let key = backend.key("order:42");
    let guard = lock(&ours, &key).acquire().await.expect("free");
    let body = async {
        let start = Instant::now();
        let mut refused = 0;
        while start.elapsed() < CONFIRM_WINDOW + ms(700) {
            let error = lock(&rival, &key).acquire().await.expect_err("it is held");
            assert!(error.is_busy(), "{error}");
            refused += 1;
            tokio::time::sleep(ms(20)).await;
        }
        Locked::Ok(refused)
    };
    let waiter = Lock::new(&*key).ttl(LONG_TTL / 2).manager(&theirs).wait_forever().run(body);
    let waiter = Queue::of(backend, &key).join(waiter).await;
    guard.release().await.expect("still held");
    assert!(waiter.await.expect("it kept the lock") > 10);
}

#[on(memory, redis, postgres, both_runtimes)]
async fn a_handed_off_lock_is_worth_its_whole_ttl_soon(backend: &Backend) {
    let Held { theirs, key, mut queue, guard, .. } = Held::on(backend).await;
    let waiter = queue.join(waiting(&theirs, &key).acquire()).await;
    guard.release().await.expect("still held");
    let guard = timeout(PUSHED, waiter).await.expect("in time").expect("served");
    assert!(guard.remaining() > CONFIRM_WINDOW / 2, "{:?}", guard.remaining());
    // After a third of the confirm window: a shorter body needs no command for it.
    let confirmed = || std::future::ready(guard.remaining() > LONG_TTL / 2);
    eventually("it is confirmed", CONFIRM_WINDOW / 2, confirmed).await;
    guard.release().await.expect("still held");
}

#[on(memory, redis, postgres, both_runtimes)]
async fn a_renewed_lock_is_handed_off_and_renewed(backend: &Backend) {
    let (ours, theirs, key) = backend.two_managers("order:42").await;
    let renewed = |manager| Lock::new(&*key).ttl(ms(2_500)).renew().manager(manager).wait_forever();
    let guard = renewed(&ours).acquire().await.expect("free");
    let waiter = Queue::of(backend, &key).join(renewed(&theirs).acquire()).await;
    let mut waiter = tokio::spawn(waiter);
    timeout(ms(2_800), &mut waiter).await.expect_err("the holder lives, and renews");
    guard.release().await.expect("still held");
    let guard = timeout(PUSHED, waiter).await.expect("in time").expect("no panic").expect("served");
    let start = Instant::now();
    while start.elapsed() < ms(2_800) {
        assert!(!backend.is_free(&key).await, "after {:?}", start.elapsed());
        tokio::time::sleep(ms(10)).await;
    }
    guard.release().await.expect("still held");
}

#[on(memory, redis, postgres, both_runtimes)]
async fn a_short_lease_that_is_handed_off_is_not_stretched(backend: &Backend) {
    let Held { theirs, key, mut queue, guard, .. } = Held::on(backend).await;
    let waiter = Lock::new(&*key).ttl(ms(200)).manager(&theirs).wait_forever().acquire();
    let waiter = queue.join(waiter).await;
    guard.release().await.expect("still held");
    let guard = timeout(PUSHED, waiter).await.expect("in time").expect("served");
    assert!(guard.remaining() <= ms(200), "{:?}", guard.remaining());
    timeout(PUSHED, guard.lost()).await.expect("its lease is over");
    backend.becomes_free(&key, PUSHED).await;
}

#[on(memory, redis, postgres, both_runtimes)]
async fn a_waiter_that_is_not_polled_delays_other_processes_by_little(backend: &Backend) {
    let Held { theirs, key, mut queue, guard, .. } = Held::on(backend).await;
    let idle = queue.join(waiting(&theirs, &key).acquire()).await;
    let next = queue.join(waiting(&backend.manager().await, &key).acquire()).await;
    guard.release().await.expect("still held");
    served(CONFIRM_WINDOW / 2, next).await;
    drop(idle);
}

#[on(memory, redis, postgres, both_runtimes)]
async fn a_waiter_that_is_not_polled_is_passed_over_by_its_process(backend: &Backend) {
    let (ours, theirs, key) = backend.two_managers("order:42").await;
    let mut queue = Queue::of(backend, &key);
    for ours in [&ours, &theirs] {
        let guard = lock(ours, &key).acquire().await.expect("free");
        let idle = queue.join(waiting(&theirs, &key).acquire()).await;
        let next = queue.join(waiting(&theirs, &key).acquire()).await;
        handed_off(guard, next).await;
        // It has kept its place, and asks when it is polled.
        served(PUSHED, idle).await;
    }
}

/// As in a `select!` whose other branch awaits for long. Its process has no other caller. On one
/// thread: with more of them, the answer may come while the future is polled first.
#[on(slots)]
async fn a_caller_that_has_asked_and_is_not_polled_keeps_the_lock_for_seconds(backend: &Backend) {
    let ours = backend.manager_from(LockManager::builder()).await;
    let theirs = backend.manager().await;
    for waits in [false, true] {
        let key = backend.key(if waits { "order:42" } else { "order:43" });
        let caller = if waits { waiting(&ours, &key) } else { lock(&ours, &key) };
        let mut idle = Box::pin(caller.acquire());
        assert!(poll!(&mut idle).is_pending(), "it has asked");
        let has_it = async || backend.admins().iter_mut().any(|admin| admin.get(&key).is_some());
        eventually("it has the lock", PUSHED, has_it).await;
        let next = timeout(ASKED_ALONE, waiting(&theirs, &key).acquire()).await.expect("in time");
        let next = next.expect("served");
        // It asks again when it is polled.
        match waits {
            true => assert!(timeout(ms(50), &mut idle).await.is_err(), "it waits"),
            false => assert!(timeout(PUSHED, &mut idle).await.expect("in time").is_err(), "busy"),
        }
        next.release().await.expect("still held");
        if waits {
            let guard = timeout(PUSHED, idle).await.expect("in time").expect("served");
            guard.release().await.expect("still held");
        }
        backend.becomes_free(&key, PUSHED).await;
    }
}

#[on(slots)]
async fn a_caller_that_is_not_polled_costs_no_other_one_of_its_process_the_answer(
    backend: &Backend,
) {
    let builder = LockManager::builder().timeout(Duration::from_secs(2));
    let (manager, key) = (backend.manager_from(builder).await, backend.key("order:42"));
    for caller in [lock(&manager, &key), waiting(&manager, &key)] {
        let mut idle = Box::pin(caller.acquire());
        assert!(poll!(&mut idle).is_pending(), "it has asked");
        let guard = lock(&manager, &key).acquire().await.expect("the lock of nobody who runs");
        drop(idle);
        guard.release().await.expect("still held");
        backend.becomes_free(&key, PUSHED).await;
    }
}
