//! Many bodies of several processes while leaders fail, beside an oracle of their own.
//!
//! `ETCD_BODIES` says how many.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use lockmacro_tests::times::LONG_TTL;
use tokio::time::sleep;

use super::*;

const KEYS: usize = 4;
const PROCESSES: usize = 3;
const CALLERS: usize = 8;

/// What one lock protects.
#[derive(Default)]
struct Room {
    inside: AtomicUsize,
    last: Mutex<u64>,
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

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.0.inside.fetch_sub(1, SeqCst);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_bodies_overlap_while_leaders_fail_and_nothing_is_left() {
    let bodies = std::env::var("ETCD_BODIES").map_or(20_000, |n| n.parse().expect("a number"));
    let mut etcd = Etcd::cluster().await;
    let rooms: Arc<[Room; KEYS]> = Arc::default();
    let done = Arc::new(AtomicUsize::new(0));
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
                    let lock = Lock::new(format!("order:{key}")).ttl(SHORT_TTL).renew();
                    let lock = lock.manager(&locks).wait(LONG_TTL);
                    match fenced(&lock).await {
                        Ok((guard, fence)) => {
                            let room = &rooms[key];
                            let body = async {
                                let inside = room.enter(fence);
                                sleep(Duration::from_millis(fastrand::u64(..3))).await;
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
        match nth {
            0 => etcd.restart(leader),
            1 => etcd.resume(leader),
            _ => etcd.cut_off(leader, false),
        }
    }
    while let Some(caller) = callers.join_next().await {
        caller.expect("no panic");
    }
    sleep(Duration::from_secs(5)).await;
    assert_eq!(etcd.left(), (0, 0), "keys and leases");
    for room in &*rooms {
        assert!(*room.last.lock().expect("no panic") > 0, "every lock was held");
    }
}
