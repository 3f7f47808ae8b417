//! Releases that are in flight, whose answers may be for waiters of the same manager.

use crate::value::sync::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

/// Releases of a manager whose answers are for its waiters, too.
#[derive(Debug, Default)]
pub(crate) struct Releases(Mutex<InFlight>);

#[derive(Debug, Default)]
pub(crate) struct InFlight {
    pub(crate) last: u64,
    /// When they were sent, and for which locks.
    pub(crate) releases: HashMap<u64, (Instant, u64)>,
    /// Until when a task is known to look after them. It may be on a runtime that has ended.
    pub(crate) watched_until: Option<Instant>,
}

impl Releases {
    /// Takes those out that are late; tells for which locks they are, and whether that were all.
    pub(crate) fn take_late(&self, late: Duration) -> (Vec<u64>, bool) {
        let (mut in_flight, now) = (self.in_flight(), Instant::now());
        let mut locks = Vec::new();
        in_flight.releases.retain(|_, (sent, lock)| {
            let is_late = now >= *sent + late;
            locks.extend(is_late.then_some(*lock));
            !is_late
        });
        in_flight.watched_until = (!in_flight.releases.is_empty()).then(|| now + late * 4);
        (locks, in_flight.watched_until.is_none())
    }

    pub(crate) fn in_flight(&self) -> MutexGuard<'_, InFlight> {
        self.0.lock()
    }
}
