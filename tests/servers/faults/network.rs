//! Networks that lose, delay and cut.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::{Duration, Instant};

use lockmacro_runtime::{Lock, LockManager, UnavailableReason};
use lockmacro_tests::{Fault, Proxy, Server};

use crate::{
    KEY, LONG_TTL, Locked, SLACK, TEST_TIMEOUT, TIMEOUT, becomes_free, keeps_nothing, lock,
    manager, ms, reason, refusal, through, within, works,
};

/// A server, a proxy in front of it, and a manager that has used the proxy before.
async fn proxied() -> (Server, Proxy, LockManager) {
    let (server, proxy, manager) = through(TIMEOUT).await;
    works(&manager).await;
    (server, proxy, manager)
}

/// One that waits for each answer for longer than any is late.
async fn patient(proxy: &Proxy) -> LockManager {
    let manager = within(LONG_TTL, &proxy.url()).await;
    works(&manager).await;
    manager
}

#[tokio::test]
async fn an_acquire_whose_answer_is_lost_recognises_its_own_token() {
    let faults =
        [Fault::LoseReply, Fault::CutReply, Fault::CutCommand, Fault::DelayReply(TIMEOUT / 2)];
    for fault in faults {
        let (server, proxy, manager) = proxied().await;
        proxy.on_next("SET", fault);
        let guard = lock(&manager).acquire().await;
        let guard = guard.unwrap_or_else(|error| panic!("{fault:?}: {error}"));
        assert!(proxy.orders_are_done());
        // Believed to be held: then the server holds it, and for longer.
        let left = server.admin().ttl(KEY).expect("held");
        assert!(guard.is_held() && left >= guard.remaining(), "{fault:?}");
        guard.release().await.expect("released");
        keeps_nothing(&server).await;
    }
}

#[tokio::test]
async fn a_body_runs_once_however_often_its_acquire_is_sent() {
    for fault in [Fault::LoseReply, Fault::CutReply] {
        let (server, proxy, manager) = proxied().await;
        proxy.on_next("SET", fault);
        proxy.on_next("EVALSHA", fault);
        let mut runs = 0;
        let result = lock(&manager).run(async {
            runs += 1;
            Locked::Ok(7)
        });
        assert_eq!(result.await, Ok(7), "{fault:?}");
        assert_eq!(runs, 1);
        keeps_nothing(&server).await;
    }
}

#[tokio::test]
async fn a_busy_answer_that_is_lost_is_still_busy() {
    for fault in [Fault::LoseReply, Fault::CutReply, Fault::CutCommand] {
        // Each by itself: the release that follows an unanswered request is a command, too.
        for word in ["SET", "EVALSHA"] {
            let (server, proxy, ours) = proxied().await;
            let theirs = manager(&server.url()).await;
            let guard = lock(&theirs).acquire().await.expect("free");
            proxy.on_next(word, fault);
            let error = lock(&ours).acquire().await.expect_err("held");
            assert!(error.is_busy(), "{fault:?} of {word}: {error}");
            guard.release().await.expect("still theirs");
            keeps_nothing(&server).await;
        }
    }
}

#[tokio::test]
async fn a_release_whose_answer_is_lost_costs_no_value_and_frees_the_key() {
    let faults = [Fault::LoseReply, Fault::CutReply, Fault::CutCommand, Fault::DelayReply(TIMEOUT)];
    for fault in faults {
        let (server, proxy, manager) = proxied().await;
        proxy.on_next("EVALSHA", fault);
        let start = Instant::now();
        let result = lock(&manager).run(async { Locked::Ok(7) }).await;
        assert_eq!(result, Ok(7), "{fault:?}");
        assert!(start.elapsed() < TIMEOUT + SLACK, "{fault:?}: after {:?}", start.elapsed());
        keeps_nothing(&server).await;
        works(&manager).await;
    }
}

#[tokio::test]
async fn a_repeated_release_frees_nobody_elses_lock() {
    let (server, proxy, manager) = proxied().await;
    let guard = lock(&manager).acquire().await.expect("free");
    proxy.on_next("EVALSHA", Fault::CutReply);
    let mut admin = server.admin();
    let release = tokio::spawn(guard.release());
    // Somebody else is quick; or the resent release comes before, and finds nothing.
    let taken = async {
        while admin.ask::<Option<String>>(&["SET", KEY, "somebody", "NX", "PX", "60000"]).is_none()
        {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(TEST_TIMEOUT, taken).await.expect("released");
    // The server had carried it out, which the resent one cannot tell any more.
    let error = release.await.expect("no panic").expect_err("not known to be released");
    assert_eq!(reason(error), UnavailableReason::Disconnected);
    // Nothing frees it, for longer than one more release would take.
    tokio::time::sleep(ms(50)).await;
    assert_eq!(admin.get(KEY).as_deref(), Some("somebody"));
}

#[tokio::test]
async fn a_connection_cut_by_the_network_or_the_server_is_not_noticed() {
    let (server, proxy, manager) = proxied().await;
    let mut admin = server.admin();
    for by_server in [false, true] {
        for _ in 0..10 {
            match by_server {
                true => admin.ask(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]),
                false => proxy.cut(),
            }
            works(&manager).await;
        }
    }
    // In the middle of a body it costs no value.
    let result = lock(&manager).run(async {
        proxy.cut();
        Locked::Ok(7)
    });
    assert_eq!(result.await, Ok(7));
    keeps_nothing(&server).await;
}

#[tokio::test]
async fn a_network_that_stalls_or_cuts_leaves_nothing_behind() {
    for (cuts, expected) in
        [(false, UnavailableReason::Timeout), (true, UnavailableReason::Disconnected)]
    {
        let (server, proxy, manager) = proxied().await;
        proxy.stall(!cuts);
        proxy.refuse(cuts);
        if cuts {
            proxy.cut();
        }
        assert_eq!(reason(refusal(&manager).await), expected);
        proxy.stall(false);
        proxy.refuse(false);
        // The last command may have come through before a cut.
        keeps_nothing(&server).await;
        works(&manager).await;
        keeps_nothing(&server).await;
    }
}

#[tokio::test]
async fn a_grant_that_comes_after_its_lease_is_not_believed() {
    let (server, proxy, manager) = through(ms(800)).await;
    works(&manager).await;
    // Each answer comes in time for the manager, and too late for the lease of its request.
    proxy.on_next("SET", Fault::DelayReply(ms(100)));
    for _ in 0..20 {
        proxy.on_next("EVALSHA", Fault::DelayReply(ms(100)));
    }
    let late = Lock::new(KEY).ttl(ms(60)).manager(&manager).acquire().await;
    let error = late.map(drop).expect_err("it was over before it was known");
    let place = proxy.url().replace("redis://", "");
    assert!(error.to_string().ends_with(&format!(", at {place})")), "{error}");
    let reason = reason(error);
    assert!(
        matches!(reason, UnavailableReason::TooSlow | UnavailableReason::Timeout),
        "{reason:?}"
    );
    keeps_nothing(&server).await;
}

#[tokio::test]
async fn a_late_grant_is_asked_for_again_and_believed_when_it_comes_in_time() {
    let (server, proxy, _) = proxied().await;
    let manager = patient(&proxy).await;
    proxy.on_next("SET", Fault::DelayReply(ms(650)));
    let lock = Lock::new(KEY).ttl(ms(600)).manager(&manager);
    let guard = lock.acquire().await.expect("the second answer is in time");
    // The server was looked at first, so its key must have more time left.
    let held = server.admin().ttl(KEY).unwrap_or_default();
    let remaining = guard.remaining();
    assert!(held >= remaining, "{remaining:?} of {held:?}");
    drop(guard);
    keeps_nothing(&server).await;
}

#[tokio::test]
async fn a_dead_connection_is_replaced_after_repeated_timeouts() {
    let (server, proxy, _) = proxied().await;
    // A command is waited for for a quarter of it.
    const ANSWER: Duration = ms(1_500);
    let manager = within(4 * ANSWER, &proxy.url()).await;
    works(&manager).await;
    // The background has a connection of its own, which a release in doubt may need.
    drop(lock(&manager).acquire().await.expect("free"));
    becomes_free(&server).await;
    let before = proxy.accepted();
    // One answer that is late, and the next one is not: the connection lives.
    proxy.on_next("SET", Fault::DelayReply(ANSWER + ms(200)));
    works(&manager).await;
    assert!(proxy.orders_are_done());
    assert_eq!(proxy.accepted(), before, "it was replaced after one timeout");
    let start = Instant::now();
    proxy.on_next("SET", Fault::LoseReply);
    works(&manager).await;
    assert!(start.elapsed() >= 2 * ANSWER, "after {:?}", start.elapsed());
    assert!(proxy.accepted() > before, "the same connection is used on");
    keeps_nothing(&server).await;
}

#[tokio::test]
async fn many_tasks_share_one_connection_through_a_cut() {
    let (server, proxy, _) = proxied().await;
    let manager = patient(&proxy).await;
    let before = proxy.accepted();
    let mut tasks = tokio::task::JoinSet::new();
    let (ran, mut runs) = tokio::sync::watch::channel(0);
    for n in 0..50 {
        let (manager, ran) = (manager.clone(), ran.clone());
        tasks.spawn(async move {
            for _ in 0..4 {
                let own = Lock::new(format!("order:{n}")).ttl(LONG_TTL).manager(&manager);
                assert_eq!(own.run(async { Locked::Ok(n) }).await, Ok(n));
                ran.send_modify(|ran| *ran += 1);
            }
        });
    }
    // In the middle of the work.
    runs.wait_for(|ran| *ran > 0).await.expect("they run");
    proxy.cut();
    while let Some(task) = tasks.join_next().await {
        task.expect("no lock failed");
    }
    // One new connection for all of them, and the one that clears away.
    assert!(proxy.accepted() <= before + 3, "{} new connections", proxy.accepted() - before);
    keeps_nothing(&server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_never_overlap_on_a_network_that_is_cut_all_the_time() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let (inside, runs) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let start = Instant::now();
    // A slow machine needs longer for some.
    let is_over = {
        let runs = Arc::clone(&runs);
        move || {
            start.elapsed() > ms(1_000)
                && (runs.load(SeqCst) > 10 || start.elapsed() > TEST_TIMEOUT)
        }
    };
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let manager = manager(&proxy.url()).await;
        let (inside, runs) = (Arc::clone(&inside), Arc::clone(&runs));
        let is_over = is_over.clone();
        tasks.spawn(async move {
            while !is_over() {
                let (inside, runs) = (&inside, &runs);
                let body = async move {
                    assert_eq!(inside.fetch_add(1, SeqCst), 0, "two bodies at once");
                    tokio::time::sleep(Duration::from_micros(500)).await;
                    inside.fetch_sub(1, SeqCst);
                    runs.fetch_add(1, SeqCst);
                    Locked::Ok(())
                };
                // Busy, or not to be asked; what must not be is an overlap.
                let _ = lock(&manager).run(body).await;
                tokio::time::sleep(ms(1)).await;
            }
        });
    }
    while !is_over() {
        // On a slow machine nothing is done in so short a time.
        tokio::time::sleep(if start.elapsed() < ms(1_000) { ms(7) } else { ms(300) }).await;
        proxy.cut();
    }
    while let Some(task) = tasks.join_next().await {
        task.expect("no overlap");
    }
    assert!(runs.load(SeqCst) > 10, "{runs:?} bodies ran");
    keeps_nothing(&server).await;
}
