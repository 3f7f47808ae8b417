//! Connections that the server ends.

use futures::future::join_all;
use lockmacro_runtime::{Lock, UnavailableReason};
use lockmacro_tests::AcquireFenced as _;
use lockmacro_tests::eventually;
use lockmacro_tests::times::{LONG_TTL, ms};
use tokio::time::timeout;

use crate::refusals::with_user;
use crate::{Room, is_renewed, is_waited_for, lock, manager, reason, shared};

#[tokio::test]
async fn a_lock_survives_all_connections_of_its_manager_and_waiters_those_of_theirs() {
    let server = shared().await;
    let url = server.url_of("postgres", "install=1&application_name=killed");
    let (ours, theirs, others) = (manager(&url).await, manager(&url).await, manager(&url).await);
    let client = server.connect().await;
    let room = Room::default();
    let held = Lock::new("killed").ttl(ms(6_000)).renew().manager(&ours);
    let (guard, fences) = held.acquire_fenced().await.expect("free");
    room.visit(fences[0]).await;
    let waiting = join_all([&theirs, &theirs, &others].map(|manager| async {
        let waiter = lock(manager, "killed").wait(LONG_TTL).acquire_fenced();
        let (guard, fences) = waiter.await.expect("its turn");
        room.visit(fences[0]).await;
        guard.release().await.expect("still held");
    }));
    let killing = async {
        is_waited_for(&client, "killed").await;
        // Once after each renewal, so that each comes by another connection.
        for _ in 0..2 {
            assert!(server.terminate("killed").await > 0);
            is_renewed(&client, "killed").await;
        }
        assert!(guard.is_held() && room.visits() == 1, "nobody else has it");
        server.terminate("killed").await;
        guard.release().await.expect("still held");
    };
    let all = async { tokio::join!(waiting, killing) };
    timeout(LONG_TTL, all).await.expect("the waiters are served");
    assert_eq!(room.visits(), 4);
    server.keeps_nothing("killed").await;
}

#[tokio::test]
async fn callers_whose_connections_are_killed_all_the_time_are_served_one_after_the_other() {
    const CALLERS: usize = 6;
    const CALLS: usize = 12;
    let server = shared().await;
    let url = server.url_of("postgres", "install=1&application_name=harassed");
    let managers = [manager(&url).await, manager(&url).await];
    let room = Room::default();
    let callers = join_all((0..CALLERS).map(|nth| {
        let (manager, room) = (&managers[nth % managers.len()], &room);
        async move {
            for _ in 0..CALLS {
                let waiting = lock(manager, "harassed").wait(LONG_TTL).acquire_fenced();
                let (guard, fences) = waiting.await.expect("its turn");
                room.visit(fences[0]).await;
                // It may be unknown whether the release was in time.
                if let Err(error) = guard.release().await {
                    assert_eq!(reason(&error), UnavailableReason::Disconnected, "{error}");
                }
            }
        }
    }));
    let killing = async {
        for visits in (1..CALLERS * CALLS).step_by(5) {
            let reached = || std::future::ready(room.visits() >= visits);
            eventually("somebody is served", LONG_TTL, reached).await;
            server.terminate("harassed").await;
        }
    };
    timeout(LONG_TTL, async { tokio::join!(callers, killing) }).await.expect("all are served");
    assert_eq!(room.visits(), CALLERS * CALLS);
    server.keeps_nothing("harassed").await;
}

/// It ends them with another error than by order.
#[tokio::test]
async fn locks_and_waiters_survive_a_server_that_ends_idle_connections() {
    let server = shared().await;
    let url = with_user(&server, "idle", "SET idle_session_timeout = '60ms'").await;
    let (ours, theirs) = (manager(&url).await, manager(&url).await);
    let client = server.connect().await;
    let connections = async || {
        let all = "SELECT pid FROM pg_stat_activity WHERE application_name = 'idle'";
        let rows = client.query(all, &[]).await.expect("an answer");
        rows.iter().map(|row| row.get(0)).collect::<Vec<i32>>()
    };
    for _ in 0..10 {
        // At the moment at which they end, too.
        let before = connections().await;
        let guard = lock(&ours, "idle").acquire().await.expect("free");
        // It also waits while they end.
        let waiting = tokio::spawn(lock(&theirs, "idle").wait(4 * LONG_TTL).acquire());
        is_waited_for(&client, "idle").await;
        eventually("they end", LONG_TTL, || async {
            let now = connections().await;
            !before.iter().any(|pid| now.contains(pid))
        })
        .await;
        // It may be unknown whether the release was in time.
        if let Err(error) = guard.release().await {
            assert_eq!(reason(&error), UnavailableReason::Disconnected, "{error}");
        }
        let guard = waiting.await.expect("no panic").expect("its turn");
        if let Err(error) = guard.release().await {
            assert_eq!(reason(&error), UnavailableReason::Disconnected, "{error}");
        }
    }
    server.keeps_nothing("idle").await;
}
