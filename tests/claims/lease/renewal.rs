//! A renewed lock lasts as long as its body, and a fault shorter than the lease does not end it.

use std::cell::Cell;
use std::future::ready;
use std::time::{Duration, Instant};

use lockmacro_runtime::{Lock, LockGuard, LockManager, LossCause};
use lockmacro_tests::{Backend, Fault, Proxy, Server, eventually, in_time, on};

use crate::{LONG_TTL, Locked, SOON, cause, connect, left, ms, outlast, renewed, served, warm_up};

const TTL: Duration = Duration::from_millis(2_500);

#[on(memory, redis, postgres)]
async fn a_renewed_key_never_falls_under_half_its_ttl(backend: &Backend) {
    // So long that a loaded machine has time for each renewal.
    const TTL: Duration = Duration::from_secs(4);
    let (manager, rival) = (backend.manager().await, backend.manager().await);
    let key = backend.key("order:42");
    let result = renewed(&manager, &key, TTL).run(async {
        let (start, least) = (Instant::now(), Cell::new(TTL));
        eventually("its first lease would be over", 2 * TTL, async || {
            least.set(least.get().min(left(&rival, &key).await.expect("held")));
            start.elapsed() > TTL * 5 / 4
        })
        .await;
        Locked::Ok(least.get())
    });
    let least = result.await.expect("held for longer than its ttl");
    // Not all the time full either: then it would be renewed more often than is of use.
    assert!(least >= TTL / 2 && least < TTL * 3 / 4, "{least:?}");
    assert!(backend.is_free(&key).await);
}

#[on(memory, redis, postgres)]
async fn a_lock_without_a_ttl_is_renewed(backend: &Backend) {
    let (manager, key) = (backend.manager().await, backend.key("order:42"));
    let guard = Lock::new(&*key).manager(&manager).acquire().await.expect("free");
    assert!(guard.remaining() > ms(25_000) && guard.remaining() < ms(30_000));
    guard.release().await.expect("still ours");
    // 30 s are too long to watch, so this manager has a shorter default.
    const BRIEF: Duration = Duration::from_millis(1_800);
    let builder = LockManager::builder().timeout(LONG_TTL).default_ttl(BRIEF);
    let manager = backend.manager_from(builder).await;
    let guard = Lock::new(&*key).manager(&manager).acquire().await.expect("free");
    outlast(BRIEF).await;
    assert!(guard.is_held() && !backend.is_free(&key).await);
    guard.release().await.expect("still ours");
}

#[on(memory, redis, postgres)]
async fn a_lock_with_a_ttl_is_not_renewed(backend: &Backend) {
    let (manager, key) = (backend.manager().await, backend.key("order:42"));
    let body = Lock::new(&*key).ttl(ms(200)).manager(&manager);
    let start = Instant::now();
    let result = body.run(std::future::pending::<Locked<()>>()).await;
    assert_eq!(cause(result), LossCause::Expired);
    assert!(start.elapsed() >= ms(190), "{:?}", start.elapsed());
}

#[on(memory, redis, postgres)]
async fn a_renewed_sync_body_keeps_its_lock(backend: &Backend) {
    const TTL: Duration = Duration::from_millis(1_800);
    let (manager, rival) = (backend.manager().await, backend.manager().await);
    let key = backend.key("order:42");
    let name = key.clone();
    let (begun, began) = tokio::sync::oneshot::channel();
    let (end, ended) = std::sync::mpsc::channel();
    let working = lockmacro_tests::on_a_plain_thread(move || {
        renewed(&manager, &name, TTL).run_blocking(|| {
            begun.send(()).expect("the test goes on");
            ended.recv().expect("the test ends it");
            Locked::Ok(7)
        })
    });
    let watching = async {
        began.await.expect("the body begins");
        outlast(TTL).await;
        assert!(left(&rival, &key).await.is_some());
        end.send(()).expect("the body goes on");
    };
    assert_eq!(tokio::join!(working, watching).0, Ok(7));
}

#[on(memory, redis, postgres)]
async fn a_body_that_blocks_its_runtime_is_renewed_all_the_same(backend: &Backend) {
    let manager = backend.manager().await;
    let result = renewed(&manager, &backend.key("order:42"), ms(1_800)).run(async {
        tokio::task::yield_now().await;
        // Nothing else of this thread runs meanwhile.
        std::thread::sleep(ms(2_600));
        tokio::task::yield_now().await;
        Locked::Ok(7)
    });
    assert_eq!(result.await, Ok(7));
}

#[tokio::test]
async fn a_renewal_that_fails_once_keeps_the_lock() {
    const TTL: Duration = Duration::from_millis(3_000);
    let (server, manager) = served().await;
    let result = in_time(renewed(&manager, "order:42", TTL).run(async {
        // The first renewal is due after 1,000 ms, and the server does not answer before the second
        // one is.
        let lock = LockGuard::current().expect("a body");
        server.pause();
        let is_late = || ready(lock.remaining() < TTL - ms(1_950));
        eventually("the first renewal is late", TTL, is_late).await;
        server.resume();
        let mut admin = server.admin();
        let full = || ready(admin.ttl("order:42").is_some_and(|left| left > TTL * 3 / 4));
        eventually("it is renewed after all", TTL, full).await;
        outlast(TTL).await;
        Locked::Ok(7)
    }));
    assert_eq!(result.await, Ok(7));
    assert_eq!(server.admin().keys(), Vec::<String>::new());
}

#[tokio::test]
async fn renewals_whose_answers_are_lost_are_tried_again_until_the_deadline() {
    for fault in [Fault::LoseReply, Fault::CutReply, Fault::CutCommand] {
        let server = Server::start();
        let proxy = Proxy::to(server.port());
        let manager = connect(&proxy.url()).await;
        warm_up(&manager).await;
        proxy.on_next("EVALSHA", fault);
        let result = in_time(renewed(&manager, "order:42", ms(2_100)).run(async {
            eventually("a renewal fails", SOON, async || proxy.orders_are_done()).await;
            outlast(ms(1_600)).await;
            Locked::Ok(7)
        }));
        assert_eq!(result.await, Ok(7), "{fault:?}");
    }
}

#[tokio::test]
async fn a_server_that_forgets_its_scripts_renews_all_the_same() {
    let server = Server::start();
    let mut admin = server.admin();
    let manager = connect(&server.url()).await;
    let result = in_time(renewed(&manager, "order:42", ms(2_000)).run(async {
        let start = Instant::now();
        eventually("its first lease would be over", SOON, || {
            admin.ask::<()>(&["SCRIPT", "FLUSH"]);
            ready(start.elapsed() > ms(2_800))
        })
        .await;
        Locked::Ok(7)
    }));
    assert_eq!(result.await, Ok(7));
}

#[tokio::test]
async fn one_answer_that_does_not_come_costs_no_other_lease() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let manager = connect(&proxy.url()).await;
    warm_up(&manager).await;
    let mut guards = Vec::new();
    for nth in 0..50 {
        let key = format!("order:{nth}");
        guards.push(renewed(&manager, &key, TTL).acquire().await.expect("free"));
    }
    // All that is in flight on that connection waits behind it, and is sent again on another.
    proxy.on_next("EVALSHA", Fault::LoseReply);
    eventually("a renewal fails", SOON, async || proxy.orders_are_done()).await;
    outlast(TTL).await;
    for guard in guards {
        assert!(guard.is_held(), "{}", guard.key());
        guard.release().await.expect("still ours");
    }
}

#[tokio::test(start_paused = true)]
async fn a_long_lease_delays_no_short_one() {
    let manager = LockManager::isolated_memory();
    let long = renewed(&manager, "long", LONG_TTL).acquire().await.expect("free");
    // The task that renews falls asleep, until 20 s from now unless it is woken.
    outlast(ms(50)).await;
    let short = renewed(&manager, "short", ms(1_800)).acquire().await.expect("free");
    outlast(ms(1_800)).await;
    assert!(short.is_held() && long.is_held());
}
