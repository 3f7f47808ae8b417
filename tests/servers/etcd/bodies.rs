//! Many bodies of several processes while leaders fail, beside an oracle of their own.
//!
//! `ETCD_BODIES` says how many.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use lockmacro_tests::eventually;
use lockmacro_tests::times::{FAILOVER, LONG_TTL};
use tokio::time::{sleep, timeout};

use super::*;

const KEYS: usize = 4;
const PROCESSES: usize = 3;
const CALLERS: usize = 8;

/// What one lock protects.
#[derive(Default)]
struct Room {
    inside: AtomicUsize,
    last: Mutex<u64>,
    /// Whether the next body in it lasts for longer than [`SHORT_TTL`].
    lasts: AtomicBool,
}

/// Somebody in it, also when the body is dropped.
struct Inside<'a>(&'a Room);

impl Room {
    fn enter(&self, fence: Fence) -> Inside<'_> {
        let mut last = self.last.lock().expect("no panic");
        let fence = u64::from(fence);
        assert!(fence > *last, "fence {fence} after {last}");
        *last = fence;
        assert_eq!(self.inside.fetch_add(1, SeqCst), 0, "somebody is inside");
        Inside(self)
    }
}

/// Has every lock held for some seconds from now on.
async fn occupy(rooms: &[Room]) {
    for room in rooms {
        room.lasts.store(true, SeqCst);
    }
    let occupied = || std::future::ready(rooms.iter().all(|room| !room.lasts.load(SeqCst)));
    eventually("every lock is held", FAILOVER, occupied).await;
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.0.inside.fetch_sub(1, SeqCst);
    }
}

/// Holds locks of etcd's own tool, with its keys and leases, beside those of the bodies. Returns how
/// often.
async fn foreign(endpoints: Vec<String>, is_over: Arc<AtomicBool>) -> usize {
    let mut locked = 0;
    while !is_over.load(SeqCst) {
        let mut tool = tokio::process::Command::new("etcdctl");
        tool.env("ETCDCTL_API", "3").args(["--endpoints", &endpoints.join(",")]);
        tool.args(["lock", "--ttl=5", "order:0", "true"]).stderr(std::process::Stdio::null());
        let status = timeout(FAILOVER, tool.kill_on_drop(true).status()).await;
        locked += usize::from(status.is_ok_and(|status| status.expect("it is there").success()));
        sleep(Duration::from_millis(100)).await;
    }
    locked
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_bodies_overlap_while_leaders_fail_and_nothing_is_left() {
    let bodies = std::env::var("ETCD_BODIES").map_or(20_000, |n| n.parse().expect("a number"));
    let mut etcd = Etcd::cluster().await;
    let rooms: Arc<[Room; KEYS]> = Arc::default();
    let done = Arc::new(AtomicUsize::new(0));
    let is_over = Arc::new(AtomicBool::new(false));
    let foreign = tokio::spawn(foreign(etcd.endpoints(), Arc::clone(&is_over)));
    let mut callers = tokio::task::JoinSet::new();
    for process in 0..PROCESSES {
        let locks = manager(&etcd).await;
        for caller in 0..CALLERS {
            let locks = locks.clone();
            let rooms = Arc::clone(&rooms);
            let done = Arc::clone(&done);
            callers.spawn(async move {
                while done.load(SeqCst) < bodies {
                    let key = fastrand::usize(..KEYS);
                    // The one lives by its renewals, and the lease of the other would be left.
                    let ttl = if caller % 2 == 0 { SHORT_TTL } else { LONG_TTL };
                    let lock = Lock::new(format!("order:{key}")).ttl(ttl).renew();
                    let lock = lock.manager(&locks).wait(LONG_TTL);
                    match fenced(&lock).await {
                        Ok((guard, fence)) => {
                            let room = &rooms[key];
                            let body = async {
                                let inside = room.enter(fence);
                                let lasts = room.lasts.swap(false, SeqCst);
                                let time = if lasts { 3_000..8_000 } else { 0..3 };
                                sleep(Duration::from_millis(fastrand::u64(time))).await;
                                drop(inside);
                            };
                            // A body ends when its lock is lost.
                            tokio::select! {
                                biased;
                                _ = guard.lost() => {}
                                () = body => { done.fetch_add(1, SeqCst); }
                            }
                            let _ = guard.release().await;
                        }
                        Err(LockError::Unavailable { .. } | LockError::TimedOut { .. }) => {}
                        Err(other) => panic!("process {process}, caller {caller}: {other}"),
                    }
                }
            });
        }
    }
    // Faults, until enough is done.
    let began = Instant::now();
    let steps = bodies / 8;
    for nth in 0..3 {
        while done.load(SeqCst) < steps * (2 * nth + 1) {
            assert!(began.elapsed() < Duration::from_secs(600), "too slow");
            sleep(Duration::from_millis(5)).await;
        }
        let leader = etcd.leader().await;
        occupy(&*rooms).await;
        match nth {
            0 => etcd.kill(leader),
            1 => etcd.pause(leader),
            _ => etcd.cut_off(leader, true),
        }
        let before = done.load(SeqCst);
        while done.load(SeqCst) < before + steps / 2 {
            assert!(began.elapsed() < Duration::from_secs(600), "two of three are enough");
            sleep(Duration::from_millis(5)).await;
        }
        occupy(&*rooms).await;
        match nth {
            0 => etcd.restart(leader),
            1 => etcd.resume(leader),
            _ => etcd.cut_off(leader, false),
        }
    }
    while let Some(caller) = callers.join_next().await {
        caller.expect("no panic");
    }
    is_over.store(true, SeqCst);
    assert!(foreign.await.expect("no panic") > 0, "others have locks of their own");
    let released = || std::future::ready(etcd.left().0 == 0);
    eventually("no key is left", FAILOVER, released).await;
    // Each fault may cost every caller the answers to what it has asked meanwhile.
    let leases = etcd.left().1;
    assert!(leases <= 3 * PROCESSES * CALLERS, "{leases} leases are left");
    for room in &*rooms {
        assert!(*room.last.lock().expect("no panic") > 0, "every lock was held");
    }
}
