//! Runtimes that are blocked while others wait for what they have begun.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use lockmacro_runtime::{Lock, LockManager};
use lockmacro_tests::{Cluster, Proxy, Server, in_time, on_a_plain_thread};
use tokio::runtime::{Builder, Runtime};

use crate::{LONG_TTL, Locked, SLACK, TIMEOUT, keeps_nothing, lock};

/// How long a command is in flight.
const FAR: Duration = Duration::from_millis(80);

fn worker() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// A manager that has to connect again, which takes as long as the way to the server does.
async fn to_be_connected(url: String, proxy: &Proxy) -> LockManager {
    let manager = on_a_plain_thread(move || {
        let builder = LockManager::builder().timeout(TIMEOUT);
        worker().block_on(builder.connect(&url)).expect("there")
    })
    .await;
    let first = lock(&manager);
    on_a_plain_thread(move || worker().block_on(first.run(async { Locked::Ok(()) })))
        .await
        .expect("free");
    proxy.cut();
    proxy.delay(FAR);
    manager
}

/// A worker that asks for a lock, and is blocked while it connects: until what this returns is
/// dropped.
async fn blocked_while_it_connects(manager: &LockManager) -> mpsc::Sender<()> {
    let (free, blocked) = mpsc::channel::<()>();
    let (began, begun) = tokio::sync::oneshot::channel();
    let asking = Lock::new("its own").ttl(LONG_TTL).manager(manager);
    std::thread::spawn(move || {
        worker().block_on(async {
            let mut asking = Box::pin(asking.acquire());
            // Far from enough to be connected.
            assert!(tokio::time::timeout(FAR / 4, &mut asking).await.is_err());
            began.send(()).expect("the test goes on");
            let _ = blocked.recv();
        });
    });
    begun.await.expect("it begins");
    free
}

/// The same where nothing is far: it is blocked after its first poll.
async fn blocked_at_once(manager: &LockManager) -> mpsc::Sender<()> {
    let (free, blocked) = mpsc::channel::<()>();
    let (began, begun) = tokio::sync::oneshot::channel();
    let asking = Lock::new("its own").ttl(LONG_TTL).manager(manager);
    std::thread::spawn(move || {
        worker().block_on(async {
            let mut asking = Box::pin(asking.acquire());
            assert!(futures::poll!(&mut asking).is_pending());
            began.send(()).expect("the test goes on");
            let _ = blocked.recv();
        });
    });
    begun.await.expect("it begins");
    free
}

/// How long three workers need for a lock each, beside a fourth one.
async fn three_others(manager: &LockManager) -> Duration {
    let start = Instant::now();
    let workers = (0..3).map(|nth| {
        let lock = Lock::new(format!("order:{nth}")).ttl(LONG_TTL).manager(manager);
        on_a_plain_thread(move || worker().block_on(lock.run(async { Locked::Ok(nth) })))
    });
    let values = futures::future::join_all(workers).await;
    assert_eq!(values, [Ok(0), Ok(1), Ok(2)]);
    start.elapsed()
}

#[tokio::test]
async fn a_worker_that_is_blocked_while_it_connects_holds_up_no_other() {
    in_time(async {
        let server = Server::start();
        let proxy = Proxy::to(server.port());
        let manager = to_be_connected(proxy.url(), &proxy).await;
        let free = blocked_while_it_connects(&manager).await;
        let took = three_others(&manager).await;
        assert!(took < TIMEOUT + SLACK, "{took:?}");
        drop(free);
        lock(&manager).run(async { Locked::Ok(()) }).await.expect("free");
    })
    .await;
}

#[tokio::test]
async fn a_waiter_is_not_held_up_by_a_blocked_worker_for_as_long_as_it_waits() {
    in_time(async {
        let server = Server::start();
        let proxy = Proxy::to(server.port());
        let manager = to_be_connected(proxy.url(), &proxy).await;
        let _free = blocked_while_it_connects(&manager).await;
        let start = Instant::now();
        let result = lock(&manager).wait(LONG_TTL).run(async { Locked::Ok(7) }).await;
        assert_eq!(result, Ok(7));
        assert!(start.elapsed() < 2 * TIMEOUT + SLACK, "{:?}", start.elapsed());
    })
    .await;
}

#[tokio::test]
async fn a_worker_that_is_blocked_while_it_learns_the_slots_holds_up_no_other() {
    in_time(async {
        let cluster = Cluster::start(3, 0).await;
        let url = cluster.url();
        let manager = on_a_plain_thread(move || {
            let builder = LockManager::builder().timeout(TIMEOUT);
            worker().block_on(builder.connect(&url)).expect("there")
        })
        .await;
        let _free = blocked_at_once(&manager).await;
        let took = three_others(&manager).await;
        assert!(took < 2 * TIMEOUT + SLACK, "{took:?}");
    })
    .await;
}

#[tokio::test]
async fn who_was_blocked_while_it_connected_goes_on_by_the_others_connection() {
    in_time(async {
        let server = Server::start();
        let proxy = Proxy::to(server.port());
        let manager = LockManager::builder().timeout(TIMEOUT).connect(&proxy.url()).await;
        let manager = manager.expect("there");
        let (go_on, blocked) = mpsc::channel::<()>();
        let (began, begun) = tokio::sync::oneshot::channel();
        proxy.cut();
        proxy.delay(FAR);
        let theirs = Lock::new("its own").ttl(LONG_TTL).manager(&manager);
        let worker = on_a_plain_thread(move || {
            worker().block_on(async {
                let mut asking = Box::pin(theirs.run(async { Locked::Ok(1) }));
                let _ = tokio::time::timeout(FAR / 4, &mut asking).await;
                began.send(()).expect("the test goes on");
                let _ = blocked.recv();
                asking.await
            })
        });
        let others = async {
            begun.await.expect("it begins");
            for _ in 0..3 {
                lock(&manager).run(async { Locked::Ok(()) }).await.expect("free");
            }
            drop(go_on);
        };
        // What it has to say when it goes on may be that it was too late.
        let (_late, ()) = tokio::join!(worker, others);
        for _ in 0..3 {
            lock(&manager).run(async { Locked::Ok(()) }).await.expect("free");
        }
        manager.shutdown(LONG_TTL).await.expect("nothing is held");
        keeps_nothing(&server).await;
    })
    .await;
}
