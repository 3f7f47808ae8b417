//! Servers that refuse HELLO, as some proxies do: grants come by a second connection.

use lockmacro_runtime::{Lock, LockManager};
use lockmacro_tests::queue::Queue;
use lockmacro_tests::{
    Admin, Fault, Polled, Proxy, Server, drop_after_polls, eventually, on_a_plain_thread,
};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::{
    KEY, LONG_TTL, Locked, POLLED, PUSHED, keeps_only_fences, lock, manager, ms, requests, served,
    waiting,
};

fn server() -> Server {
    Server::with(&["--rename-command", "HELLO", ""])
}

fn channels(admin: &mut Admin) -> usize {
    admin.ask::<Vec<String>>(&["PUBSUB", "CHANNELS"]).len()
}

fn kill_subscribers(admin: &mut Admin) -> i64 {
    admin.ask(&["CLIENT", "KILL", "TYPE", "pubsub"])
}

#[tokio::test]
async fn waiters_get_the_lock_in_the_order_of_their_requests_and_do_not_poll() {
    let server = server();
    let managers = [manager(&server).await, manager(&server).await];
    let mut admin = server.admin();
    let mut queue = Queue::at(&server, KEY);
    let guard = lock(&managers[0], KEY).acquire().await.expect("free");
    assert_eq!(channels(&mut admin), 0, "a caller that never waits does not subscribe");
    let mut waiters = Vec::new();
    for nth in 0..20 {
        let lock = Lock::new(KEY).ttl(ms(5_000)).manager(&managers[nth % 2]).wait_forever();
        waiters.push(queue.join(lock.acquire()).await);
    }
    assert_eq!(channels(&mut admin), 1, "the manager that holds the lock needs none");
    // A waiter that polls asks ten times a second.
    let mut waiting = futures::future::join_all(waiters.iter_mut());
    timeout(ms(50), &mut waiting).await.expect_err("held");
    admin.forget_calls();
    timeout(ms(1_000), &mut waiting).await.expect_err("held");
    let asked = requests(&mut admin);
    // With ticks it is one of each in about two seconds; a poller makes it 200.
    assert!(asked <= 60, "{asked} requests of 20 waiters in a second");
    drop(waiting);
    guard.release().await.expect("still held");
    futures::future::join_all(waiters.into_iter().map(|one| served(LONG_TTL, one))).await;
    keeps_only_fences(&server, PUSHED).await;
}

#[tokio::test]
async fn commands_go_on_without_a_second_connection() {
    let server = server();
    let proxy = Proxy::to(server.port());
    let (ours, theirs) = (manager(&server).await, LockManager::connect(&proxy.url()).await);
    let (theirs, mut admin) = (theirs.expect("there"), server.admin());
    let guard = lock(&ours, KEY).acquire().await.expect("free");
    proxy.on_next("SUBSCRIBE", Fault::CutCommand);
    let waiter = tokio::spawn(Queue::at(&server, KEY).join(waiting(&theirs, KEY).acquire()).await);
    assert!(proxy.orders_are_done(), "it has asked for one");
    assert_eq!(channels(&mut admin), 0);
    // The first, one that says HELLO in vain, one for commands, and the one that was cut.
    assert_eq!(proxy.accepted(), 4);
    lock(&theirs, "other").run(async { Locked::Ok(()) }).await.expect("free");
    guard.release().await.expect("still held");
    served(PUSHED, async { waiter.await.expect("no panic") }).await;
    assert_eq!(proxy.accepted(), 4);
    keeps_only_fences(&server, PUSHED).await;
}

#[tokio::test]
async fn a_killed_subscriber_is_replaced_and_its_waiters_ask_again() {
    let server = server();
    let (ours, theirs) = (manager(&server).await, manager(&server).await);
    let mut admin = server.admin();
    let guard = lock(&ours, KEY).acquire().await.expect("free");
    let waiter = tokio::spawn(Queue::at(&server, KEY).join(waiting(&theirs, KEY).acquire()).await);
    admin.forget_calls();
    assert_eq!(kill_subscribers(&mut admin), 1);
    let heard = || std::future::ready(channels(&mut admin) == 1);
    eventually("it subscribes again by itself", PUSHED, heard).await;
    let asked = || std::future::ready(requests(&mut admin) > 0);
    eventually("it asks again, so that nothing in between was missed", PUSHED, asked).await;
    guard.release().await.expect("still held");
    served(PUSHED, async { waiter.await.expect("no panic") }).await;

    // Also when the lock is handed off at that moment.
    for _ in 0..10 {
        let guard = lock(&ours, KEY).acquire().await.expect("free");
        let waiter = Queue::at(&server, KEY).join(waiting(&theirs, KEY).acquire()).await;
        assert_eq!(kill_subscribers(&mut admin), 1);
        guard.release().await.expect("still held");
        served(PUSHED, waiter).await;
    }
    keeps_only_fences(&server, PUSHED).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everybody_is_served_when_connections_are_killed() {
    let server = server();
    let managers = [manager(&server).await, manager(&server).await];
    let mut admin = server.admin();
    let mut tasks = JoinSet::new();
    for nth in 0..40 {
        let lock = Lock::new(KEY).ttl(ms(2_000)).manager(&managers[nth % 2]).wait(LONG_TTL);
        tasks.spawn(lock.run(async {
            tokio::time::sleep(ms(10)).await;
            Locked::Ok(())
        }));
    }
    for nth in 0..12 {
        if nth % 3 == 0 {
            let kill = ["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"];
            let _: i64 = admin.ask(&kill);
        }
        kill_subscribers(&mut admin);
        tokio::time::sleep(ms(25)).await;
    }
    let all = async {
        while let Some(ended) = tasks.join_next().await {
            ended.expect("no panic").expect("served");
        }
    };
    timeout(4 * POLLED, all).await.expect("nobody is stuck");
    keeps_only_fences(&server, POLLED).await;
}

#[tokio::test]
async fn a_waiter_dropped_at_any_point_leaves_no_trace() {
    let server = server();
    let ours = manager(&server).await;
    let mut queue = Queue::at(&server, KEY);
    for polls in 0..200 {
        // One that has to connect first. A request of the last one may have been in flight, and
        // then its grant is released when it has come.
        let theirs = manager(&server).await;
        let guard = lock(&ours, KEY).wait(LONG_TTL).acquire().await.expect("free");
        let waiter = drop_after_polls(waiting(&theirs, KEY).acquire(), polls);
        let joins = match timeout(ms(100), waiter).await {
            Ok(Polled::Completed(granted)) => panic!("it is held: {granted:?}"),
            Ok(_) => false,
            Err(_) => true,
        };
        queue.reaches(0).await;
        let next = queue.join(waiting(&ours, KEY).acquire()).await;
        guard.release().await.expect("still held");
        served(PUSHED, next).await;
        if joins {
            drop((ours, theirs));
            let mut admin = server.admin();
            let gone = || std::future::ready(channels(&mut admin) == 0);
            eventually("nobody listens for a manager that is gone", PUSHED, gone).await;
            return keeps_only_fences(&server, PUSHED).await;
        }
    }
    panic!("it never was in the queue");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_joins_the_queue_before_its_subscription_is_confirmed() {
    let server = server();
    let proxy = Proxy::to(server.port());
    let ours = manager(&server).await;
    let theirs = LockManager::connect(&proxy.url()).await.expect("there");
    let (mut queue, mut admin) = (Queue::at(&server, KEY), server.admin());
    let guard = lock(&ours, KEY).acquire().await.expect("free");
    proxy.on_next("SUBSCRIBE", Fault::HoldCommand(ms(200)));
    let waiter = tokio::spawn(waiting(&theirs, KEY).acquire());
    let stands = || {
        let stands = queue.length() == Some(1);
        assert!(!stands || channels(&mut admin) == 1, "no grant can reach it");
        std::future::ready(stands)
    };
    eventually("it is in the queue", PUSHED, stands).await;
    assert!(proxy.orders_are_done());
    guard.release().await.expect("still held");
    served(PUSHED, async { waiter.await.expect("no panic") }).await;
}

/// The grant arrives before the answer with the rank in the queue.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_that_overtakes_an_answer_is_not_believed_longer_than_it_lasts() {
    let server = server();
    let proxy = Proxy::to(server.port());
    let ours = manager(&server).await;
    let theirs = LockManager::connect(&proxy.url()).await.expect("there");
    served(LONG_TTL, waiting(&theirs, KEY).acquire()).await;
    let (mut queue, mut admin) = (Queue::at(&server, KEY), server.admin());
    for delay in [ms(600), ms(1_000), ms(1_500)] {
        let guard = lock(&ours, KEY).acquire().await.expect("free");
        proxy.on_next("EVALSHA", Fault::DelayReply(delay));
        let waiter = Lock::new(KEY).ttl(ms(2_400)).manager(&theirs).wait_forever();
        let waiter = tokio::spawn(waiter.acquire());
        queue.reaches(1).await;
        let next = queue.join(waiting(&ours, KEY).acquire()).await;
        guard.release().await.expect("still held");
        let guard = timeout(LONG_TTL, waiter).await.expect("in time").expect("no panic");
        let guard = guard.expect("served");
        // In this order: what passes in between is taken off what is believed.
        let (left, believed) = (admin.ttl(KEY), guard.remaining());
        assert!(left.is_some_and(|left| believed <= left + ms(5)), "{believed:?} of {left:?}");
        guard.release().await.expect("still held");
        served(LONG_TTL, next).await;
    }
    keeps_only_fences(&server, PUSHED).await;
}

/// As some proxies do at a command that they do not know.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_proxy_that_closes_the_connection_at_a_command_is_used_without_it() {
    // SUBSCRIBE to a channel: the word alone is in the question for the user's rights, too.
    for word in ["HELLO", "SUBSCRIBE\r\n$36"] {
        let server = Server::start();
        let proxy = Proxy::to(server.port());
        for _ in 0..200 {
            proxy.on_next(word, Fault::CutCommand);
        }
        let ours = manager(&server).await;
        let theirs = LockManager::connect(&proxy.url()).await.expect("there");
        let guard = lock(&ours, KEY).acquire().await.expect("free");
        let waiter = Queue::at(&server, KEY).join(waiting(&theirs, KEY).acquire()).await;
        lock(&theirs, "other").run(async { Locked::Ok(()) }).await.expect("free");
        guard.release().await.expect("still held");
        served(LONG_TTL, waiter).await;
        // The same for the connection of the background thread, which releases what is dropped.
        let blocking = waiting(&theirs, "blocking");
        on_a_plain_thread(move || blocking.run_blocking(|| Locked::Ok(()))).await.expect("free");
        drop(lock(&theirs, "dropped").acquire().await.expect("free"));
        keeps_only_fences(&server, LONG_TTL).await;
        assert!(!proxy.orders_are_done(), "there was an end of it");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_subscriber_that_is_killed_whenever_there_is_one_is_not_replaced_for_ever() {
    let server = server();
    let (ours, theirs) = (manager(&server).await, manager(&server).await);
    let mut admin = server.admin();
    let guard = lock(&ours, KEY).acquire().await.expect("free");
    let waiter = tokio::spawn(Queue::at(&server, KEY).join(waiting(&theirs, KEY).acquire()).await);
    let (mut killed, mut knocks) = (0, 0);
    let mut quiet = std::time::Instant::now();
    while killed < 100 && quiet.elapsed() < if killed < 10 { LONG_TTL / 2 } else { 2 * PUSHED } {
        // One that is killed before it was tried out is not replaced at all for a while.
        let calls = admin.calls();
        let now = calls.iter().find(|(name, _)| name == "publish").map_or(0, |(_, calls)| *calls);
        if now > knocks {
            killed += kill_subscribers(&mut admin);
            (knocks, quiet) = (now, std::time::Instant::now());
        }
        tokio::time::sleep(ms(3)).await;
    }
    assert!((10..50).contains(&killed), "{killed} times");
    guard.release().await.expect("still held");
    served(LONG_TTL, async { waiter.await.expect("no panic") }).await;
}
