//! Foreign clients on the same key, and deletions by hand.

use std::time::{Duration, Instant};

use lockmacro_runtime::LockError;
use lockmacro_tests::queue::Queue;
use lockmacro_tests::{Admin, Server};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::{
    Held, KEY, LONG_TTL, Locked, POLLED, PUSHED, all_served, keeps_only_fences, lock, manager, ms,
    served, waiting,
};

const SECRET: &str = "5f2b-php-worker-secret";
const COMPARE_AND_DELETE: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";

fn takes(foreign: &mut Admin, px: &str) -> bool {
    foreign.ask::<Option<String>>(&["SET", KEY, SECRET, "NX", "PX", px]).is_some()
}

fn releases(foreign: &mut Admin) -> bool {
    foreign.ask::<i64>(&["EVAL", COMPARE_AND_DELETE, "1", KEY, SECRET]) == 1
}

#[tokio::test]
async fn a_foreign_holder_is_succeeded_within_a_tick_of_its_release() {
    let server = Server::start();
    let manager = manager(&server).await;
    let mut foreign = server.admin();
    assert!(takes(&mut foreign, "60000"));
    let mut queue = Queue::at(&server, KEY);
    let first = queue.join(waiting(&manager, KEY).acquire()).await;
    let mut first = tokio::spawn(first);
    let second = tokio::spawn(queue.join(waiting(&manager, KEY).acquire()).await);
    timeout(ms(100), &mut first).await.expect_err("it is held");
    assert!(releases(&mut foreign));
    served(POLLED, async { first.await.expect("no panic") }).await;
    served(PUSHED, async { second.await.expect("no panic") }).await;
    keeps_only_fences(&server, PUSHED).await;
}

#[tokio::test]
async fn a_foreign_holder_that_dies_is_succeeded_at_its_expiry() {
    let server = Server::start();
    let manager = manager(&server).await;
    let mut foreign = server.admin();
    let start = Instant::now();
    assert!(takes(&mut foreign, "500"));
    let waiter = Queue::at(&server, KEY).join(waiting(&manager, KEY).acquire()).await;
    let guard = timeout(ms(500) + PUSHED, waiter).await.expect("in time").expect("served");
    assert!(start.elapsed() >= ms(499), "after {:?}", start.elapsed());
    guard.release().await.expect("still held");
}

#[tokio::test]
async fn a_waiter_in_vain_learns_of_a_foreign_holder() {
    let server = Server::start();
    let manager = manager(&server).await;
    server.admin().ask::<()>(&["SET", KEY, SECRET]);
    let error = lock(&manager, KEY).wait(ms(50)).acquire().await.expect_err("held");
    assert!(!format!("{error} {error:?}").contains(SECRET), "{error:?}");
    let LockError::TimedOut { rank, .. } = error else {
        panic!("{error:?}");
    };
    assert_eq!(
        (error.holder().owner.as_deref(), error.holder().free_within, rank),
        (None, None, 0)
    );
}

#[tokio::test]
async fn a_foreign_client_is_excluded_while_the_queue_moves() {
    let server = Server::start();
    let (manager, other) = (manager(&server).await, manager(&server).await);
    let guard = lock(&manager, KEY).acquire().await.expect("free");
    let mut tasks = JoinSet::new();
    for nth in 0..100 {
        let manager = if nth % 2 == 0 { &manager } else { &other };
        tasks.spawn(waiting(manager, KEY).run(async { Locked::Ok(()) }));
    }
    Queue::at(&server, KEY).reaches(1).await;
    Queue::stands_in_line().await;
    let mut foreign = server.admin();
    let turns = tokio::task::spawn_blocking(move || {
        let mut refused = 0;
        while !takes(&mut foreign, "60000") {
            refused += 1;
        }
        // The key is never absent while somebody waits.
        let waiting: usize = foreign.ask(&["ZCARD", &format!("lm1:wq:{{{KEY}}}")]);
        (refused, waiting, releases(&mut foreign))
    });
    guard.release().await.expect("still held");
    let (refused, waiting, released) = turns.await.expect("no panic");
    assert!(refused > 0);
    assert_eq!((waiting, released), (0, true), "(left in the queue, held to its end)");
    all_served(tasks).await;
    keeps_only_fences(&server, PUSHED).await;
}

#[tokio::test]
async fn a_key_deleted_under_a_queue_lets_the_queue_go_on_within_a_tick() {
    let server = Server::start();
    let Held { theirs, mut queue, guard, .. } = Held::at(&server).await;
    let mut waiters = Vec::new();
    for _ in 0..5 {
        waiters.push(tokio::spawn(queue.join(waiting(&theirs, KEY).acquire()).await));
    }
    server.admin().ask::<()>(&["DEL", KEY]);
    let start = Instant::now();
    for waiter in waiters {
        served(POLLED, async { waiter.await.expect("no panic") }).await;
    }
    // Only the first one had to ask.
    assert!(start.elapsed() < POLLED + PUSHED, "after {:?}", start.elapsed());
    let error = guard.release().await.expect_err("somebody has deleted it");
    assert!(matches!(error, LockError::Lost(_)), "{error:?}");
    keeps_only_fences(&server, PUSHED).await;
}

#[tokio::test]
async fn a_queue_deleted_under_its_waiters_is_joined_again() {
    let server = Server::start();
    let (ours, theirs) = (manager(&server).await, manager(&server).await);
    let mut admin = server.admin();
    for flushed in [false, true] {
        let guard = lock(&ours, KEY).acquire().await.expect("free");
        let mut queue = Queue::at(&server, KEY);
        let mut waiters = JoinSet::new();
        for _ in 0..3 {
            waiters.spawn(queue.join(waiting(&theirs, KEY).run(async { Locked::Ok(()) })).await);
        }
        if flushed {
            admin.ask::<()>(&["FLUSHALL"]);
            drop(guard);
        } else {
            for key in admin.keys().iter().filter(|key| *key != KEY) {
                admin.ask::<()>(&["DEL", key]);
            }
            guard.release().await.expect("still held");
        }
        // In the order in which they ask again, whichever that is.
        while let Some(ended) = timeout(POLLED, waiters.join_next()).await.expect("in time") {
            ended.expect("no panic").expect("served");
        }
        keeps_only_fences(&server, PUSHED).await;
    }
}

/// Makes a list of the key at once, so that no waiter gets the lock in between.
fn become_a_list(admin: &mut Admin) {
    let script = "redis.call('DEL', KEYS[1]) redis.call('RPUSH', KEYS[1], 'not a lock')";
    admin.ask::<()>(&["EVAL", script, "1", KEY]);
}

#[tokio::test]
async fn a_key_of_another_type_ends_the_wait() {
    let server = Server::start();
    let manager = manager(&server).await;
    let mut admin = server.admin();
    admin.ask::<()>(&["RPUSH", KEY, "not a lock"]);
    let asked =
        timeout(PUSHED, lock(&manager, KEY).wait(LONG_TTL).acquire()).await.expect("at once");
    assert!(matches!(asked.map(drop), Err(LockError::KeyNotALock { .. })));
    admin.ask::<()>(&["DEL", KEY]);
    let holder = crate::manager(&server).await;
    let guard = lock(&holder, KEY).acquire().await.expect("free");
    let waiter = Queue::at(&server, KEY).join(waiting(&manager, KEY).acquire()).await;
    become_a_list(&mut admin);
    let asked: Locked<()> = timeout(POLLED, waiter).await.expect("within a tick").map(drop);
    assert!(matches!(asked, Err(LockError::KeyNotALock { .. })), "{asked:?}");
    drop(guard);
    admin.ask::<()>(&["DEL", KEY]);
    keeps_only_fences(&server, Duration::from_secs(5)).await;
}

/// A waiter that leaves is out of the queue, whatever the key is then.
#[tokio::test]
async fn a_waiter_that_leaves_while_the_key_is_of_another_type_is_never_granted() {
    let server = Server::start();
    let (ours, theirs) = (manager(&server).await, manager(&server).await);
    let holder = manager(&server).await;
    let mut admin = server.admin();
    for manager in [&ours, &theirs] {
        // From then on it hears, and has no reason to ask twice.
        served(LONG_TTL, waiting(manager, "another").acquire()).await;
    }
    let guard = lock(&holder, KEY).acquire().await.expect("free");
    let mut queue = Queue::at(&server, KEY);
    let leaves = queue.join(waiting(&theirs, KEY).acquire()).await;
    let stays = tokio::spawn(queue.join(waiting(&ours, KEY).acquire()).await);
    become_a_list(&mut admin);
    drop(leaves);
    queue.reaches(1).await;
    admin.ask::<i64>(&["DEL", KEY]);
    served(POLLED, async { stays.await.expect("no panic") }).await;
    drop(guard);
    keeps_only_fences(&server, PUSHED).await;
}

#[tokio::test]
async fn a_queue_that_nobody_asks_in_is_gone_after_fifteen_seconds() {
    let server = Server::start();
    let Held { theirs, mut queue, guard: _guard, .. } = Held::at(&server).await;
    let _waiter = queue.join(waiting(&theirs, KEY).acquire()).await;
    let mut admin = server.admin();
    let beside: Vec<_> = admin.keys().into_iter().filter(|key| key != KEY).collect();
    assert_eq!(beside.len(), 2, "{beside:?}");
    for key in beside {
        let left = admin.ttl(&key).expect("it has an end");
        assert!(left <= ms(15_000), "{key} stays for {left:?}");
    }
}
