//! Waiters are served in the order of their requests, by a hand-off and not by a race.

use std::cell::RefCell;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures::future::join_all;
use lockmacro_runtime::LockGuard;
use lockmacro_tests::AcquireFenced as _;
use lockmacro_tests::queue::{FAR, Queue};
use lockmacro_tests::times::TEST_TIMEOUT;
use lockmacro_tests::{Admin, Backend, Server, eventually, on, queue_of};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::{
    Held, KEY, LONG_TTL, Locked, POLLED, PUSHED, handed_off, lock, ms, requests, served, waiting,
};

/// The time in which a waiter takes up a lock that was passed to it. After each such time twice as
/// many callers of its process may take it up, and the first of them that is polled does.
const TAKE_UP: Duration = ms(50);

/// The turns of a queue.
struct Turns {
    order: Vec<usize>,
    /// When the last holder began to release the lock.
    released: Instant,
    /// How many callers may have been passed over while nobody held the lock.
    passed_over: usize,
}

impl Turns {
    /// They begin with a release.
    fn begin() -> Arc<Mutex<Turns>> {
        let turns = Turns { order: Vec::new(), released: Instant::now(), passed_over: 0 };
        Arc::new(Mutex::new(turns))
    }

    fn passed_over(&self) -> usize {
        let widened = self.released.elapsed().as_millis() / TAKE_UP.as_millis();
        self.passed_over + (1 << widened.min(16)) - 1
    }

    fn take(&mut self, nth: usize) {
        self.passed_over = self.passed_over();
        self.order.push(nth);
    }

    /// Nobody overtook a waiter that is one of `which`, but for those that were passed over. On a
    /// machine that polls its tasks none does, and the order is exact.
    fn are_in_order(&self, which: impl Fn(usize) -> bool) {
        let (mut last, mut overtaken) = (0, 0);
        for nth in self.order.iter().copied().filter(|nth| which(*nth)) {
            overtaken += usize::from(nth < last);
            last = last.max(nth);
        }
        let Self { order, passed_over, .. } = self;
        assert!(overtaken <= *passed_over, "{overtaken} overtaken, not {passed_over}: {order:?}");
    }
}

/// Serves `waiters`, each of which holds the lock for as long as `body`.
async fn serve<F, B>(turns: Arc<Mutex<Turns>>, waiters: Vec<F>, body: impl Fn() -> B)
where
    F: Future<Output = Locked<LockGuard>> + Send + 'static,
    B: Future<Output = ()> + Send + 'static,
{
    let mut tasks = JoinSet::new();
    for (nth, waiter) in waiters.into_iter().enumerate() {
        let (turns, body) = (Arc::clone(&turns), body());
        tasks.spawn(async move {
            let guard = waiter.await.expect("served");
            turns.lock().unwrap().take(nth);
            body.await;
            turns.lock().unwrap().released = Instant::now();
            guard.release().await.expect("still held");
        });
    }
    tasks.join_all().await;
}

fn short() -> impl Future<Output = ()> + Send + 'static {
    tokio::time::sleep(ms(1))
}

/// Between processes it goes round by turns, of which each may serve several waiters.
async fn are_served_in_the_order_of_asking(backend: &Backend, waiters: usize, processes: usize) {
    let mut managers = Vec::new();
    for _ in 0..processes {
        managers.push(backend.manager().await);
    }
    let process = |nth: usize| nth * 7 % processes;
    let key = backend.key(KEY);
    let mut queue = Queue::of(backend, &key);
    let guard = lock(&managers[0], &key).acquire().await.expect("free");
    let mut all = Vec::new();
    for nth in 0..waiters {
        let waiter = waiting(&managers[process(nth)], &key).acquire();
        all.push(match process(nth) {
            0 => Queue::join_its_process(waiter).await,
            _ => queue.join(waiter).await,
        });
    }
    let turns = Turns::begin();
    let served = serve(Arc::clone(&turns), all, short);
    let ((), released) = tokio::join!(served, guard.release());
    released.expect("still held");
    let turns = turns.lock().unwrap();
    assert_eq!(turns.order.len(), waiters);
    for one in 0..processes {
        turns.are_in_order(|nth| process(nth) == one);
    }
}

#[on(memory, redis, cluster, postgres, both_runtimes)]
async fn a_hundred_waiters_get_the_lock_in_the_order_of_asking(backend: &Backend) {
    are_served_in_the_order_of_asking(backend, 100, 1).await;
}

#[on(memory, redis, cluster, postgres, both_runtimes)]
async fn waiters_of_each_process_get_the_lock_in_the_order_of_asking(backend: &Backend) {
    are_served_in_the_order_of_asking(backend, 40, 4).await;
}

#[on(memory, redis, cluster, postgres, both_runtimes)]
async fn a_body_that_returns_hands_the_lock_off(backend: &Backend) {
    let (ours, theirs, key) = backend.two_managers(KEY).await;
    let mut next = None;
    let body = lock(&ours, &key).run(async {
        let waiter = waiting(&theirs, &key).run(async { Locked::Ok(2) });
        let mut waiter = Queue::of(backend, &key).join(waiter).await;
        assert!(futures::poll!(&mut waiter).is_pending(), "the body runs");
        next = Some(waiter);
        Locked::Ok(1)
    });
    assert_eq!(body.await, Ok(1));
    let next = timeout(PUSHED, next.expect("it waits")).await;
    assert_eq!(next.expect("in time"), Ok(2));
}

#[on(memory, redis, cluster, postgres, both_runtimes)]
async fn a_guard_that_is_dropped_hands_the_lock_off(backend: &Backend) {
    let Held { theirs, key, mut queue, guard, .. } = Held::on(backend).await;
    let next = queue.join(waiting(&theirs, &key).acquire()).await;
    drop(guard);
    served(PUSHED, next).await;
}

#[on(memory, redis, cluster, postgres, both_runtimes)]
async fn bodies_of_waiters_never_overlap(backend: &Backend) {
    let key = backend.key("order:42");
    let number = Arc::new(Mutex::new(0_u32));
    let mut tasks = JoinSet::new();
    for _ in 0..4 {
        let manager = backend.manager().await;
        for _ in 0..10 {
            let (manager, key, number) = (manager.clone(), key.clone(), Arc::clone(&number));
            tasks.spawn(async move {
                for _ in 0..5 {
                    let body = async {
                        let before = *number.lock().unwrap();
                        tokio::task::yield_now().await;
                        *number.lock().unwrap() = before + 1;
                        Locked::Ok(())
                    };
                    waiting(&manager, &key).run(body).await.expect("served");
                }
            });
        }
    }
    tasks.join_all().await;
    assert_eq!(*number.lock().unwrap(), 200);
}

#[on(memory, redis, cluster, postgres, both_runtimes)]
async fn a_caller_without_a_wait_overtakes_nobody(backend: &Backend) {
    let Held { ours, theirs, key, guard, .. } = Held::on(backend).await;
    let mut waiters = Vec::new();
    for _ in 0..50 {
        waiters.push(Queue::join_its_process(waiting(&ours, &key).acquire()).await);
    }
    let (turns, asked) = (Turns::begin(), Arc::new(Notify::new()));
    // Each of them holds the lock until the other process has asked in vain.
    let refused = {
        let asked = Arc::clone(&asked);
        move || Arc::clone(&asked).notified_owned()
    };
    let served = serve(Arc::clone(&turns), waiters, refused);
    let mut served = tokio::spawn(async move { tokio::join!(served, guard.release()).1 });
    loop {
        tokio::select! {
            biased;
            released = &mut served => break released.expect("no panic").expect("still held"),
            got = lock(&theirs, &key).acquire() => match got {
                Err(error) => {
                    assert!(error.is_busy(), "{error}");
                    asked.notify_waiters();
                }
                Ok(guard) => {
                    let (left, passed_over) = {
                        let turns = turns.lock().unwrap();
                        (50 - turns.order.len(), turns.passed_over())
                    };
                    guard.release().await.expect("still held");
                    // A process whose waiters all miss their passes gives its place back.
                    assert!(left <= passed_over, "it overtook {left} waiters, not {passed_over}");
                }
            },
        }
        tokio::task::yield_now().await;
    }
    assert_eq!(turns.lock().unwrap().order.len(), 50);
}

#[on(memory, redis, cluster, postgres, both_runtimes)]
async fn a_lock_that_is_free_is_not_waited_for(backend: &Backend) {
    let (manager, key) = (backend.manager().await, backend.key("order:42"));
    for wait in [Duration::ZERO, ms(1), LONG_TTL, Duration::MAX] {
        let guard = lock(&manager, &key).wait(wait).acquire().await.expect("free");
        // On a loaded machine 1 ms may be over before the answer; then the lease is confirmed
        // later.
        let is_for_long = || std::future::ready(guard.remaining() > LONG_TTL / 2);
        eventually("the ttl is its own", LONG_TTL, is_for_long).await;
        guard.release().await.expect("still held");
    }
}

#[on(memory, redis, cluster, postgres, both_runtimes)]
async fn different_keys_have_different_queues(backend: &Backend) {
    let manager = backend.manager().await;
    let (one, two) = (backend.key("order:1"), backend.key("order:2"));
    let first = lock(&manager, &one).acquire().await.expect("free");
    let second = lock(&manager, &two).acquire().await.expect("free");
    let for_first = Queue::of(backend, &one).join(waiting(&manager, &one).acquire()).await;
    let mut for_second = Queue::of(backend, &two).join(waiting(&manager, &two).acquire()).await;
    handed_off(first, for_first).await;
    timeout(ms(30), &mut for_second).await.expect_err("its own is held");
    handed_off(second, for_second).await;
}

#[on(memory, redis, cluster, postgres, both_runtimes)]
async fn fences_grow_in_the_order_of_the_hand_offs(backend: &Backend) {
    let (ours, theirs, key) = backend.two_managers("order:42").await;
    let mut queue = Queue::of(backend, &key);
    let (guard, first) = lock(&ours, &key).acquire_fenced().await.expect("free");
    let mut waiters = Vec::new();
    for nth in 0..20 {
        let manager = if nth % 2 == 0 { &ours } else { &theirs };
        waiters.push(queue.join(waiting(manager, &key).acquire_fenced()).await);
    }
    guard.release().await.expect("still held");
    let fences = RefCell::new(vec![first]);
    let served = waiters.into_iter().map(async |waiter| {
        let (guard, fence) = waiter.await.expect("served");
        assert_eq!(guard.fence(), Some(fence[0]));
        fences.borrow_mut().push(fence);
        guard.release().await.expect("still held");
    });
    timeout(LONG_TTL, join_all(served)).await.expect("in time");
    let fences = fences.into_inner();
    assert!(fences.is_sorted_by(|one, other| one < other), "{fences:?}");
    backend.forget_fences();
}

#[on(memory, redis, cluster, postgres, both_runtimes)]
async fn a_waiter_gets_the_lock_after_its_min_hold_and_not_before(backend: &Backend) {
    let (ours, theirs, key) = backend.two_managers("job").await;
    let asked = Instant::now();
    let guard = lock(&ours, &key).min_hold(ms(400)).acquire().await.expect("free");
    let next = Queue::of(backend, &key).join(waiting(&theirs, &key).acquire()).await;
    guard.release().await.expect("still held");
    let guard = timeout(ms(400) + PUSHED, next).await.expect("in time").expect("served");
    assert!(asked.elapsed() >= ms(399), "after {:?}", asked.elapsed());
    guard.release().await.expect("still held");
}

#[on(memory, redis, cluster, postgres, both_runtimes)]
async fn a_waiters_own_min_hold_counts_from_its_grant(backend: &Backend) {
    let Held { theirs, key, mut queue, guard, .. } = Held::on(backend).await;
    let waiter = waiting(&theirs, &key).min_hold(ms(300)).acquire();
    let waiter = queue.join(waiter).await;
    // Longer than the min_hold, which has not begun.
    tokio::time::sleep(ms(350)).await;
    let handed_over = Instant::now();
    guard.release().await.expect("still held");
    let guard = timeout(PUSHED, waiter).await.expect("in time").expect("served");
    guard.release().await.expect("still held");
    backend.becomes_free(&key, POLLED).await;
    assert!(handed_over.elapsed() >= ms(299), "after {:?}", handed_over.elapsed());
}

#[on(memory, redis, cluster, postgres, both_runtimes)]
async fn re_entry_does_not_join_the_queue(backend: &Backend) {
    let (ours, theirs, key) = backend.two_managers("order:42").await;
    let mut queue = Queue::of(backend, &key);
    let mut next = None;
    let body = async {
        let mut waiter = queue.join(waiting(&theirs, &key).acquire()).await;
        // On a loaded machine its connections may take longer.
        while queue.length() == Some(0) {
            assert!(futures::poll!(&mut waiter).is_pending(), "the body runs");
            tokio::time::sleep(ms(1)).await;
        }
        next = Some(waiter);
        let inner = waiting(&ours, &key).acquire().await?;
        assert!(inner.is_joined() && queue.length().is_none_or(|length| length == 1));
        inner.release().await?;
        waiting(&ours, &key).run(async { Locked::Ok(7) }).await
    };
    let body = waiting(&ours, &key).run(body);
    assert_eq!(timeout(TEST_TIMEOUT, body).await.expect("it waits for itself"), Ok(7));
    served(PUSHED, next.expect("in the queue")).await;
}

/// Its second and its third request find it in the queue.
#[tokio::test]
async fn a_waiter_that_asks_again_stays_at_its_place() {
    let server = Server::start();
    let Held { theirs, mut queue, guard, .. } = Held::at(&server).await;
    let waiter = tokio::spawn(queue.join(waiting(&theirs, KEY).acquire()).await);
    // Those behind it do not ask, and so do not move behind it again.
    queue.crowd(1, FAR);
    let mut admin = server.admin();
    let places =
        |admin: &mut Admin| admin.ask::<Vec<String>>(&["ZRANGE", &queue_of(KEY), "0", "-1"]);
    let before = places(&mut admin);
    assert!(before.len() == 2 && before[1].starts_with("other/"), "{before:?}");
    admin.forget_calls();
    let asked = || std::future::ready(requests(&mut admin) >= 2);
    eventually("it has asked twice more", LONG_TTL / 6, asked).await;
    assert_eq!(places(&mut admin), before);
    guard.release().await.expect("still held");
    served(PUSHED, async { waiter.await.expect("no panic") }).await;
    queue.disperse();
}
