//! Releases that are in flight, whose answers may be for waiters of the same manager.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Releases of a manager whose answers are for its waiters, too.
#[derive(Debug, Default)]
pub(crate) struct Releases(Mutex<UnderWay>);

#[derive(Debug, Default)]
pub(crate) struct UnderWay {
    pub(crate) last: u64,
    /// When they were sent, and for which locks.
    pub(crate) releases: HashMap<u64, (Instant, u64)>,
    /// Until when a task is known to look after them. It may be on a runtime that has ended.
    pub(crate) minded: Option<Instant>,
}

impl Releases {
    /// Takes those out that are late; tells for which locks they are, and whether that were all.
    pub(crate) fn late(&self, late: Duration) -> (Vec<u64>, bool) {
        let (mut under_way, now) = (self.under_way(), Instant::now());
        let mut locks = Vec::new();
        under_way.releases.retain(|_, (sent, lock)| {
            let is_late = now >= *sent + late;
            locks.extend(is_late.then_some(*lock));
            !is_late
        });
        under_way.minded = (!under_way.releases.is_empty()).then(|| now + late * 4);
        (locks, under_way.minded.is_none())
    }

    pub(crate) fn under_way(&self) -> MutexGuard<'_, UnderWay> {
        // Nothing that runs under this mutex can panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
