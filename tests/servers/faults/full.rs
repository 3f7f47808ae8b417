//! A server that is over its `maxmemory` and evicts nothing: it refuses new locks, and
//! serves the ones that it has.

use std::future::ready;
use std::time::Duration;

use lockmacro_runtime::{Lock, LockGuard, LockManager, UnavailableReason};
use lockmacro_tests::AcquireFenced as _;
use lockmacro_tests::queue::Queue;
use lockmacro_tests::{Admin, Fault, Proxy, Server, eventually};

use crate::{KEY, LONG_TTL, Locked, TEST_TIMEOUT, lock, manager, ms, reason, works};

const OUT_OF_MEMORY: UnavailableReason = UnavailableReason::OutOfMemory;
const RECORDS: &str = "lm1:ww:{order:42}";

fn fill(admin: &mut Admin) {
    admin.configure("maxmemory", "1");
}

/// Checks the error of a lock that must not be granted, and that nothing is left of it.
async fn is_refused<T>(admin: &mut Admin, asked: impl Future<Output = Locked<T>>) {
    let before = admin.keys();
    match asked.await {
        Ok(_) => panic!("granted by a full server"),
        Err(error) => assert_eq!(reason(error), OUT_OF_MEMORY),
    }
    let unchanged = || ready(admin.keys() == before);
    eventually("nothing new is there", TEST_TIMEOUT, unchanged).await;
}

#[tokio::test]
async fn a_full_server_refuses_locks_of_every_kind_and_keeps_nothing_of_them() {
    let server = Server::start();
    let manager = LockManager::builder().timeout(ms(300)).connect(&server.url()).await.unwrap();
    // The server knows the scripts, and one fence is there.
    let guard = lock(&manager).fenced().acquire().await.expect("free");
    guard.release().await.expect("still held");
    let mut admin = server.admin();
    fill(&mut admin);
    let other = || Lock::new("other").ttl(LONG_TTL).manager(&manager);
    let several = || Lock::many(["one", "two"]).ttl(LONG_TTL).manager(&manager);
    is_refused(&mut admin, lock(&manager).acquire()).await;
    is_refused(&mut admin, lock(&manager).acquire_fenced()).await;
    is_refused(&mut admin, other().acquire_fenced()).await;
    is_refused(&mut admin, lock(&manager).wait(ms(200)).acquire()).await;
    is_refused(&mut admin, lock(&manager).wait(ms(200)).acquire_fenced()).await;
    is_refused(&mut admin, several().acquire()).await;
    is_refused(&mut admin, several().acquire_fenced()).await;
    is_refused(&mut admin, several().wait(ms(200)).acquire()).await;
    admin.configure("maxmemory", "0");
    works(&manager).await;
}

/// A held lock is not reported as held either: the caller could not have it.
#[tokio::test]
async fn a_full_server_refuses_callers_of_a_held_lock_and_releases_it() {
    let server = Server::start();
    let (holder, manager) = (manager(&server.url()).await, manager(&server.url()).await);
    let mut admin = server.admin();
    for forgets_scripts in [false, true] {
        let guard = lock(&holder).acquire().await.expect("free");
        fill(&mut admin);
        is_refused(&mut admin, lock(&manager).acquire()).await;
        is_refused(&mut admin, lock(&manager).wait(ms(200)).acquire()).await;
        is_refused(&mut admin, lock(&manager).acquire_fenced()).await;
        if forgets_scripts {
            admin.ask::<()>(&["SCRIPT", "FLUSH"]);
        }
        guard.release().await.expect("released without memory");
        assert_eq!(admin.keys(), Vec::<String>::new());
        admin.configure("maxmemory", "0");
    }
}

/// When the waiters' leases in the queue end, by the server's clock.
fn deadlines(admin: &mut Admin) -> Vec<u64> {
    let records: Vec<String> = admin.ask(&["HVALS", RECORDS]);
    let deadline = |record: &String| record.split('|').next().unwrap().parse().expect("a time");
    records.iter().map(deadline).collect()
}

#[tokio::test]
async fn a_full_server_keeps_waiters_and_hands_locks_off_and_renews_them() {
    let server = Server::start();
    let (ours, theirs) = (manager(&server.url()).await, manager(&server.url()).await);
    let guard = Lock::new(KEY).ttl(ms(1_500)).renew().manager(&ours).acquire().await.expect("free");
    let mut admin = server.admin();
    let mut queue = Queue::at(&server, KEY);
    let first = tokio::spawn(lock(&theirs).wait_forever().acquire_fenced());
    queue.reaches(1).await;
    let others = manager(&server.url()).await;
    let second = tokio::spawn(lock(&others).wait_forever().acquire());
    queue.reaches(2).await;
    let (before, keys) = (deadlines(&mut admin), admin.keys());
    let latest = before.iter().max().copied().unwrap_or_default();
    fill(&mut admin);
    let refreshed = || {
        let now = deadlines(&mut admin);
        assert_eq!((now.len(), admin.keys()), (2, keys.clone()), "the waiter, and nothing new");
        ready(now.iter().all(|deadline| *deadline > latest))
    };
    eventually("each has refreshed its place", TEST_TIMEOUT, refreshed).await;
    // It was renewed for longer than its ttl meanwhile.
    guard.check().expect("still held");
    guard.release().await.expect("released without memory");
    let (first, fence) = first.await.expect("no panic").expect("handed off without memory");
    assert_eq!(first.fence(), Some(fence[0]));
    first.extend(2 * LONG_TTL).await.expect("extended without memory");
    first.release().await.expect("still held");
    let second: LockGuard = second.await.expect("no panic").expect("handed off without memory");
    second.release().await.expect("still held");
    admin.configure("maxmemory", "0");
    works(&ours).await;
}

/// The lock is there already, and is its own.
#[tokio::test]
async fn a_lock_whose_answer_was_lost_is_granted_by_a_server_that_is_full_by_then() {
    let server = Server::start();
    for fenced in [false, true] {
        let proxy = Proxy::to(server.port());
        let manager =
            LockManager::builder().timeout(ms(2_400)).connect(&proxy.url()).await.unwrap();
        let mut admin = server.admin();
        if fenced {
            // The script is known, and has nothing to load.
            let guard = lock(&manager).fenced().acquire().await.expect("free");
            guard.release().await.expect("still held");
        }
        proxy.on_next(if fenced { "EVALSHA" } else { "SET" }, Fault::LoseReply);
        let asked = tokio::spawn(async move {
            match fenced {
                true => lock(&manager).fenced().acquire().await,
                false => lock(&manager).acquire().await,
            }
        });
        eventually("set", TEST_TIMEOUT, || ready(admin.get(KEY).is_some())).await;
        fill(&mut admin);
        let guard = asked.await.expect("no panic").expect("it is there");
        guard.release().await.expect("released without memory");
        assert_eq!(admin.get(KEY), None);
        admin.configure("maxmemory", "0");
    }
}

/// A lock whose lease has ended goes to the waiter, and not to a newcomer.
#[tokio::test]
async fn a_lock_that_expires_on_a_full_server_goes_to_a_waiter() {
    let server = Server::start();
    let (ours, theirs) = (manager(&server.url()).await, manager(&server.url()).await);
    let short = Lock::new(KEY).ttl(Duration::from_secs(1)).manager(&ours);
    let guard = short.acquire().await.expect("free");
    let mut admin = server.admin();
    let waiter = tokio::spawn(lock(&theirs).wait_forever().acquire());
    Queue::at(&server, KEY).reaches(1).await;
    fill(&mut admin);
    admin.ask::<()>(&["PEXPIRE", KEY, "1"]);
    let next = waiter.await.expect("no panic").expect("served");
    next.release().await.expect("still held");
    drop(guard);
}
