//! One caller runs the body, and the others get its value.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::join_all;
use lockmacro_runtime::{Lock, LockError, LockKey, LockManager, OnLost, distributed_lock};
use lockmacro_tests::{Backend, Fault, Polled, drop_after_polls, eventually, log, on};
use tokio::sync::oneshot;

use crate::{Failure, LONG_TTL, Locked, TEST_TIMEOUT, lock, ms};

const NOT_AFTER: Duration = Duration::ZERO;

/// Counts the bodies that have run, and returns their number.
#[derive(Clone, Default)]
struct Bodies(Arc<AtomicU32>);

impl Bodies {
    async fn run(&self) -> Locked<u32> {
        Ok(self.0.fetch_add(1, SeqCst) + 1)
    }
}

/// A caller that waits for a holder whose body ends when the sender is used.
async fn holder_and_waiter(
    backend: &Backend,
    key: &str,
    bodies: &Bodies,
) -> (oneshot::Sender<Result<u32, Failure>>, [tokio::task::JoinHandle<Result<u32, Failure>>; 2]) {
    let (holding, waiting) = (backend.manager().await, backend.manager().await);
    let (started, begun) = oneshot::channel();
    let (end, ended) = oneshot::channel();
    let held = lock(&holding, key).reuse(NOT_AFTER);
    let holder = tokio::spawn(held.run(async move {
        started.send(()).expect("the test goes on");
        ended.await.unwrap_or(Err(Failure::Own))
    }));
    begun.await.expect("the body starts");
    let (waits, bodies) = (lock(&waiting, key).wait(LONG_TTL).reuse(NOT_AFTER), bodies.clone());
    let waiter = tokio::spawn(waits.run(async move { Ok(bodies.run().await?) }));
    let queue =
        async || waiting.inspector().waiters(key, 9).await.expect("an answer").items.len() == 1;
    eventually("it waits", TEST_TIMEOUT, queue).await;
    (end, [holder, waiter])
}

#[on(redis, slots, postgres)]
async fn a_caller_that_waits_gets_the_value_of_the_holder(backend: &Backend) {
    let (key, bodies) = (backend.key("report"), Bodies::default());
    let (end, calls) = holder_and_waiter(backend, &key, &bodies).await;
    end.send(Ok(42)).expect("the body waits");
    for call in calls {
        assert_eq!(call.await.expect("no panic"), Ok(42));
    }
    assert_eq!(bodies.0.load(SeqCst), 0);
    backend.becomes_free(&key, TEST_TIMEOUT).await;
    backend.forget_values();
}

#[on(redis, postgres)]
async fn an_error_is_not_shared_and_the_next_caller_runs_its_body(backend: &Backend) {
    let (key, bodies) = (backend.key("report"), Bodies::default());
    let (end, [holder, waiter]) = holder_and_waiter(backend, &key, &bodies).await;
    end.send(Err(Failure::Own)).expect("the body waits");
    assert_eq!(holder.await.expect("no panic"), Err(Failure::Own));
    assert_eq!(waiter.await.expect("no panic"), Ok(1));
    backend.forget_values();
}

#[on(redis, postgres)]
async fn a_holder_that_is_dropped_leaves_the_body_to_the_next_caller(backend: &Backend) {
    let (key, bodies) = (backend.key("report"), Bodies::default());
    let (_end, [holder, waiter]) = holder_and_waiter(backend, &key, &bodies).await;
    holder.abort();
    assert_eq!(waiter.await.expect("no panic"), Ok(1));
    backend.forget_values();
}

#[on(memory, redis, slots, postgres, both_runtimes)]
async fn many_callers_of_several_processes_run_one_body_and_later_ones_get_its_value(
    backend: &Backend,
) {
    let (key, bodies) = (backend.key("token"), Bodies::default());
    let managers = [backend.manager().await, backend.manager().await, backend.manager().await];
    let call = |manager: &LockManager| {
        let (lock, bodies) = (lock(manager, &key).reuse(LONG_TTL), bodies.clone());
        tokio::spawn(lock.run(async move { bodies.run().await }))
    };
    let calls: Vec<_> = managers.iter().cycle().take(60).map(call).collect();
    for called in join_all(calls).await {
        assert_eq!(called.expect("no panic"), Ok(1));
    }
    // A value that is fresh needs no lock.
    let guard = lock(&managers[0], &key).acquire().await.expect("free");
    assert_eq!(call(&managers[1]).await.expect("no panic"), Ok(1));
    guard.release().await.expect("still held");
    backend.forget_values();
}

/// Each of them looks for the value when it comes; with the lock only the first one does.
#[on(redis)]
async fn callers_of_one_process_read_the_value_of_one_another_once(backend: &Backend) {
    const CALLERS: u32 = 100;
    let (manager, key) = (backend.manager().await, backend.key("token"));
    let mut admin = backend.admin().expect("a server");
    let call = |nth: u32| {
        let key = if nth < CALLERS { key.clone() } else { backend.key("other") };
        let lock = lock(&manager, &key).reuse(LONG_TTL);
        tokio::spawn(lock.run(async {
            tokio::time::sleep(ms(50)).await;
            Locked::Ok(7)
        }))
    };
    // The server knows the scripts then.
    assert_eq!(call(CALLERS).await.expect("no panic"), Ok(7));
    admin.forget_calls();
    for called in join_all((0..CALLERS).map(call)).await {
        assert_eq!(called.expect("no panic"), Ok(7));
    }
    let scripts = admin.count(&["evalsha", "eval"]);
    assert!(scripts < u64::from(CALLERS) * 3 / 2, "{scripts}");
    backend.forget_values();
}

#[on(memory, redis, postgres)]
async fn a_caller_that_is_dropped_at_any_await_leaves_no_lock(backend: &Backend) {
    let manager = backend.manager().await;
    for keep in [NOT_AFTER, LONG_TTL] {
        for polls in 1.. {
            let key = backend.key(&format!("{keep:?}:{polls}"));
            let call = lock(&manager, &key).reuse(keep).run(async {
                tokio::task::yield_now().await;
                Locked::Ok(7)
            });
            let polled = drop_after_polls(call, polls).await;
            backend.becomes_free(&key, TEST_TIMEOUT).await;
            if let Polled::Completed(value) = polled {
                assert_eq!(value, Ok(7));
                break;
            }
        }
    }
    backend.forget_values();
}

#[on(memory, redis, postgres)]
async fn a_value_ends_with_its_time_and_without_one_with_its_body(backend: &Backend) {
    let (manager, bodies) = (backend.manager().await, Bodies::default());
    let call = async |key: &str, keep| {
        let lock = lock(&manager, &backend.key(key)).reuse(keep);
        lock.run(bodies.run()).await.expect("free")
    };
    assert_eq!([call("a", NOT_AFTER).await, call("a", NOT_AFTER).await], [1, 2]);
    assert_eq!(call("b", ms(300)).await, 3);
    eventually("it ends", TEST_TIMEOUT, || async { call("b", ms(300)).await == 4 }).await;
    backend.forget_values();
}

#[on(memory, redis, postgres)]
async fn a_value_that_is_of_another_type_or_too_long_is_none(backend: &Backend) {
    let (manager, key) = (backend.manager().await, backend.key("report"));
    let reuse = || lock(&manager, &key).reuse(LONG_TTL);
    assert_eq!(reuse().run(async { Locked::Ok(7_u32) }).await, Ok(7));
    assert_eq!(reuse().run(async { Locked::Ok("text".to_owned()) }).await, Ok("text".to_owned()));
    let long = "x".repeat(1024 * 1024);
    let other = lock(&manager, &backend.key("long")).reuse(LONG_TTL);
    assert_eq!(other.run(async { Locked::Ok(long.clone()) }).await, Ok(long));
    assert_eq!(other.run(async { Locked::Ok("short".to_owned()) }).await, Ok("short".to_owned()));
    backend.forget_values();
}

#[on(memory, redis, postgres)]
async fn a_key_that_was_used_for_something_else_is_refused(backend: &Backend) {
    let (manager, key) = (backend.manager().await, backend.key("payment"));
    let pay = |what: &str| lock(&manager, &key).reuse(LONG_TTL).same(what);
    assert_eq!(pay("5 EUR").run(async { Locked::Ok(1) }).await, Ok(1));
    assert_eq!(pay("5 EUR").run(async { Locked::Ok(2) }).await, Ok(1));
    let error = pay("7 EUR").run(async { Locked::Ok(3) }).await.expect_err("another payment");
    let LockError::ReusedKey { key: refused, .. } = &error else { panic!("{error:?}") };
    assert_eq!(refused.as_str(), key);
    assert!(backend.is_free(&key).await);
    // As in a key, the values are kept apart.
    let sent = async |to: &str, memo: &str| {
        let what = LockKey::template("<to> <memo>").value(to).literal(" ").value(memo);
        let pay = lock(&manager, &backend.key("transfer")).reuse(LONG_TTL).same(what);
        pay.run(async { Locked::Ok(4) }).await
    };
    assert_eq!(sent("anna", "bert x").await, Ok(4));
    assert!(matches!(sent("anna bert", "x").await, Err(LockError::ReusedKey { .. })));
    backend.forget_values();
}

/// The lease ends while the value is being kept, and the body has ended before.
#[on(redis)]
async fn a_value_that_the_server_does_not_take_is_returned_all_the_same(backend: &Backend) {
    let (proxy, key) = (backend.proxy(), backend.key("token"));
    let manager = LockManager::builder().timeout(LONG_TTL).connect(&proxy.url()).await;
    let lock = lock(manager.as_ref().expect("there"), &key).ttl(ms(500));
    let called = lock.reuse(LONG_TTL).run(async {
        let keeps = |call: &lockmacro_tests::Call<'_>| call.names("EVAL") || call.names("EVALSHA");
        proxy.on_next_call(keeps, Fault::HoldCommand(ms(1_000)));
        Locked::Ok(7)
    });
    assert_eq!(called.await, Ok(7));
    proxy.held_commands_arrive().await;
    backend.becomes_free(&key, TEST_TIMEOUT).await;
    backend.forget_values();
}

#[on(redis, postgres)]
async fn the_value_of_a_holder_that_has_lost_its_lock_is_not_kept(backend: &Backend) {
    let (manager, key) = (backend.manager().await, backend.key("report"));
    let reuse = || lock(&manager, &key).on_lost(OnLost::Finish).reuse(LONG_TTL);
    let late = reuse().run(async {
        let held = manager.inspector().lock(&key).await?.expect("held");
        assert!(manager.force_release(&held).await?);
        Locked::Ok(1)
    });
    assert_eq!(late.await, Ok(1));
    assert_eq!(reuse().run(async { Locked::Ok(2) }).await, Ok(2));
    backend.forget_values();
}

#[on(memory, redlock)]
async fn a_lock_that_cannot_keep_a_value_is_refused_and_left_free(backend: &Backend) {
    let (manager, key) = (backend.manager().await, backend.key("report"));
    let several = Lock::many([backend.key("a"), backend.key("b")]).manager(&manager);
    let locks = [lock(&manager, &key).shared(), lock(&manager, &key).permits(2), several];
    let redlock = backend.admins().len() > 1;
    for lock in locks.into_iter().chain(redlock.then(|| lock(&manager, &key))) {
        let error = lock.reuse(LONG_TTL).run(async { Locked::Ok(()) }).await;
        let Err(LockError::InvalidSetting { setting, .. }) = &error else { panic!("{error:?}") };
        assert_eq!(*setting, "reuse");
    }
    assert!(backend.is_free(&key).await);
}

/// They would reach the server by the first look otherwise.
#[on(memory, redis, postgres)]
async fn a_call_that_cannot_have_the_lock_asks_for_no_value(backend: &Backend) {
    let manager = backend.manager().await;
    let call = |key: &str| lock(&manager, key).reuse(LONG_TTL).run(async { Locked::Ok(()) });
    let outside = call(&backend.key("outside"));
    let outside = std::thread::spawn(|| outside.now_or_never()).join().expect("no panic");
    assert!(matches!(outside, Some(Err(LockError::NoRuntime { .. }))), "{outside:?}");
    assert!(matches!(call("").await, Err(LockError::InvalidKey { .. })));
    manager.shutdown(TEST_TIMEOUT).await.expect("nothing is held");
    assert_eq!(call(&backend.key("late")).await, Err(LockError::ShutDown { held: 0 }));
}

/// Payments and refunds of one payment exclude one another, and are not the same work.
#[on(memory, redis, slots, postgres)]
async fn a_value_belongs_to_the_function_that_made_it(backend: &Backend) {
    let (manager, key) = (backend.manager().await, backend.key("payment:7"));
    for keep in [NOT_AFTER, LONG_TTL] {
        let call = async |name: &'static str| {
            let lock = lock(&manager, &key).name(name).wait(LONG_TTL).reuse(keep).same("7");
            lock.run(async { Locked::Ok(name.to_owned()) }).await
        };
        // At once: each of them waits for the other one's lock, and its turn.
        for (name, value) in
            ["pay", "refund"].iter().zip(join_all(["pay", "refund"].map(call)).await)
        {
            assert_eq!(value, Ok((*name).to_owned()));
        }
        if !keep.is_zero() {
            // Neither value has taken the place of the other one.
            let again = async |name: &'static str| {
                let lock = lock(&manager, &key).name(name).reuse(keep);
                lock.run(async { Locked::Ok("again".to_owned()) }).await
            };
            assert_eq!(again("pay").await, Ok("pay".to_owned()));
            assert_eq!(again("refund").await, Ok("refund".to_owned()));
            assert_eq!(again("pay:refund").await, Ok("again".to_owned()));
        }
    }
    backend.forget_values();
}

/// A payment whose refund is in its body: the inner call has the lock of the outer one.
#[on(memory, redis, postgres)]
async fn a_call_inside_of_another_one_keeps_its_own_value(backend: &Backend) {
    let (manager, key) = (backend.manager().await, backend.key("payment:8"));
    let of = |name: &'static str| lock(&manager, &key).name(name).reuse(LONG_TTL);
    let failed = of("pay").run(async {
        assert_eq!(of("refund").run(async { Locked::Ok(1) }).await?, 1);
        Err::<u32, _>(Failure::Own)
    });
    assert_eq!(failed.await, Err(Failure::Own));
    assert_eq!(of("refund").run(async { Locked::Ok(2) }).await, Ok(1), "it was done");
    assert_eq!(of("pay").run(async { Locked::Ok(3) }).await, Ok(3), "it has failed");
    backend.forget_values();
}

/// All of them were there before its end.
#[on(redis, postgres)]
async fn those_that_waited_get_the_value_however_short_it_is_kept(backend: &Backend) {
    let key = backend.key("report");
    let bodies = Bodies::default();
    let managers = [backend.manager().await, backend.manager().await];
    let holding = backend.manager().await;
    let holder = lock(&holding, &key).acquire().await.expect("free");
    let call = |manager: &LockManager| {
        let (lock, bodies) = (lock(manager, &key).wait(LONG_TTL).reuse(ms(1)), bodies.clone());
        tokio::spawn(lock.run(async move { bodies.run().await }))
    };
    let calls: Vec<_> = managers.iter().cycle().take(40).map(call).collect();
    eventually("they wait", TEST_TIMEOUT, async || {
        let waiters = holding.inspector().waiters(&key, 9).await.expect("an answer").items;
        waiters.iter().filter_map(|waiter| waiter.callers).sum::<usize>() == calls.len()
    })
    .await;
    holder.release().await.expect("still held");
    for called in join_all(calls).await {
        assert_eq!(called.expect("no panic"), Ok(1));
    }
    // For those that come later its time is over.
    eventually("it ends", TEST_TIMEOUT, || async {
        call(&managers[1]).await.expect("no panic") != Ok(1)
    })
    .await;
    backend.forget_values();
}

/// Those that come just after a body, while one of its waiters reads the value in their process.
#[on(redis, postgres)]
async fn those_that_wait_through_a_later_body_get_its_value(backend: &Backend) {
    let managers = [backend.manager().await, backend.manager().await];
    for round in 0..60 {
        let key = backend.key(&format!("report {round}"));
        let call = |manager| lock(manager, &key).wait(LONG_TTL).reuse(ms(1));
        let queue = async |manager: &LockManager| {
            !manager.inspector().waiters(&key, 9).await.expect("an answer").items.is_empty()
        };
        let (started, begun) = oneshot::channel();
        let (end, ended) = oneshot::channel::<()>();
        let first = tokio::spawn(call(&managers[0]).run(async {
            started.send(()).expect("the test goes on");
            ended.await.expect("the test goes on");
            Locked::Ok(1)
        }));
        begun.await.expect("the body starts");
        let waits = tokio::spawn(call(&managers[1]).run(async { Locked::Ok(0) }));
        eventually("it waits", TEST_TIMEOUT, async || queue(&managers[1]).await).await;
        end.send(()).expect("the body waits");
        tokio::time::sleep(Duration::from_micros(50 * (round % 30))).await;
        let bodies = Bodies::default();
        let has_waiter = AtomicU32::new(0);
        let later = managers.each_ref().map(|manager| {
            call(manager).run(async {
                let nth = bodies.run().await?;
                // Until the other one waits, if it does.
                let start = std::time::Instant::now();
                while nth == 1 && start.elapsed() < ms(50) && has_waiter.load(SeqCst) == 0 {
                    has_waiter.fetch_add(u32::from(queue(manager).await), SeqCst);
                }
                Locked::Ok(1)
            })
        });
        assert!(join_all(later).await.into_iter().all(|value| value == Ok(1)));
        assert_eq!(first.await.expect("no panic"), Ok(1));
        assert_eq!(waits.await.expect("no panic"), Ok(1));
        let bodies = bodies.0.load(SeqCst);
        assert!(has_waiter.load(SeqCst) == 0 || bodies == 1, "round {round}: {bodies} bodies");
    }
    backend.forget_values();
}

#[on(memory, redis, postgres)]
async fn a_value_can_be_removed(backend: &Backend) {
    let (manager, key, bodies) = (backend.manager().await, backend.key("token"), Bodies::default());
    let token = || lock(&manager, &key).reuse(LONG_TTL);
    assert_eq!(token().run(bodies.run()).await, Ok(1));
    token().forget().await.expect("free");
    assert!(backend.is_free(&key).await);
    assert_eq!(token().run(bodies.run()).await, Ok(2));
    assert_eq!(token().run(bodies.run()).await, Ok(2));
    backend.forget_values();
}

/// The key has to stay for the body, and not for those that find its value.
#[on(memory, redis, postgres)]
async fn those_that_find_a_value_do_not_hold_the_lock_for_the_min_hold(backend: &Backend) {
    let (manager, key, bodies) =
        (backend.manager().await, backend.key("report"), Bodies::default());
    let before = std::time::Instant::now();
    let call = || {
        let lock = lock(&manager, &key).min_hold(ms(2_000)).wait(LONG_TTL).reuse(NOT_AFTER);
        let bodies = bodies.clone();
        lock.run(async move {
            // The others come meanwhile.
            tokio::time::sleep(ms(50)).await;
            bodies.run().await
        })
    };
    for called in join_all((0..8).map(|_| call())).await {
        assert_eq!(called, Ok(1));
    }
    // Eight times as long otherwise.
    let took = before.elapsed();
    assert!((ms(2_000)..ms(12_000)).contains(&took), "{took:?}");
    backend.becomes_free(&key, TEST_TIMEOUT).await;
    backend.forget_values();
}

/// The money may have been sent before the first call failed.
#[on(memory, redis, slots, postgres)]
async fn another_request_is_refused_while_the_first_one_runs_and_after_it_has_failed(
    backend: &Backend,
) {
    let key = backend.key("payment");
    let managers = [backend.manager().await, backend.manager().await];
    let pay = |manager, what: &str| lock(manager, &key).reuse(LONG_TTL).same(what);
    let (started, begun) = oneshot::channel();
    let (end, ended) = oneshot::channel();
    let first = tokio::spawn(pay(&managers[0], "5 EUR").run(async {
        started.send(()).expect("the test goes on");
        ended.await.unwrap_or(Err(Failure::Own))
    }));
    begun.await.expect("the body starts");
    let other = async |manager| pay(manager, "7 EUR").run(async { Locked::Ok(7) }).await;
    for manager in &managers {
        assert!(matches!(other(manager).await, Err(LockError::ReusedKey { .. })));
    }
    assert!(!first.is_finished());
    end.send(Err::<u32, _>(Failure::Own)).expect("the body waits");
    assert_eq!(first.await.expect("no panic"), Err(Failure::Own));
    for manager in &managers {
        assert!(matches!(other(manager).await, Err(LockError::ReusedKey { .. })));
    }
    assert_eq!(pay(&managers[1], "5 EUR").run(async { Locked::Ok(5) }).await, Ok(5));
    assert_eq!(pay(&managers[0], "5 EUR").run(async { Locked::Ok(6) }).await, Ok(5));
    pay(&managers[0], "5 EUR").forget().await.expect("free");
    assert_eq!(other(&managers[0]).await, Ok(7));
    backend.forget_values();
}

struct Payments;
struct Refunds;

impl Payments {
    #[distributed_lock(key = "money:<id>", manager = locks, on_busy = reuse(keep = "60s"))]
    async fn book(locks: &LockManager, id: &str) -> Locked<String> {
        Ok(format!("paid {id}"))
    }
}

impl Refunds {
    #[distributed_lock(key = "money:<id>", manager = locks, on_busy = reuse(keep = "60s"))]
    async fn book(locks: &LockManager, id: &str) -> Locked<String> {
        Ok(format!("refunded {id}"))
    }
}

/// Both are `meaning::reuse::book`.
#[tokio::test]
async fn a_second_function_of_one_path_is_refused_and_gets_no_value_of_the_first() {
    let locks = LockManager::isolated_memory();
    assert_eq!(Payments::book(&locks, "7").await.as_deref(), Ok("paid 7"));
    for _ in 0..2 {
        let refused = Refunds::book(&locks, "7").await;
        let Err(LockError::InvalidSetting { setting: "name", detail, .. }) = refused else {
            panic!("{refused:?}")
        };
        assert!(detail.contains("meaning::reuse::book`, at ") && detail.contains("name = "));
    }
    assert_eq!(Payments::book(&locks, "7").await.as_deref(), Ok("paid 7"));
}

/// Another process makes the value between two callers of this one.
#[on(redis, postgres)]
async fn what_failed_hides_no_value_that_another_process_makes_after_it(backend: &Backend) {
    let (key, bodies) = (backend.key("payment"), Bodies::default());
    let (ours, theirs) = (backend.manager().await, backend.manager().await);
    let pay = |manager| lock(manager, &key).wait(LONG_TTL).reuse(LONG_TTL).same("5 EUR");
    // Longer than a turn, after which the lock goes to the other process.
    let failed = async || {
        tokio::time::sleep(ms(300)).await;
        Err::<u32, _>(Failure::Own)
    };
    assert_eq!(pay(&theirs).run(failed()).await, Err(Failure::Own));
    let holding = backend.manager().await;
    let holder = lock(&holding, &key).acquire().await.expect("free");
    let fails = tokio::spawn(pay(&ours).run(failed()));
    let queue = async || theirs.inspector().waiters(&key, 9).await.expect("an answer").items.len();
    eventually("one waits", TEST_TIMEOUT, async || queue().await == 1).await;
    let made = bodies.clone();
    let makes = tokio::spawn(pay(&theirs).run(async move { made.run().await }));
    eventually("two wait", TEST_TIMEOUT, async || queue().await == 2).await;
    let mut last = Box::pin(pay(&ours).run(async {
        bodies.run().await?;
        Locked::Ok(0)
    }));
    tokio::time::timeout(ms(200), &mut last).await.expect_err("the lock is held");
    holder.release().await.expect("still held");
    assert_eq!(fails.await.expect("no panic"), Err(Failure::Own));
    assert_eq!(makes.await.expect("no panic"), Ok(1));
    assert_eq!(last.await, Ok(1));
    backend.forget_values();
}

/// JSON has `null` for all of them, which is read as `None`.
#[on(memory, redis)]
async fn a_value_that_json_changes_is_not_kept_and_is_logged_once(backend: &Backend) {
    log::start();
    let (manager, key) = (backend.manager().await, backend.key("price"));
    let name = backend.key("function");
    let call = async |value: Option<f64>| {
        let lock = lock(&manager, &key).name(name.clone()).reuse(LONG_TTL);
        lock.run(async { Locked::Ok(value) }).await.expect("free")
    };
    for value in [f64::NAN, f64::INFINITY, f64::NAN] {
        assert_eq!(call(Some(value)).await.map(f64::to_bits), Some(value.to_bits()));
    }
    assert_eq!([call(Some(1.5)).await, call(Some(2.5)).await], [Some(1.5); 2]);
    let lines = log::lines(|line| line.contains(&name) && line.starts_with("WARN"));
    assert_eq!(lines.len(), 1, "{lines:?}");
    backend.forget_values();
}

/// The other holder's own value is the one that counts.
#[on(redis, postgres)]
async fn a_holder_that_has_lost_its_lock_to_another_one_keeps_no_value(backend: &Backend) {
    let (manager, other, key) =
        (backend.manager().await, backend.manager().await, backend.key("report"));
    let mut again = None;
    let late = lock(&manager, &key).on_lost(OnLost::Finish).reuse(LONG_TTL).run(async {
        let held = other.inspector().lock(&key).await?.expect("held");
        assert!(other.force_release(&held).await?);
        let new = lock(&other, &key).reuse(LONG_TTL).run(async { Locked::Ok(2) }).await;
        assert_eq!(new, Ok(2));
        // The other one has the key again, so that only the owner is wrong.
        again = Some(lock(&other, &key).acquire().await.expect("free"));
        Locked::Ok(1)
    });
    assert_eq!(late.await, Ok(1));
    again.expect("it ran").release().await.expect("still held");
    let found = lock(&other, &key).reuse(LONG_TTL).run(async { Locked::Ok(3) }).await;
    assert_eq!(found, Ok(2));
    backend.forget_values();
}
