//! Fences are unique and grow, whoever is granted the lock, and whatever the server forgets.

use std::future::ready;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use lockmacro_runtime::fence::{Fence, WRITE};
use lockmacro_runtime::{Lock, LockError, LockManager, UnavailableReason};
use lockmacro_tests::AcquireFenced as _;
use lockmacro_tests::queue::Queue;
use lockmacro_tests::{Admin, Backend, Fault, Proxy, Server, eventually, on};
use tokio::time::timeout;

use crate::{Locked, SOON, connect, lock, ms, renewed, served, until_renewed};

#[on(memory, redis, postgres)]
async fn every_fence_is_larger_than_all_before(backend: &Backend) {
    const TASKS: usize = 4;
    const TURNS: usize = 50;
    let key = backend.key("order:42");
    let fences = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..TASKS {
        // The order is looked at, and not how soon a loaded machine answers.
        let manager = backend.manager_from(LockManager::builder().timeout(4 * SOON)).await;
        let (key, fences) = (key.clone(), Arc::clone(&fences));
        tasks.spawn(async move {
            let mut turns = 0;
            while turns < TURNS {
                match lock(&manager, &key).acquire_fenced().await {
                    Ok((guard, fence)) => {
                        // In the order of the grants, because it is done under the lock.
                        fences.lock().expect("the fences").push(fence);
                        guard.release().await.expect("released");
                        turns += 1;
                    }
                    Err(error) => assert!(error.is_busy(), "{error}"),
                }
                tokio::task::yield_now().await;
            }
        });
    }
    while let Some(task) = tasks.join_next().await {
        task.expect("no panic");
    }
    let fences = fences.lock().expect("the fences");
    assert_eq!(fences.len(), TASKS * TURNS);
    assert!(fences.is_sorted_by(|earlier, later| earlier < later), "{fences:?}");
    backend.forget_fences();
}

#[on(memory, redis, postgres)]
async fn a_lock_acquired_without_a_fence_has_none(backend: &Backend) {
    let (manager, key) = (backend.manager().await, backend.key("order:42"));
    let guard = lock(&manager, &key).acquire().await.expect("free");
    assert_eq!(guard.fence(), None);
    let inner = async {
        let error = lock(&manager, &key).fenced().acquire().await.expect_err("none to give");
        assert!(matches!(error, LockError::Nested { .. }), "{error:?}");
        Locked::Ok(())
    };
    guard.run(inner).await.expect("the outer lock is as it was");
    assert!(backend.is_free(&key).await);
}

#[on(memory, redis, postgres)]
async fn a_blocking_lock_has_a_fence_too(backend: &Backend) {
    let (manager, key) = (backend.manager().await, backend.key("order:42"));
    let (guard, first) = lock(&manager, &key).acquire_fenced().await.expect("free");
    assert_eq!(guard.fence(), Some(first[0]));
    guard.release().await.expect("released");
    let second = lockmacro_tests::on_a_plain_thread(move || {
        let (guard, fence) = lock(&manager, &key).acquire_fenced_blocking().expect("free");
        guard.release_blocking().expect("released");
        fence
    });
    assert!(second.await > first);
    backend.forget_fences();
}

#[on(memory, redis, postgres)]
async fn an_expired_lease_leaves_a_larger_fence(backend: &Backend) {
    let (late, next) = (backend.manager().await, backend.manager().await);
    let key = backend.key("order:42");
    let short = Lock::new(&*key).ttl(ms(60)).manager(&late);
    let (guard, first) = short.acquire_fenced().await.expect("free");
    backend.becomes_free(&key, SOON).await;
    let (theirs, second) = lock(&next, &key).acquire_fenced().await.expect("free");
    assert!(second > first);
    assert_eq!(guard.fence(), Some(first[0]), "a lost guard still knows its fence");
    theirs.release().await.expect("theirs");
    backend.forget_fences();
}

#[tokio::test]
async fn fences_grow_whatever_the_server_forgets() {
    const LAST: &str = "lm1:wf:{order:42}";
    let deeds: [&[&str]; 7] = [
        &["PING"],
        &["SCRIPT", "FLUSH"],
        &["FLUSHALL"],
        &["DEL", LAST],
        // As after a clock that was an hour ahead and was set back.
        &["INCRBY", LAST, "3600000000"],
        &["SCRIPT", "FLUSH"],
        &["PERSIST", LAST],
    ];
    let server = Server::start();
    let mut admin = server.admin();
    let mut last = None;
    for deed in deeds {
        let manager = connect(&server.url()).await;
        for turn in 0..6 {
            if turn == 3 {
                admin.ask::<redis::Value>(deed);
            }
            let kept: u64 = admin.get(LAST).map_or(0, |kept| kept.parse().expect("a number"));
            let (guard, fences) = lock(&manager, "order:42").acquire_fenced().await.expect("free");
            let fence = fences[0];
            assert!(Some(fence) > last, "{deed:?}: {fence} after {last:?}");
            assert!(u64::from(fence) > kept, "{deed:?}: {fence} after {kept}");
            last = Some(fence);
            guard.release().await.expect("released");
        }
    }
    assert!(admin.ttl(LAST).is_some(), "it has an end again");
}

#[tokio::test]
async fn the_last_fence_is_kept_for_a_week_and_the_lock_for_its_ttl() {
    let server = Server::start();
    let mut admin = server.admin();
    let manager = connect(&server.url()).await;
    let (guard, fence) = lock(&manager, "order:42").acquire_fenced().await.expect("free");
    for key in admin.keys() {
        assert!(admin.ttl(&key).is_some(), "{key} has no end");
    }
    guard.release().await.expect("released");
    let [kept] = <[String; 1]>::try_from(admin.keys()).expect("the fence alone");
    assert_eq!(admin.get(&kept), Some(fence[0].to_string()));
    assert!(admin.ttl(&kept).expect("an end") > 6 * 24 * 60 * crate::LONG_TTL);
}

#[tokio::test]
async fn a_grant_that_is_asked_for_again_has_a_larger_fence() {
    for fault in [Fault::LoseReply, Fault::CutReply, Fault::CutCommand] {
        let server = Server::start();
        let proxy = Proxy::to(server.port());
        let builder = LockManager::builder().timeout(ms(2_400));
        let manager = builder.connect(&proxy.url()).await.expect("there");
        let (guard, first) = lock(&manager, "order:42").acquire_fenced().await.expect("free");
        guard.release().await.expect("released");
        let mut admin = server.admin();

        proxy.on_next("EVALSHA", fault);
        let acquiring = tokio::spawn(lock(&manager, "order:42").acquire_fenced());
        // The fence that the server has written down, before it is asked for again.
        let mut kept =
            || -> u64 { admin.get("lm1:wf:{order:42}").expect("kept").parse().expect("a number") };
        let start = Instant::now();
        let granted = loop {
            // No pause: it is asked for again at once.
            match kept() {
                fence if fence > u64::from(first[0]) => break fence,
                _ => tokio::task::yield_now().await,
            }
            assert!(start.elapsed() < SOON, "never granted");
        };
        let (guard, second) = acquiring.await.expect("no panic").expect("free");
        assert!(proxy.orders_are_done());
        // The answer that arrives brings fences that no other answer has brought.
        let last = kept();
        let is_repeated = fault != Fault::CutCommand;
        assert!(!is_repeated || u64::from(second[0]) > granted, "{fault:?}: {second:?}");
        assert!(second > first && u64::from(second[0]) <= last, "{fault:?}: {second:?}");
        guard.release().await.expect("released");
    }
}

#[tokio::test]
async fn a_renewal_keeps_the_fence() {
    let (server, manager) = served().await;
    let (guard, fence) =
        renewed(&manager, "order:42", ms(1_500)).acquire_fenced().await.expect("free");
    until_renewed(&guard).await;
    assert_eq!(guard.fence(), Some(fence[0]));
    assert_eq!(server.admin().get("lm1:wf:{order:42}"), Some(fence[0].to_string()));
    guard.release().await.expect("released");
}

#[tokio::test]
async fn a_fence_is_issued_only_when_it_is_asked_for() {
    let (server, manager) = served().await;
    let mut admin = server.admin();
    lock(&manager, "order:42").run(async { Locked::Ok(()) }).await.expect("free");
    admin.forget_calls();
    lock(&manager, "order:42").run(async { Locked::Ok(()) }).await.expect("free");
    let calls = admin.calls();
    let count = |name: &str| calls.iter().find(|(call, _)| call == name).map_or(0, |call| call.1);
    assert_eq!((count("set"), count("evalsha")), (1, 1), "{calls:?}");
    assert_eq!(admin.keys(), Vec::<String>::new());
}

#[tokio::test]
async fn a_redis_resource_refuses_a_write_with_a_smaller_fence() {
    let (server, manager) = served().await;
    let mut admin = server.admin();
    let mut write = |fence: Fence, value: &str| -> i64 {
        admin.ask(&["EVAL", WRITE, "1", "stock:7", &fence.to_string(), value])
    };
    let (guard, old) = lock(&manager, "order:42").acquire_fenced().await.expect("free");
    guard.release().await.expect("released");
    let (guard, new) = lock(&manager, "order:42").acquire_fenced().await.expect("free");
    assert_eq!(write(old[0], "old"), 1);
    assert_eq!(write(old[0], "old again"), 1, "one holder may write often");
    assert_eq!(write(new[0], "new"), 1);
    assert_eq!(write(old[0], "stale"), 0);
    assert_eq!(write(new[0], "newer"), 1);
    guard.release().await.expect("released");
    let kept: (String, String) = admin.ask(&["HMGET", "stock:7", "value", "fence"]);
    assert_eq!(kept, ("newer".to_owned(), new[0].to_string()));
}

/// Numbers that a script compares wrongly, and what is no number.
const NO_FENCES: [&str; 10] =
    ["", "-1", "nan", "inf", "0x10", "1e3", " 7", "7-9", "9007199254740993", "1795799774883986000"];

#[tokio::test]
async fn a_write_to_a_redis_resource_with_what_is_no_fence_fails_and_writes_nothing() {
    let server = Server::start();
    let mut admin = server.admin();
    admin.ask::<()>(&["HSET", "used", "value", "new", "fence", "9007199254740992"]);
    for resource in ["unused", "used"] {
        for fence in NO_FENCES {
            let written = admin.send::<i64>(&["EVAL", WRITE, "1", resource, fence, "mistaken"]);
            let error = written.expect_err(fence).to_string();
            assert!(error.contains("the first argument is not a fence"), "{fence}: {error}");
        }
    }
    // Without the fence, the value or the key.
    for words in [&["1", "unused"][..], &["1", "unused", "7"], &["0", "7", "mistaken"]] {
        let written = admin.send::<i64>(&[&["EVAL", WRITE], words].concat());
        written.expect_err("something is missing");
    }
    assert_eq!(admin.keys(), ["used"]);
    assert_eq!(admin.ask::<String>(&["HGET", "used", "value"]), "new");
    assert_eq!(admin.ask::<i64>(&["EVAL", WRITE, "1", "used", "9007199254740991", "late"]), 0);
}

#[tokio::test]
async fn a_redis_resource_whose_fence_is_no_fence_is_not_written() {
    let server = Server::start();
    let mut admin = server.admin();
    for fence in NO_FENCES {
        admin.ask::<()>(&["HSET", "stock:7", "value", "new", "fence", fence]);
        let written = admin.send::<i64>(&["EVAL", WRITE, "1", "stock:7", "7", "mistaken"]);
        let error = written.expect_err(fence).to_string();
        assert!(error.contains("the field `fence` of the hash"), "{fence}: {error}");
        assert_eq!(admin.ask::<String>(&["HGET", "stock:7", "value"]), "new");
    }
    // A hash that no fence has written is written by the first one.
    admin.ask::<()>(&["HDEL", "stock:7", "fence"]);
    assert_eq!(admin.ask::<i64>(&["EVAL", WRITE, "1", "stock:7", "7", "in time"]), 1);
}

fn are_used_up(error: LockError) {
    let LockError::Unavailable { reason, .. } = error else { panic!("{error:?}") };
    assert_eq!(reason, UnavailableReason::FencesUsedUp);
}

/// The largest fence: from there on a script's numbers are not exact.
const LARGEST: u64 = 1 << 53;

#[tokio::test]
async fn fences_that_are_used_up_are_an_error_and_never_repeated() {
    let server = Server::start();
    let mut admin = server.admin();
    let manager = connect(&server.url()).await;
    let counter = "lm1:wf:{order:42}";
    for beyond in [LARGEST, LARGEST + 1, LARGEST + 2, u64::MAX] {
        admin.ask::<()>(&["SET", counter, &beyond.to_string(), "PX", "60000"]);
        let refused = |error: LockError| {
            assert!(error.to_string().contains("2^53"), "{error}");
            are_used_up(error);
        };
        let ask = || lock(&manager, "order:42");
        refused(ask().fenced().acquire().await.map(drop).expect_err("no fence"));
        refused(ask().wait(SOON).fenced().acquire().await.map(drop).expect_err("no fence"));
        let both = Lock::many(["order:42", "order:43"]).manager(&manager);
        refused(both.fenced().acquire().await.map(drop).expect_err("no fence"));
        assert_eq!((admin.get("order:42"), admin.get("order:43")), (None, None));
        // A caller that wants no fence is given the lock.
        ask().acquire().await.expect("free").release().await.expect("still held");
    }
    let last = LARGEST - 1;
    admin.ask::<()>(&["SET", counter, &last.to_string(), "PX", "60000"]);
    let (guard, fence) = lock(&manager, "order:42").acquire_fenced().await.expect("one is left");
    assert_eq!(u64::from(fence[0]), LARGEST);
    guard.release().await.expect("still held");
    lock(&manager, "order:42")
        .fenced()
        .acquire()
        .await
        .map(drop)
        .expect_err("that was the last one");
    admin.ask::<()>(&["DEL", counter]);
    let guard = lock(&manager, "order:42").fenced().acquire().await.expect("the clock's");
    guard.release().await.expect("still held");
}

/// A caller that waits for a lock with a fence when the last fence is given.
#[tokio::test]
async fn used_up_fences_are_reported_to_waiters_and_delay_nobody() {
    let server = Server::start();
    let mut admin = server.admin();
    let url = server.url();
    let (ours, theirs, others) = (connect(&url).await, connect(&url).await, connect(&url).await);
    let guard = lock(&ours, "order:42").acquire().await.expect("free");
    let mut queue = Queue::at(&server, "order:42");
    let fenced = tokio::spawn(lock(&theirs, "order:42").wait_forever().acquire_fenced());
    queue.reaches(1).await;
    // Behind it in its process, and in another one.
    let behind = tokio::spawn(lock(&theirs, "order:42").wait_forever().acquire());
    let plain = tokio::spawn(lock(&others, "order:42").wait_forever().acquire());
    queue.reaches(2).await;
    admin.ask::<()>(&["SET", "lm1:wf:{order:42}", &LARGEST.to_string(), "PX", "60000"]);
    guard.release().await.expect("a release needs no fence");
    for served in [plain, behind] {
        let served = timeout(SOON, served).await.expect("in time").expect("no panic");
        served.expect("served").release().await.expect("still held");
    }
    let refused = timeout(SOON, fenced).await.expect("in time").expect("no panic");
    are_used_up(refused.map(drop).expect_err("no fence"));
    assert_eq!(queue.length(), Some(0));
}

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// For how long the servers keep the only fence.
fn kept(backend: &Backend) -> Vec<Duration> {
    let of = |mut admin: Admin| admin.ttl("lm1:wf:{order:42}").expect("a fence with an end");
    backend.admins().into_iter().map(of).collect()
}

fn is_nearly(left: Duration, whole: Duration) -> bool {
    left <= whole && left > whole - 2 * SOON
}

#[tokio::test]
async fn how_long_fences_are_kept_is_said_by_the_builder_or_the_url() {
    let builder = || LockManager::builder().timeout(SOON);
    let slots = Backend::slots().await;
    for backend in [Backend::redis(), slots, Backend::redlock()] {
        let and = if backend.url().contains('?') { '&' } else { '?' };
        let urls = [backend.url().to_owned(), format!("{}{and}fence_retention=40d", backend.url())];
        // The URL goes before the builder.
        for (said, url, days) in [(2, 0, 2), (1, 0, 1), (2, 1, 40)] {
            let manager = builder().fence_retention(said * DAY).connect(&urls[url]).await;
            let manager = manager.expect("there");
            let guard = lock(&manager, "order:42").fenced().acquire().await.expect("free");
            guard.release().await.expect("still held");
            // Of a Redlock all nodes are asked, and a majority is waited for.
            let is_so = || ready(kept(&backend).iter().all(|left| is_nearly(*left, days * DAY)));
            eventually("kept for so long", SOON, is_so).await;
        }
    }
}

#[tokio::test]
async fn a_fence_that_comes_by_a_hand_off_is_kept_as_long() {
    let backend = Backend::redis();
    let builder = || LockManager::builder().timeout(SOON).fence_retention(3 * DAY);
    let (ours, theirs) =
        (backend.manager_from(builder()).await, backend.manager_from(builder()).await);
    let guard = lock(&ours, "order:42").acquire().await.expect("free");
    let waiter = tokio::spawn(lock(&theirs, "order:42").wait_forever().acquire_fenced());
    Queue::of(&backend, "order:42").reaches(1).await;
    guard.release().await.expect("still held");
    let (next, _) = waiter.await.expect("no panic").expect("served");
    let left = kept(&backend)[0];
    assert!(is_nearly(left, 3 * DAY), "{left:?}");
    next.release().await.expect("still held");
    let both = Lock::many(["order:42", "order:43"]).manager(&theirs);
    let both = both.fenced().acquire().await.expect("free");
    let left = kept(&backend)[0];
    assert!(is_nearly(left, 3 * DAY), "{left:?}");
    both.release().await.expect("still held");
}
