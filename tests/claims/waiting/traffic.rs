//! The costs of waiting on a server: a place for each process, and next to nothing for a waiter.

use std::time::{Duration, Instant};

use lockmacro_runtime::{Lock, LockManager};
use lockmacro_tests::queue::Queue;
use lockmacro_tests::{Admin, Server, eventually};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::{
    CONFIRM_WINDOW, KEY, LONG_TTL, Locked, all_served, keeps_only_fences, lock, manager, ms,
    waiting,
};

const WAITERS: usize = 200;

/// The requests of clients since the counting began: the scripts' own calls are not counted.
fn commands(admin: &mut Admin) -> usize {
    admin.count(&["eval", "evalsha", "subscribe"]) as usize
}

/// How many commands an acquisition with `ttl` costs when 200 wait in `processes` managers.
async fn commands_per_acquisition(ttl: Duration, processes: usize) -> f64 {
    let mut waiters = WAITERS;
    loop {
        let (commands, took) = measured_once(ttl, processes, waiters).await;
        // On a machine so loaded that they also had to refresh their leases it is another measure.
        if took < ms(1_500) {
            return commands;
        }
        // So many take longer than a tick here.
        waiters = waiters * 2 / 3;
        assert!(waiters >= 20, "{waiters} hand-offs take longer than a tick here");
    }
}

/// How many commands each costs, and how long all of them take from when the first one asks.
async fn measured_once(ttl: Duration, processes: usize, waiters: usize) -> (f64, Duration) {
    let server = Server::start();
    let mut managers = Vec::new();
    for _ in 0..processes {
        let builder = LockManager::builder().turn(ms(20));
        managers.push(builder.connect(&server.url()).await.expect("there"));
    }
    // The first hand-off has the server load the scripts.
    let guard = lock(&managers[0], KEY).acquire().await.expect("free");
    let first = Queue::at(&server, KEY).join(waiting(&managers[0], KEY).acquire()).await;
    guard.release().await.expect("still held");
    let guard = first.await.expect("served");
    let mut admin = server.admin();
    admin.forget_calls();
    let start = Instant::now();
    let mut tasks = JoinSet::new();
    for nth in 0..waiters {
        let lock = Lock::new(KEY).ttl(ttl).manager(&managers[nth % processes]).wait_forever();
        tasks.spawn(lock.run(async { Locked::Ok(()) }));
    }
    // The first process holds the lock, and needs no place.
    Queue::at(&server, KEY).reaches(processes - 1).await;
    sleep(ms(20)).await;
    guard.release().await.expect("still held");
    all_served(tasks).await;
    let (commands, took) = (commands(&mut admin), start.elapsed());
    keeps_only_fences(&server, LONG_TTL).await;
    // A subscription and the like are as many however many wait.
    (commands.saturating_sub(1 + processes) as f64 / waiters as f64, took)
}

/// A turn of 20 ms serves many of them.
#[tokio::test]
async fn a_waiter_of_a_process_costs_next_to_nothing() {
    for ttl in [LONG_TTL, CONFIRM_WINDOW, ms(2_000)] {
        let commands = commands_per_acquisition(ttl, 1).await;
        assert!(commands <= 0.1, "{commands} with a ttl of {ttl:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_of_several_processes_cost_less_than_a_command_each() {
    let commands = commands_per_acquisition(LONG_TTL, 4).await;
    assert!(commands <= 0.5, "{commands}");
}

#[tokio::test]
async fn nobody_polls_while_waiting() {
    let server = Server::start();
    let holder = manager(&server).await;
    let guard = lock(&holder, KEY).acquire().await.expect("free");
    let mut tasks = JoinSet::new();
    for _ in 0..WAITERS {
        tasks.spawn(lock(&holder, KEY).wait(LONG_TTL).run(async { Locked::Ok(()) }));
    }
    let other = manager(&server).await;
    for _ in 0..WAITERS {
        tasks.spawn(lock(&other, KEY).wait(LONG_TTL).run(async { Locked::Ok(()) }));
    }
    Queue::at(&server, KEY).reaches(1).await;
    let mut admin = server.admin();
    admin.forget_calls();
    // With ticks it is one command of each process without the lock in about two seconds.
    let (start, mut ticks) = (Instant::now(), 0);
    eventually("it has asked once", LONG_TTL, || {
        ticks = commands(&mut admin);
        std::future::ready(ticks >= 1 && start.elapsed() > ms(3_000))
    })
    .await;
    let rounds = start.elapsed().as_millis() as usize / 1_500;
    assert!(ticks <= rounds + 1, "{ticks} commands after {:?}", start.elapsed());
    guard.release().await.expect("still held");
    all_served(tasks).await;
    keeps_only_fences(&server, LONG_TTL).await;
}

#[tokio::test]
async fn a_free_lock_that_would_be_waited_for_costs_two_commands() {
    let server = Server::start();
    let manager = manager(&server).await;
    lock(&manager, KEY).wait(LONG_TTL).run(async { Locked::Ok(()) }).await.expect("free");
    let mut admin = server.admin();
    admin.forget_calls();
    for _ in 0..50 {
        lock(&manager, KEY).wait(LONG_TTL).run(async { Locked::Ok(()) }).await.expect("free");
    }
    let commands = commands(&mut admin);
    assert!(commands <= 100, "{commands} commands for 50");
}

#[tokio::test]
async fn a_process_subscribes_once() {
    let server = Server::start();
    let (ours, theirs) = (manager(&server).await, manager(&server).await);
    let before: Vec<String> = server.admin().ask(&["PUBSUB", "CHANNELS"]);
    assert_eq!(before, Vec::<String>::new(), "a caller that never waits does not subscribe");
    for round in 0..3 {
        let mut tasks = JoinSet::new();
        for key in 0..5 {
            let key = format!("order:{round}:{key}");
            let held = lock(&theirs, &key).acquire().await.expect("free");
            for _ in 0..4 {
                tasks.spawn(lock(&ours, &key).wait(LONG_TTL).run(async { Locked::Ok(()) }));
            }
            Queue::at(&server, &key).reaches(1).await;
            tasks.spawn(async { held.release().await });
        }
        all_served(tasks).await;
        let channels: Vec<String> = server.admin().ask(&["PUBSUB", "CHANNELS"]);
        assert_eq!(channels.len(), 1, "{channels:?}");
    }
}

/// The new subscription replaces the one before.
#[tokio::test]
async fn a_manager_with_waiters_has_no_more_connections_than_before() {
    let server = Server::start();
    let (ours, theirs) = (manager(&server).await, manager(&server).await);
    let mut admin = server.admin();
    let mut clients = move || admin.ask::<String>(&["CLIENT", "LIST"]).lines().count();
    // Two managers, and us.
    let mut are = move |count| std::future::ready(clients() == count);
    let guard = lock(&theirs, KEY).acquire().await.expect("free");
    eventually("each has one", LONG_TTL, || are(3)).await;
    let waiter = Queue::at(&server, KEY).join(waiting(&ours, KEY).acquire()).await;
    guard.release().await.expect("still held");
    waiter.await.expect("served").release().await.expect("still held");
    // The thread in the background has its own.
    eventually("the one before is closed", LONG_TTL, || are(4)).await;
}
