//! A key that many want.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use lockmacro_runtime::{Lock, LockError, LockManager};
use lockmacro_tests::eventually;
use tokio::task::JoinSet;

use crate::{FAILOVER, FAILOVER_TTL, Locked, ms};

/// Keeps a lock busy by several managers until it is asked to stop.
pub(crate) struct Rush {
    tasks: JoinSet<()>,
    over: Arc<AtomicBool>,
    bodies: Arc<AtomicU32>,
    overlap: Arc<AtomicBool>,
}

impl Rush {
    pub(crate) fn on(key: &str, managers: &[LockManager]) -> Rush {
        Rush::of(key, managers, false)
    }

    /// The same where the server may forget locks: a body may be stopped, or run beside another.
    pub(crate) fn that_may_lose(key: &str, managers: &[LockManager]) -> Rush {
        Rush::of(key, managers, true)
    }

    fn of(key: &str, managers: &[LockManager], may_lose: bool) -> Rush {
        let (over, bodies) = (Arc::<AtomicBool>::default(), Arc::<AtomicU32>::default());
        let inside = Arc::new(AtomicU32::new(0));
        let overlap = Arc::new(AtomicBool::new(may_lose));
        let mut tasks = JoinSet::new();
        for nth in 0..12 {
            let (key, manager) = (key.to_owned(), managers[nth % managers.len()].clone());
            let (over, bodies, inside) = (over.clone(), bodies.clone(), inside.clone());
            let overlap = overlap.clone();
            tasks.spawn(async move {
                while !over.load(Ordering::SeqCst) {
                    let body = async {
                        let beside = inside.fetch_add(1, Ordering::SeqCst);
                        assert!(beside == 0 || overlap.load(Ordering::SeqCst), "two bodies");
                        let _out = Out(&inside);
                        tokio::time::sleep(ms(1)).await;
                        bodies.fetch_add(1, Ordering::SeqCst);
                        Locked::Ok(())
                    };
                    let lock = Lock::new(key.as_str()).ttl(ms(20_000)).manager(&manager);
                    match lock.wait(FAILOVER_TTL).run(body).await {
                        Ok(()) => {}
                        Err(LockError::Lost(_)) if may_lose => {}
                        Err(error) => panic!("{error:?}"),
                    }
                }
            });
        }
        Rush { tasks, over, bodies, overlap }
    }

    /// From now on no body may run beside another one: every holder of a lock on the server that
    /// is gone has ended.
    pub(crate) fn excludes_again(&self) {
        self.overlap.store(false, Ordering::SeqCst);
    }

    /// Waits until this many more bodies have run.
    pub(crate) async fn goes_on(&self, more: u32) {
        let from = self.bodies.load(Ordering::SeqCst);
        eventually("bodies run", FAILOVER, || {
            std::future::ready(self.bodies.load(Ordering::SeqCst) >= from + more)
        })
        .await;
    }

    /// Ends when all bodies have; panics where two of them were there at once.
    pub(crate) async fn ends(self) {
        self.over.store(true, Ordering::SeqCst);
        self.tasks.join_all().await;
    }
}

/// Leaves the body however it ends.
struct Out<'a>(&'a AtomicU32);

impl Drop for Out<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}
