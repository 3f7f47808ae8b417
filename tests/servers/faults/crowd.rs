//! Commands that go together, since many are in flight: each caller still has its own answer.

use std::future::ready;

use futures::future::join_all;
use lockmacro_runtime::{Lock, LockError, LockGuard, LockManager, LossCause};
use lockmacro_tests::{Admin, Backend, Fault, Polled, Proxy, Server, drop_after_polls, eventually};

use crate::{LONG_TTL, Locked, TEST_TIMEOUT, keeps_nothing, works};

/// More than go together at most.
const CROWD: usize = 300;

fn key(nth: usize) -> String {
    format!("order:{nth}")
}

fn each(manager: &LockManager) -> impl Iterator<Item = Lock> {
    (0..CROWD).map(|nth| Lock::new(key(nth)).ttl(LONG_TTL).manager(manager))
}

async fn patient(url: &str) -> LockManager {
    LockManager::builder().timeout(LONG_TTL).connect(url).await.expect("the server is there")
}

/// How often scripts were called since the counting began.
fn scripts(admin: &mut Admin) -> u64 {
    let calls = admin.calls();
    let scripts = calls.iter().filter(|(name, _)| name == "evalsha" || name == "eval");
    scripts.map(|(_, count)| count).sum()
}

async fn acquired(manager: &LockManager) -> Vec<LockGuard> {
    let guards = join_all(each(manager).map(|lock| lock.acquire())).await;
    guards.into_iter().map(|guard| guard.expect("free")).collect()
}

#[tokio::test]
async fn each_caller_of_a_shared_round_trip_gets_its_own_answer() {
    let server = Server::start();
    let (manager, other) = (patient(&server.url()).await, patient(&server.url()).await);
    works(&manager).await;
    let theirs = join_all(each(&other).step_by(3).map(|lock| lock.acquire())).await;
    for (nth, ours) in
        join_all(each(&manager).map(|lock| lock.acquire())).await.into_iter().enumerate()
    {
        match ours {
            Ok(guard) if nth % 3 > 0 => assert_eq!(guard.key().as_str(), key(nth)),
            Err(LockError::Busy { key: busy, .. }) if nth % 3 == 0 => {
                assert_eq!(busy, key(nth).into())
            }
            other => panic!("{nth}: {other:?}"),
        }
    }
    for guard in theirs {
        guard.expect("free").release().await.expect("nobody took it");
    }
    keeps_nothing(&server).await;
}

#[tokio::test]
async fn locks_released_together_are_each_found_as_they_are() {
    let server = Server::start();
    let (manager, other) = (patient(&server.url()).await, patient(&server.url()).await);
    let mut admin = server.admin();
    // From then on the server knows the scripts.
    works(&manager).await;
    let guards = acquired(&manager).await;
    let mut waiting = Vec::new();
    for nth in 0..CROWD {
        let key = key(nth);
        match nth % 10 {
            1 => admin.ask::<()>(&["DEL", &key]),
            2 => admin.ask::<()>(&["SET", &key, "somebody", "PX", "60000"]),
            3 => {
                admin.ask::<()>(&["DEL", &key]);
                admin.ask::<()>(&["RPUSH", &key, "a list"]);
            }
            4 => {
                let lock = Lock::new(&*key).ttl(LONG_TTL).manager(&other).wait_forever();
                waiting.push(tokio::spawn(lock.acquire()));
                let line = format!("lm1:wq:{{{key}}}");
                eventually("it is in the queue", TEST_TIMEOUT, || {
                    ready(admin.ask::<usize>(&["ZCARD", &line]) == 1)
                })
                .await;
            }
            _ => {}
        }
    }
    admin.forget_calls();
    let released = join_all(guards.into_iter().map(LockGuard::release)).await;
    let together = scripts(&mut admin);
    for (nth, released) in released.into_iter().enumerate() {
        let now = admin.send::<Option<String>>(&["GET", &key(nth)]);
        match (nth % 10, released) {
            (1..=3, Err(LockError::Lost(lost))) => assert_eq!(lost.cause(), LossCause::Taken),
            (1..=3, other) => panic!("{nth}: {other:?}"),
            (_, other) => other.unwrap_or_else(|error| panic!("{nth}: {error}")),
        }
        match nth % 10 {
            2 => assert_eq!(now.expect("a string").as_deref(), Some("somebody")),
            3 => assert!(now.is_err(), "still a list"),
            // Handed off, as is seen below. This thread was busy, so that the waiter may have been
            // too late for the first offer, and asks again.
            4 => {}
            _ => assert_eq!(now.expect("free"), None, "{nth}"),
        }
    }
    // Those that somebody waits for, or that are no locks, take another call each.
    assert!(together < CROWD as u64 * 2 / 3, "{together} calls");
    for waiter in waiting {
        let guard = waiter.await.expect("no panic").expect("handed off");
        guard.release().await.expect("still held");
    }
}

#[tokio::test]
async fn a_server_that_wants_one_slot_is_asked_one_by_one() {
    let backend = Backend::slots().await;
    let (manager, mut admin) = (patient(backend.url()).await, backend.admin().expect("a server"));
    for _ in 0..2 {
        let guards = acquired(&manager).await;
        for released in join_all(guards.into_iter().map(LockGuard::release)).await {
            released.expect("still held");
        }
        assert_eq!(admin.keys(), [""; 0]);
    }
}

#[tokio::test]
async fn a_crowd_that_is_dropped_leaves_nothing() {
    let server = Server::start();
    let manager = patient(&server.url()).await;
    let mut dropped = 0;
    for polls in 1..4 {
        let crowd = join_all(each(&manager).map(|lock| lock.run(async { Locked::Ok(()) })));
        match drop_after_polls(crowd, polls).await {
            Polled::Dropped => dropped += 1,
            Polled::Completed(_) => {}
        }
        keeps_nothing(&server).await;
    }
    assert!(dropped > 0, "none was dropped in flight");
}

#[tokio::test]
async fn a_crowd_whose_answers_are_lost_has_its_locks_all_the_same() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let manager = patient(&proxy.url()).await;
    let mut admin = server.admin();
    proxy.on_next("SET", Fault::CutReply);
    let guards = acquired(&manager).await;
    assert!(proxy.orders_are_done());
    proxy.on_next("EVALSHA", Fault::CutReply);
    for released in join_all(guards.into_iter().map(LockGuard::release)).await {
        // Whether an earlier one had found it is not known of those whose answer was lost.
        if let Err(error) = released {
            assert!(matches!(error, LockError::Unavailable { .. }), "{error}");
        }
    }
    assert!(proxy.orders_are_done());
    assert_eq!(admin.keys(), [""; 0]);
}
