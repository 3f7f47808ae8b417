//! What the attribute promises, on a store that knows three calls.

use std::error::Error;
use std::future::ready;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures::future::join_all;
use lockmacro_runtime::store::StoreLimits;
use lockmacro_runtime::{Lock, LockError, LockGuard, LockManager, LossCause, distributed_lock};
use lockmacro_tests::times::{LONG_TTL, TEST_TIMEOUT};
use lockmacro_tests::{
    Polled, drop_after_polls, eventually, on_a_plain_thread, spawn_polled, until_lost,
};
use tokio::time::{sleep, timeout};

use crate::table::Table;
use crate::{Locked, lock, manager, ms};

/// A short ttl that a busy machine can still renew.
const TTL: Duration = ms(600);

async fn is_soon_free(table: &Table, key: &str) {
    eventually("the key is free", TEST_TIMEOUT, async || table.is_free(key)).await;
}

#[tokio::test]
async fn the_waiters_of_a_process_are_served_in_the_order_of_their_arrival() {
    let table = Table::default();
    let locks = manager(&table).await;
    let held = lock(&locks, "order:1").acquire().await.expect("free");
    let served = Arc::new(Mutex::new(Vec::new()));
    let mut waiters = Vec::new();
    for nth in 0..20 {
        let waits = lock(&locks, "order:1").wait(LONG_TTL);
        let served = Arc::clone(&served);
        let waiter = spawn_polled(async move {
            let guard = waits.acquire().await.expect("free in time");
            served.lock().expect("no panic").push(nth);
            guard.release().await.expect("held");
        });
        waiters.push(waiter.await);
    }
    held.release().await.expect("held");
    for waiter in waiters {
        waiter.await.expect("no panic");
    }
    let served = served.lock().expect("no panic").clone();
    assert_eq!(served, (0..20).collect::<Vec<_>>());
}

#[tokio::test]
async fn one_grant_serves_many_callers_of_a_process() {
    let table = Table::default();
    let builder = LockManager::builder().turn(Duration::from_secs(1));
    let locks = builder.connect_store(table.clone()).await.expect("there");
    let callers = (0..50).map(|_| {
        let waits = lock(&locks, "order:1").wait(LONG_TTL);
        async move { waits.acquire().await.expect("free in time").release().await.expect("held") }
    });
    join_all(callers).await;
    let asked = table.network().acquires.load(SeqCst);
    assert!(asked < 10, "50 bodies by {asked} requests");
    is_soon_free(&table, "order:1").await;
}

#[tokio::test]
async fn a_waiter_of_another_process_asks_again_and_again() {
    let table = Table::default();
    let here = manager(&table).await;
    let there = manager(&table).await;
    let held = lock(&here, "order:1").acquire().await.expect("free");
    let waiter = tokio::spawn(lock(&there, "order:1").wait(LONG_TTL).acquire());
    let before = table.network().acquires.load(SeqCst);
    sleep(ms(1_000)).await;
    let asked = table.network().acquires.load(SeqCst) - before;
    assert!((5..=45).contains(&asked), "{asked} requests in a second");
    held.release().await.expect("held");
    let start = Instant::now();
    waiter.await.expect("no panic").expect("free in time").release().await.expect("held");
    assert!(start.elapsed() < TEST_TIMEOUT);
}

#[tokio::test]
async fn a_hint_wakes_the_waiter_of_another_process() {
    let table = Table::limited(StoreLimits::default().longest_pause(Duration::from_secs(60)));
    table.network().has_hints.store(true, SeqCst);
    let here = manager(&table).await;
    let there = manager(&table).await;
    let held = lock(&here, "order:1").acquire().await.expect("free");
    let waiter = tokio::spawn(lock(&there, "order:1").wait(LONG_TTL).acquire());
    // Until it has just asked after a long pause: the next one is half a second or more.
    let mut asked = (0, Instant::now());
    eventually("its pauses grow", TEST_TIMEOUT, || {
        let count = table.network().acquires.load(SeqCst);
        let paused = asked.1.elapsed();
        let has_asked = count != asked.0;
        if has_asked {
            asked = (count, Instant::now());
        }
        ready(has_asked && paused > ms(600))
    })
    .await;
    held.release().await.expect("held");
    let guard = timeout(ms(300), waiter).await.expect("the hint").expect("no panic");
    guard.expect("free").release().await.expect("held");
}

#[distributed_lock(key = "report", ttl = "600ms", renew, manager = locks)]
async fn report(locks: &LockManager, time: Duration) -> Locked<u32> {
    sleep(time).await;
    Ok(7)
}

#[tokio::test]
async fn a_body_that_is_longer_than_its_ttl_is_renewed() {
    let table = Table::default();
    let locks = manager(&table).await;
    assert_eq!(report(&locks, 3 * TTL).await, Ok(7));
    assert!(table.network().renewals.load(SeqCst) >= 3);
    assert!(table.is_free("report"));
}

#[tokio::test]
async fn a_body_ends_when_the_store_has_lost_its_key() {
    let table = Table::default();
    let locks = manager(&table).await;
    let body = report(&locks, LONG_TTL);
    let forgets = async {
        eventually("it is held", TEST_TIMEOUT, async || !table.is_free("report")).await;
        table.forget();
    };
    let (ended, ()) = futures::join!(body, forgets);
    let Err(LockError::Lost(lost)) = ended else { panic!("{ended:?}") };
    assert_eq!(lost.cause(), LossCause::Taken);
}

#[distributed_lock(key = "report", ttl = "600ms", renew, on_lost = kept, manager = locks)]
async fn kept_report(locks: &LockManager) -> Locked<u32> {
    until_lost().await;
    Ok(7)
}

fn kept(_: lockmacro_runtime::Lost, value: Locked<u32>) -> Locked<u32> {
    value.map(|value| value + 1)
}

#[tokio::test]
async fn a_lease_that_the_store_does_not_renew_is_lost_before_it_ends() {
    let table = Table::default();
    table.network().loses_renewals.store(true, SeqCst);
    let locks = LockManager::builder().timeout(ms(400));
    let locks = locks.connect_store(table.clone()).await.expect("there");
    let start = Instant::now();
    let lock = Lock::new("order:1").ttl(TTL).renew().manager(&locks);
    let ended = lock
        .run(async {
            until_lost().await;
            Locked::Ok(())
        })
        .await;
    let Err(LockError::Lost(lost)) = ended else { panic!("{ended:?}") };
    assert_eq!(lost.cause(), LossCause::NotRenewed);
    assert!(start.elapsed() < 2 * TTL, "{:?}", start.elapsed());
    table.network().loses_renewals.store(false, SeqCst);
    is_soon_free(&table, "order:1").await;
    table.network().loses_renewals.store(true, SeqCst);
    assert_eq!(kept_report(&locks).await, Ok(8));
}

#[tokio::test]
async fn a_key_stays_for_its_min_hold() {
    let table = Table::default();
    let here = manager(&table).await;
    let there = manager(&table).await;
    let start = Instant::now();
    let report = Lock::new("report").ttl(LONG_TTL).min_hold(ms(700)).manager(&here);
    report.run(async { Locked::Ok(()) }).await.expect("free");
    let busy = lock(&there, "report").acquire().await.expect_err("kept");
    if start.elapsed() < ms(600) {
        assert!(busy.is_busy() && busy.holder().is_kept, "{busy}");
    }
    let next = lock(&there, "report").wait(LONG_TTL).acquire().await.expect("free in time");
    assert!(start.elapsed() >= ms(690), "{:?}", start.elapsed());
    next.release().await.expect("held");
}

#[tokio::test]
async fn several_keys_are_acquired_all_or_none() {
    let table = Table::default();
    let here = manager(&table).await;
    let there = manager(&table).await;
    let both = |locks: &LockManager, keys: [&str; 2]| Lock::many(keys).ttl(LONG_TTL).manager(locks);
    let held = lock(&there, "b").acquire().await.expect("free");
    let busy = both(&here, ["a", "b"]).acquire().await.expect_err("`b` is held");
    assert!(busy.is_busy(), "{busy}");
    assert!(table.is_free("a"));
    let waits = tokio::spawn(both(&here, ["b", "a"]).wait(LONG_TTL).acquire());
    eventually("it holds the first", TEST_TIMEOUT, async || !table.is_free("a")).await;
    held.release().await.expect("held");
    let guard = waits.await.expect("no panic").expect("free in time");
    assert!(!table.is_free("a") && !table.is_free("b"));
    guard.release().await.expect("held");
    assert!(table.is_free("a") && table.is_free("b"));
    // In opposite orders, they do not wait for each other.
    let callers = [(&here, ["a", "b"]), (&there, ["b", "a"])].map(|(locks, keys)| async move {
        for _ in 0..10 {
            let guard = both(locks, keys).wait(LONG_TTL).acquire().await.expect("no deadlock");
            guard.release().await.expect("held");
        }
    });
    join_all(callers).await;
}

#[distributed_lock(key = "order:<id>", manager = locks)]
async fn outer(locks: &LockManager, id: u32) -> Locked<bool> {
    inner(locks, id).await
}

#[distributed_lock(key = "order:<id>", manager = locks)]
async fn inner(locks: &LockManager, id: u32) -> Locked<bool> {
    Ok(LockGuard::current().is_some_and(|guard| guard.is_joined()))
}

#[tokio::test]
async fn an_inner_call_joins_the_lock_around_it() {
    let table = Table::default();
    assert_eq!(outer(&manager(&table).await, 42).await, Ok(true));
    assert_eq!(table.network().acquires.load(SeqCst), 1);
}

#[tokio::test]
async fn a_release_in_the_background_delays_nobody() {
    let table = Table::default();
    let locks = manager(&table).await;
    let behind = lock(&locks, "order:1").release_in_background();
    let ended = behind.run(async {
        table.network().delay.store(400, SeqCst);
        Locked::Ok(())
    });
    ended.await.expect("free");
    assert!(!table.is_free("order:1"), "the release is on its way");
    is_soon_free(&table, "order:1").await;
}

#[distributed_lock(key = "mail", on_busy = skip, manager = locks)]
async fn skipping(locks: &LockManager, ran: &AtomicU32) -> Locked<Option<u32>> {
    Ok(Some(ran.fetch_add(1, SeqCst)))
}

#[distributed_lock(key = "mail", on_busy = fallback(later), manager = locks)]
async fn falling_back(locks: &LockManager) -> Locked<&'static str> {
    Ok("now")
}

async fn later(_: &LockManager) -> Locked<&'static str> {
    Ok("later")
}

#[tokio::test]
async fn a_busy_call_is_skipped_or_falls_back() {
    let table = Table::default();
    let locks = manager(&table).await;
    let ran = AtomicU32::new(0);
    table.hold("mail", LONG_TTL);
    assert_eq!(skipping(&locks, &ran).await, Ok(None));
    assert_eq!(falling_back(&locks).await, Ok("later"));
    table.forget();
    assert_eq!(skipping(&locks, &ran).await, Ok(Some(0)));
    assert_eq!(falling_back(&locks).await, Ok("now"));
}

#[distributed_lock(key = "order:<id>", wait = "20s", manager = locks)]
fn blocking(locks: &LockManager, id: u32) -> Locked<u32> {
    Ok(id)
}

#[tokio::test]
async fn a_sync_caller_blocks_its_thread() {
    let table = Table::default();
    // By a timer, which needs a runtime on the blocked thread, too.
    table.network().delay.store(2, SeqCst);
    let locks = manager(&table).await;
    let held = lock(&locks, "order:42").acquire().await.expect("free");
    let waits = tokio::spawn(on_a_plain_thread(move || blocking(&locks, 42)));
    eventually("it has asked", TEST_TIMEOUT, async || table.network().acquires.load(SeqCst) > 0)
        .await;
    held.release().await.expect("held");
    assert_eq!(waits.await.expect("no panic"), Ok(42));
    // Without any runtime.
    let table = Table::default();
    let made = on_a_plain_thread(move || {
        let locks = LockManager::builder().connect_store_blocking(table.clone())?;
        blocking(&locks, 43)
    });
    assert_eq!(made.await, Ok(43));
}

#[tokio::test]
async fn a_caller_that_is_dropped_at_any_await_leaves_no_key() {
    let table = Table::default();
    table.network().delay.store(1, SeqCst);
    let locks = manager(&table).await;
    for waits in [false, true] {
        for polls in 1.. {
            let wait = if waits { LONG_TTL } else { Duration::ZERO };
            let call = lock(&locks, "order:1").wait(wait).run(async { Locked::Ok(()) });
            let polled = drop_after_polls(call, polls).await;
            is_soon_free(&table, "order:1").await;
            if let Polled::Completed(ended) = polled {
                ended.expect("free");
                break;
            }
        }
    }
}

#[tokio::test]
async fn an_answer_that_is_lost_is_asked_for_again_with_the_same_token() {
    let table = Table::default();
    let builder = LockManager::builder().timeout(ms(800));
    let locks = builder.connect_store(table.clone()).await.expect("there");
    table.network().lost_answers.store(1, SeqCst);
    let guard = lock(&locks, "order:1").acquire().await.expect("granted by the second answer");
    guard.release().await.expect("held");
    assert!(table.is_free("order:1"));
    // With no answer at all the key is taken, and the token is released as soon as the store
    // answers.
    table.network().lost_answers.store(1_000, SeqCst);
    let error = lock(&locks, "order:2").acquire().await.expect_err("no answer");
    assert!(error.to_string().contains("Table"), "{error}");
    // Its release may have arrived by now, which is not known for want of an answer.
    assert!(table.network().acquires.load(SeqCst) > 2);
    table.network().lost_answers.store(0, SeqCst);
    is_soon_free(&table, "order:2").await;
}

#[tokio::test]
async fn a_grant_that_comes_after_its_lease_is_released_and_not_used() {
    let table = Table::default();
    let builder = LockManager::builder().timeout(ms(1_200));
    let locks = builder.connect_store(table.clone()).await.expect("there");
    table.network().delay.store(120, SeqCst);
    let lock = Lock::new("order:1").ttl(ms(60)).manager(&locks);
    let error = lock.acquire().await.expect_err("too late");
    assert!(error.to_string().contains("after the lease had ended"), "{error}");
    is_soon_free(&table, "order:1").await;
}

#[tokio::test]
async fn a_store_that_is_down_fails_at_once_and_is_found_again() {
    let table = Table::default();
    let builder = LockManager::builder().timeout(ms(400));
    let locks = builder.connect_store(table.clone()).await.expect("there");
    table.network().is_cut.store(true, SeqCst);
    let error = lock(&locks, "order:1").acquire().await.expect_err("cut off");
    assert!(error.to_string().contains("the network is cut, at Table"), "{error}");
    let start = Instant::now();
    let error = lock(&locks, "order:1").acquire().await.expect_err("cut off");
    assert_eq!(error.retry_after(), Some(Duration::from_secs(1)));
    assert!(start.elapsed() < ms(300), "{:?}", start.elapsed());
    let waits = tokio::spawn(lock(&locks, "order:1").wait(LONG_TTL).acquire());
    table.network().is_cut.store(false, SeqCst);
    let guard = waits.await.expect("no panic").expect("the store is back");
    guard.release().await.expect("held");
    table.network().is_cut.store(true, SeqCst);
    let starting = LockManager::builder().timeout(ms(100)).connect_store(table.clone()).await;
    assert!(matches!(starting, Err(LockError::Unavailable { .. })), "{starting:?}");
    let lazy = LockManager::builder().lazy().connect_store(table).await;
    lazy.expect("it is asked by the first lock");
}

#[tokio::test]
async fn a_shutdown_sends_waiters_away_and_waits_for_holders() {
    let table = Table::default();
    let locks = manager(&table).await;
    let held = lock(&locks, "order:1").acquire().await.expect("free");
    table.hold("order:2", LONG_TTL);
    let waiters =
        ["order:1", "order:2"].map(|key| tokio::spawn(lock(&locks, key).wait(LONG_TTL).acquire()));
    let asked = async || table.network().acquires.load(SeqCst) > 2;
    eventually("they wait", TEST_TIMEOUT, asked).await;
    let ends = tokio::spawn(async move { locks.shutdown(LONG_TTL).await });
    for waiter in waiters {
        let refused = waiter.await.expect("no panic").map(drop);
        assert!(matches!(refused, Err(LockError::ShutDown { .. })), "{refused:?}");
    }
    assert!(!ends.is_finished());
    held.release().await.expect("held");
    ends.await.expect("no panic").expect("all locks are released");
    assert_ne!(table.network().closes.load(SeqCst), 0);
    assert!(table.is_free("order:1"));
}

#[tokio::test]
async fn a_shutdown_closes_both_clients_of_a_manager() {
    let table = Table::default();
    table.network().has_apart.store(true, SeqCst);
    let locks = manager(&table).await;
    lock(&locks, "order:1").acquire().await.expect("free").release().await.expect("held");
    locks.shutdown(LONG_TTL).await.expect("no lock is held");
    assert_eq!(table.network().closes.load(SeqCst), 1);
    assert_eq!(table.network().closes_apart.load(SeqCst), 1);
}

#[tokio::test]
async fn the_source_of_an_error_is_what_the_store_gave() {
    const CONNECTION_REFUSED: i32 = 111;
    let table = Table::default();
    let builder = LockManager::builder().timeout(ms(200));
    let locks = builder.connect_store(table.clone()).await.expect("there");
    table.network().trouble.store(CONNECTION_REFUSED, SeqCst);
    let error = lock(&locks, "order:1").acquire().await.expect_err("refused");
    let source = error.source().and_then(|source| source.downcast_ref::<io::Error>());
    assert_eq!(source.and_then(io::Error::raw_os_error), Some(CONNECTION_REFUSED), "{error:?}");
}

#[tokio::test]
async fn every_holder_of_a_turn_has_a_larger_fence() {
    let table = Table::default();
    let locks = manager(&table).await;
    let fences = Mutex::new(Vec::new());
    let callers = (0..20).map(|_| {
        let waits = lock(&locks, "order:1").wait(LONG_TTL);
        let fences = &fences;
        async move {
            let guard = waits.fenced().acquire().await.expect("free in time");
            let fence = guard.fence().expect("it is fenced");
            fences.lock().expect("no panic").push(fence);
            guard.release().await.expect("held");
        }
    });
    join_all(callers).await;
    let fences = fences.into_inner().expect("no panic");
    assert_eq!(fences.len(), 20);
    assert!(fences.is_sorted_by(|one, next| one < next), "{fences:?}");
}

/// Without an order between processes, none of them has the key for itself alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_processes_share_a_busy_key() {
    for has_hints in [false, true] {
        let table = Table::default();
        table.network().has_hints.store(has_hints, SeqCst);
        let bodies = [Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0))];
        let until = Instant::now() + Duration::from_secs(3);
        let mut callers = Vec::new();
        for bodies in &bodies {
            let locks = manager(&table).await;
            for _ in 0..4 {
                let waits = lock(&locks, "order:1").wait(LONG_TTL);
                let bodies = Arc::clone(bodies);
                callers.push(tokio::spawn(async move {
                    while Instant::now() < until {
                        let guard = waits.clone().acquire().await.expect("free in time");
                        bodies.fetch_add(1, SeqCst);
                        guard.release().await.expect("held");
                    }
                }));
            }
        }
        for caller in callers {
            caller.await.expect("no panic");
        }
        let bodies = bodies.map(|bodies| bodies.load(SeqCst));
        println!("hints {has_hints}: {bodies:?}");
        let few = bodies.iter().min().expect("two");
        assert!(few * 20 >= bodies.iter().sum(), "hints {has_hints}: {bodies:?}");
    }
}
