//! With `--reports`: the reports of an order are made beside each other, audits alone, and at most
//! three of all that is printed at a time. Each body counts itself in counters of its own, which
//! know nothing of locks.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use lockmacro_runtime::{LockError, LockManager, distributed_lock};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::StartError;
use crate::desk::WORK;

const PRINTERS: u32 = 3;

/// How many bodies of a kind run now, and the most that did at a time.
#[derive(Default)]
struct Count {
    now: AtomicUsize,
    most: AtomicUsize,
}

impl Count {
    fn enter(&self) -> Inside<'_> {
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        Inside(self)
    }

    fn now(&self) -> usize {
        self.now.load(Ordering::SeqCst)
    }

    fn most(&self) -> usize {
        self.most.load(Ordering::SeqCst)
    }
}

/// Leaves its count when it is dropped.
struct Inside<'a>(&'a Count);

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.0.now.fetch_sub(1, Ordering::SeqCst);
    }
}

#[derive(Default)]
struct Counts {
    audits: Count,
    reports: Count,
    prints: Count,
    /// Audits and reports of the order that ran at the same time.
    overlaps: AtomicUsize,
}

impl Counts {
    fn note_overlaps(&self) {
        let (audits, reports) = (self.audits.now(), self.reports.now());
        if audits > 1 || audits > 0 && reports > 0 {
            self.overlaps.fetch_add(1, Ordering::SeqCst);
        }
    }
}

struct Desk {
    locks: LockManager,
    counts: Arc<Counts>,
}

impl Desk {
    #[distributed_lock(key = "order:<order>", ttl = "5m", wait = "1m", manager = self.locks)]
    async fn audit(&self, order: &str) -> Result<(), LockError> {
        let _audits = self.counts.audits.enter();
        self.counts.note_overlaps();
        sleep(WORK).await;
        Ok(())
    }

    #[distributed_lock(
        key = "order:<order>",
        shared,
        ttl = "5m",
        wait = "1m",
        manager = self.locks
    )]
    async fn report(&self, order: &str) -> Result<(), LockError> {
        let _reports = self.counts.reports.enter();
        self.counts.note_overlaps();
        sleep(WORK).await;
        self.print().await
    }

    #[distributed_lock(
        key = "printers",
        permits = PRINTERS,
        ttl = "1m",
        wait = "1m",
        manager = self.locks
    )]
    async fn print(&self) -> Result<(), LockError> {
        let _prints = self.counts.prints.enter();
        sleep(WORK).await;
        Ok(())
    }
}

/// Has several desks audit one order and report on it, all at once. Returns whether the counts are
/// as they should be.
pub async fn run(url: Option<&str>, desks: u8) -> Result<bool, StartError> {
    const REPORTS: usize = 4;
    let (counts, mut work) = (Arc::new(Counts::default()), JoinSet::new());
    for _ in 0..desks {
        let locks = LockManager::connect(url.unwrap_or("memory://")).await?;
        let desk = Arc::new(Desk { locks, counts: Arc::clone(&counts) });
        for nth in 0..=REPORTS {
            let desk = Arc::clone(&desk);
            work.spawn(async move {
                match nth {
                    0 => desk.audit("SO-2024-1041").await,
                    _ => desk.report("SO-2024-1041").await,
                }
            });
        }
    }
    while let Some(done) = work.join_next().await {
        done??;
    }
    let (audits, reports) = (counts.audits.most(), counts.reports.most());
    let (prints, overlaps) = (counts.prints.most(), counts.overlaps.load(Ordering::SeqCst));
    println!("at the same time: {audits} audit, {reports} reports, {prints} prints");
    let is_well = audits == 1 && reports > 1 && prints <= PRINTERS as usize && overlaps == 0;
    println!("{}", if is_well { "ok" } else { "the counts are wrong" });
    Ok(is_well)
}
