//! A queue when connections, scripts and servers go.

use std::future::ready;
use std::time::{Duration, Instant};

use lockmacro_runtime::{Lock, LockError, LockManager};
use lockmacro_tests::queue::Queue;
use lockmacro_tests::{Admin, Fault, Proxy, Server, eventually};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::{
    Held, KEY, LONG_TTL, Locked, POLLED, PUSHED, all_served, handed_off, keeps_only_fences, lock,
    manager, ms, requests, served, waiting,
};

/// Starts waiters of two managers whose bodies take a while, and gives their ends.
async fn crowd(server: &Server, waiters: usize, body: Duration) -> JoinSet<Locked<()>> {
    let managers = [manager(server).await, manager(server).await];
    let mut tasks = JoinSet::new();
    for nth in 0..waiters {
        let lock = Lock::new(KEY).ttl(ms(2_000)).manager(&managers[nth % 2]).wait(LONG_TTL);
        tasks.spawn(lock.run(async move {
            tokio::time::sleep(body).await;
            Locked::Ok(())
        }));
    }
    tasks
}

/// Has 40 waiters served while `fault` strikes again and again.
async fn everybody_is_served_despite(fault: impl Fn(&mut Admin)) {
    let server = Server::start();
    let mut admin = server.admin();
    let tasks = crowd(&server, 40, ms(10)).await;
    let start = Instant::now();
    for _ in 0..12 {
        fault(&mut admin);
        // Between two faults, for some of the callers to be served.
        tokio::time::sleep(ms(25)).await;
    }
    all_served(tasks).await;
    assert!(start.elapsed() < 4 * POLLED, "after {:?}", start.elapsed());
    keeps_only_fences(&server, POLLED).await;
}

#[tokio::test]
async fn everybody_is_served_when_subscribers_are_killed() {
    everybody_is_served_despite(|admin| {
        let _: i64 = admin.ask(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    })
    .await;
}

#[tokio::test]
async fn everybody_is_served_when_all_connections_are_killed() {
    everybody_is_served_despite(|admin| {
        let _: i64 = admin.ask(&["CLIENT", "KILL", "TYPE", "pubsub"]);
        let _: i64 = admin.ask(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    })
    .await;
}

#[tokio::test]
async fn everybody_is_served_when_the_scripts_are_flushed() {
    everybody_is_served_despite(|admin| admin.ask::<()>(&["SCRIPT", "FLUSH"])).await;
}

#[tokio::test]
async fn a_waiter_whose_subscription_is_killed_receives_its_grant_again() {
    let server = Server::start();
    let Held { theirs, mut queue, guard, .. } = Held::at(&server).await;
    let waiter = queue.join(waiting(&theirs, KEY).acquire()).await;
    let waiter = tokio::spawn(waiter);
    let mut admin = server.admin();
    admin.forget_calls();
    let killed: i64 = admin.ask(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    assert_eq!(killed, 1);
    let subscribed = || {
        let channels: Vec<String> = admin.ask(&["PUBSUB", "CHANNELS"]);
        ready(channels.len() == 1)
    };
    eventually("it subscribes again by itself", PUSHED, subscribed).await;
    let asked = || ready(requests(&mut admin) > 0);
    eventually("it asks again, so that nothing in between was missed", PUSHED, asked).await;
    guard.release().await.expect("still held");
    served(PUSHED, async { waiter.await.expect("no panic") }).await;
}

#[tokio::test]
async fn a_grant_that_went_to_a_killed_connection_is_found_again() {
    let server = Server::start();
    let (ours, theirs) = (manager(&server).await, manager(&server).await);
    for _ in 0..10 {
        let guard = lock(&ours, KEY).acquire().await.expect("free");
        let waiter = Queue::at(&server, KEY).join(waiting(&theirs, KEY).acquire()).await;
        // No subscriber is there when the lock is handed off, or it has just been killed.
        let killed = server.admin().ask::<i64>(&["CLIENT", "KILL", "TYPE", "pubsub"]);
        assert_eq!(killed, 1);
        handed_off(guard, waiter).await;
    }
    keeps_only_fences(&server, PUSHED).await;
}

#[tokio::test]
async fn a_server_restarted_empty_serves_its_waiters_or_they_get_an_error() {
    let mut server = Server::start();
    let (ours, theirs) = (manager(&server).await, manager(&server).await);
    let holder = manager(&server).await;
    let guard = lock(&holder, KEY).acquire().await.expect("free");
    let mut queue = Queue::at(&server, KEY);
    let mut tasks = JoinSet::new();
    for nth in 0..6 {
        let manager = if nth % 2 == 0 { &ours } else { &theirs };
        let waiter = queue.join(waiting(manager, KEY).run(async { Locked::Ok(()) })).await;
        tasks.spawn(waiter);
    }
    server.kill();
    server.restart();
    let start = Instant::now();
    let mut served = 0;
    while let Some(ended) = timeout(2 * POLLED, tasks.join_next()).await.expect("nobody is stuck") {
        match ended.expect("no panic") {
            Ok(()) => served += 1,
            Err(LockError::Unavailable { .. }) => {}
            Err(error) => panic!("{error:?}"),
        }
    }
    assert!(served > 0 && start.elapsed() < 2 * POLLED, "{served} after {:?}", start.elapsed());
    drop(guard);
    keeps_only_fences(&server, POLLED).await;
}

#[tokio::test]
async fn a_server_that_stays_down_is_reported_to_its_waiters() {
    let mut server = Server::start();
    let url = server.url();
    let impatient = LockManager::builder().timeout(ms(1_000)).connect(&url);
    let impatient = impatient.await.expect("the server is there");
    let holder = manager(&server).await;
    let guard = lock(&holder, KEY).acquire().await.expect("free");
    let mut queue = Queue::at(&server, KEY);
    let limited = lock(&impatient, KEY).wait(ms(2_000)).acquire();
    let limited = tokio::spawn(queue.join(limited).await);
    server.kill();
    let error = timeout(POLLED + PUSHED, limited).await.expect("nobody is stuck");
    let error = error.expect("no panic").expect_err("the server is down");
    assert!(matches!(error, LockError::Unavailable { .. }), "{error:?}");
    drop(guard);
}

#[tokio::test]
async fn a_server_stopped_shortly_costs_its_waiters_that_time() {
    let server = Server::start();
    let tasks = crowd(&server, 20, ms(20)).await;
    for _ in 0..3 {
        // For some of the callers to be served.
        tokio::time::sleep(ms(40)).await;
        server.pause();
        // The time of the stall.
        tokio::time::sleep(ms(200)).await;
        server.resume();
    }
    let start = Instant::now();
    all_served(tasks).await;
    assert!(start.elapsed() < 2 * POLLED, "after {:?}", start.elapsed());
    keeps_only_fences(&server, POLLED).await;
}

#[tokio::test]
async fn a_waiters_own_deadline_is_kept_when_the_server_stalls() {
    let server = Server::start();
    let Held { theirs, mut queue, guard, .. } = Held::at(&server).await;
    let start = Instant::now();
    let wait = ms(1_000);
    let waiter = lock(&theirs, KEY).wait(wait).acquire();
    let waiter = queue.join(waiter).await;
    server.pause();
    let error = waiter.await.expect_err("held, or silent");
    server.resume();
    assert!(
        matches!(error, LockError::TimedOut { .. } | LockError::Unavailable { .. }),
        "{error:?}"
    );
    // One more request may be waited for: a quarter of the manager's timeout.
    assert!(start.elapsed() < wait + ms(500) + PUSHED, "after {:?}", start.elapsed());
    guard.release().await.expect("still held");
    keeps_only_fences(&server, POLLED).await;
}

#[tokio::test]
async fn a_request_whose_answer_is_lost_joins_the_queue_once() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let ours = manager(&server).await;
    for fault in [Fault::CutReply, Fault::LoseReply, Fault::CutCommand] {
        let theirs = LockManager::connect(&proxy.url()).await.expect("there");
        let guard = lock(&ours, KEY).acquire().await.expect("free");
        let mut queue = Queue::at(&server, KEY);
        proxy.on_next("EVALSHA", fault);
        let waiter = tokio::spawn(waiting(&theirs, KEY).acquire());
        let done = || ready(proxy.orders_are_done());
        eventually("the fault has happened", PUSHED, done).await;
        queue.reaches(1).await;
        let next = queue.join(waiting(&ours, KEY).acquire()).await;
        guard.release().await.expect("still held");
        served(POLLED, async { waiter.await.expect("no panic") }).await;
        served(PUSHED, next).await;
    }
    // A request that never arrived is looked for until its ttl is over, but leaves nothing.
    keeps_only_fences(&server, POLLED).await;
}

#[tokio::test]
async fn a_grant_that_comes_late_is_not_believed_longer_than_it_lasts() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let (ours, theirs) =
        (manager(&server).await, LockManager::connect(&proxy.url()).await.expect("there"));
    let mut queue = Queue::at(&server, KEY);
    let guard = lock(&ours, KEY).acquire().await.expect("free");
    let late = Lock::new(KEY).ttl(ms(2_400)).manager(&theirs).wait_forever();
    let late = tokio::spawn(queue.join(late.acquire()).await);
    let next = queue.join(waiting(&ours, KEY).acquire()).await;
    proxy.stall(true);
    guard.release().await.expect("still held");
    // The grant arrives that much later.
    tokio::time::sleep(ms(1_000)).await;
    proxy.stall(false);
    let guard = timeout(POLLED, late).await.expect("in time").expect("no panic").expect("served");
    let left = server.admin().ttl(KEY).expect("held, with an end");
    assert!(guard.remaining() <= left, "{:?} believed of {left:?}", guard.remaining());
    handed_off(guard, next).await;
}

/// When a call is not yet given up as unanswered by a `patient` manager: that is a quarter of its
/// timeout.
const EARLY: Duration = Duration::from_secs(10);

async fn patient(server: &Server) -> LockManager {
    LockManager::builder().timeout(LONG_TTL).connect(&server.url()).await.expect("there")
}

/// Has a waiter polled this many times and then no more, and asks for another lock meanwhile.
async fn others_are_served_beside_one_that_is_not_polled(prepare: impl Fn(&mut Admin)) {
    let server = Server::start();
    let mut admin = server.admin();
    for polls in 0..12 {
        let manager = patient(&server).await;
        prepare(&mut admin);
        let mut idle = Box::pin(waiting(&manager, "idle").acquire());
        for _ in 0..polls {
            if futures::poll!(&mut idle).is_ready() {
                break;
            }
            tokio::time::sleep(ms(2)).await;
        }
        served(EARLY, waiting(&manager, KEY).acquire()).await;
        drop(idle);
    }
    keeps_only_fences(&server, POLLED).await;
}

#[tokio::test]
async fn a_future_that_is_not_polled_delays_nobody_else() {
    others_are_served_beside_one_that_is_not_polled(|_| ()).await;
}

#[tokio::test]
async fn a_future_that_is_not_polled_delays_nobody_else_who_needs_the_scripts() {
    let flush = |admin: &mut Admin| admin.ask::<()>(&["SCRIPT", "FLUSH"]);
    others_are_served_beside_one_that_is_not_polled(flush).await;
}

#[tokio::test]
async fn a_future_that_is_not_polled_delays_nobody_else_who_needs_a_connection() {
    let kill = |admin: &mut Admin| {
        let _: i64 = admin.ask(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    };
    others_are_served_beside_one_that_is_not_polled(kill).await;
}

#[tokio::test]
async fn many_futures_that_are_not_polled_delay_nobody_else() {
    let server = Server::start();
    let manager = patient(&server).await;
    // It listens from here on.
    lock(&manager, KEY).wait(LONG_TTL).run(async { Locked::Ok(()) }).await.expect("free");
    let keys: Vec<String> = (0..500).map(|nth| format!("stock:{nth}")).collect();
    let mut idle = Vec::new();
    for key in &keys {
        let mut asking = Box::pin(waiting(&manager, key).acquire());
        assert!(futures::poll!(&mut asking).is_pending());
        idle.push(asking);
    }
    served(EARLY, lock(&manager, KEY).acquire()).await;
    drop(idle);
}

/// Has a waiter in the queue ask again and again in vain, from what `refuse` does to the server
/// until a setting is as it was.
async fn a_waiter_outlasts(
    server: Server,
    refuse: impl AsyncFnOnce(&mut Admin),
    is_refused: fn(&mut Admin) -> bool,
    [name, value]: [&str; 2],
) {
    let Held { theirs, mut queue, guard, .. } = Held::at(&server).await;
    let mut waiter = queue.join(waiting(&theirs, KEY).acquire()).await;
    let mut admin = server.admin();
    refuse(&mut admin).await;
    // It asks at once when it may have missed something.
    admin.ask::<redis::Value>(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    tokio::select! {
        answer = &mut waiter => panic!("{answer:?}"),
        () = eventually("it is refused", LONG_TTL, || ready(is_refused(&mut admin))) => {}
    }
    admin.configure(name, value);
    guard.release().await.expect("still held");
    served(LONG_TTL, waiter).await;
}

#[tokio::test]
async fn a_waiter_outlasts_a_server_that_misses_replicas() {
    let refuse = async |admin: &mut Admin| admin.configure("min-replicas-to-write", "1");
    let is_refused = |admin: &mut Admin| admin.refused("NOREPLICAS") > 2;
    a_waiter_outlasts(Server::start(), refuse, is_refused, ["min-replicas-to-write", "0"]).await;
}

#[tokio::test]
async fn a_waiter_outlasts_a_server_that_cannot_save() {
    let refuse = async |admin: &mut Admin| {
        // Nobody can write there.
        admin.configure("dir", "/proc");
        admin.configure("save", "3600 1");
        admin.ask::<()>(&["BGSAVE"]);
        let failed = || {
            let info: String = admin.ask(&["INFO", "persistence"]);
            ready(info.contains("rdb_last_bgsave_status:err"))
        };
        eventually("it could not save", LONG_TTL, failed).await;
    };
    let is_refused = |admin: &mut Admin| admin.refused("MISCONF") > 2;
    let server = Server::with(&["--enable-protected-configs", "yes"]);
    a_waiter_outlasts(server, refuse, is_refused, ["save", ""]).await;
}

#[tokio::test]
async fn a_waiter_outlasts_a_server_with_too_many_clients() {
    let refuse = async |admin: &mut Admin| admin.configure("maxclients", "1");
    let is_refused = |admin: &mut Admin| {
        let stats: String = admin.ask(&["INFO", "stats"]);
        let count = stats.lines().find_map(|line| line.strip_prefix("rejected_connections:"));
        count.is_some_and(|count| count.parse::<u64>().unwrap() > 2)
    };
    a_waiter_outlasts(Server::start(), refuse, is_refused, ["maxclients", "100"]).await;
}
