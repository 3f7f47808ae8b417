//! Runtimes that are blocked while other callers wait for work that they have begun.

use std::future::{poll_fn, ready};
use std::sync::mpsc;
use std::task::Poll;
use std::time::{Duration, Instant};

use lockmacro_runtime::{Lock, LockManager};
use lockmacro_tests::AcquireFenced as _;
use lockmacro_tests::{Cluster, Proxy, Server, eventually, in_time, on_a_plain_thread};
use tokio::runtime::{Builder, Runtime};

use crate::{LONG_TTL, Locked, SLACK, TIMEOUT, keeps_nothing, lock, ms, through, within};

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

/// How far a worker gets before it is blocked.
enum Blocked {
    /// After this number of polls, at once: work that the last poll has begun has run nowhere.
    After(u32),
    /// After this time, in which the work goes on.
    Within(Duration),
}

/// A worker that asks for something, and is blocked before it has it: until what this returns is
/// dropped.
async fn blocked<T: Send + 'static>(
    asking: impl Future<Output = T> + Send + 'static,
    far: Blocked,
) -> mpsc::Sender<()> {
    let (free, freed) = mpsc::channel::<()>();
    let (began, begun) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        worker().block_on(async {
            let mut asking = Box::pin(asking);
            match far {
                Blocked::After(polls) => {
                    let mut polled = 0;
                    poll_fn(|cx| {
                        assert!(asking.as_mut().poll(cx).is_pending());
                        polled += 1;
                        if polled == polls { Poll::Ready(()) } else { Poll::Pending }
                    })
                    .await;
                }
                Blocked::Within(time) => {
                    assert!(tokio::time::timeout(time, &mut asking).await.is_err());
                }
            }
            began.send(()).expect("the test goes on");
            let _ = freed.recv();
        });
    });
    begun.await.expect("it begins");
    free
}

/// A worker that is blocked while it connects, from which it is far.
async fn blocked_while_it_connects(manager: &LockManager) -> mpsc::Sender<()> {
    let asking = Lock::new("its own").ttl(LONG_TTL).manager(manager);
    // Far from enough to be connected.
    blocked(asking.acquire(), Blocked::Within(FAR / 4)).await
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
        let asking = Lock::new("its own").ttl(LONG_TTL).manager(&manager);
        let _free = blocked(asking.acquire(), Blocked::After(1)).await;
        let took = three_others(&manager).await;
        assert!(took < 2 * TIMEOUT + SLACK, "{took:?}");
    })
    .await;
}

/// How long managers below wait for a server, and so for what another caller has begun. A caller
/// that sees the other's runtime blocked begins again after an eighth of that.
const PATIENT: Duration = Duration::from_secs(16);

#[tokio::test]
async fn a_worker_that_is_blocked_while_it_loads_a_script_holds_up_no_other() {
    in_time(async {
        let (_server, proxy, manager) = through(PATIENT).await;
        // So that no answer comes while it is polled.
        proxy.delay(FAR);
        let lock = |key: &str| Lock::new(key).ttl(LONG_TTL).manager(&manager);
        // Its request is sent, and the server answers that it does not know the script.
        let asking = lock("its own").acquire_fenced();
        let _free = blocked(asking, Blocked::After(2)).await;
        let start = Instant::now();
        let others = (0..3).map(|nth| lock(&format!("order:{nth}")).acquire_fenced());
        assert!(
            futures::future::join_all(others).await.iter().all(Result::is_ok),
            "none is held up"
        );
        let took = start.elapsed();
        assert!(took < PATIENT / 2, "{took:?}");
    })
    .await;
}

#[tokio::test]
async fn a_worker_that_is_blocked_while_it_subscribes_holds_up_no_other() {
    in_time(async {
        let cluster = Cluster::start(1, 0).await;
        let manager = within(PATIENT, &cluster.url()).await;
        let other = LockManager::connect(&cluster.url()).await.expect("there");
        let lock = |manager, key: &str| Lock::new(key).ttl(LONG_TTL).manager(manager);
        // The connection is one by which grants are heard, and the script is known.
        for key in ["before", "{order}:0"] {
            let held = lock(&other, key).acquire().await.expect("free");
            if key == "before" {
                let waited = lock(&manager, key).wait(ms(50)).acquire().await;
                waited.expect_err("it is held");
                held.release().await.expect("still held");
            } else {
                // Kept by the test's end.
                std::mem::forget(held);
            }
        }
        let channels = || cluster.admin(0).ask::<Vec<String>>(&["PUBSUB", "SHARDCHANNELS"]);
        let before = channels();
        let waiting = || lock(&manager, "{order}:0").wait(4 * PATIENT).acquire();
        // So that no answer comes while it is polled.
        cluster.server(0).pause();
        let _free = blocked(waiting(), Blocked::After(1)).await;
        cluster.server(0).resume();
        let start = Instant::now();
        let waiters: Vec<_> = (0..3).map(|_| tokio::spawn(waiting())).collect();
        tokio::time::sleep(PATIENT / 32).await;
        assert_eq!(channels(), before, "it is begun, and its command was not sent");
        eventually("they are in the queue", PATIENT / 2, || {
            let queued: usize = cluster.admin(0).ask(&["ZCARD", "lm1:tq:{order}:0"]);
            ready(queued == 1)
        })
        .await;
        assert!(start.elapsed() < PATIENT / 2 && channels().len() == before.len() + 1);
        waiters.iter().for_each(tokio::task::JoinHandle::abort);
    })
    .await;
}

#[tokio::test]
async fn a_caller_blocked_while_it_connected_goes_on_by_the_others_connection() {
    in_time(async {
        let (server, proxy, manager) = through(TIMEOUT).await;
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
        // The result of the worker may be that it was too late.
        let (_late, ()) = tokio::join!(worker, others);
        for _ in 0..3 {
            lock(&manager).run(async { Locked::Ok(()) }).await.expect("free");
        }
        manager.shutdown(LONG_TTL).await.expect("nothing is held");
        keeps_nothing(&server).await;
    })
    .await;
}
