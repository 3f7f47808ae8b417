//! Releases in flight whose answers may hold grants for waiters of the same manager.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::value::sync::{Mutex, MutexGuard};

/// The releases of a manager that are in flight.
#[derive(Debug, Default)]
pub(crate) struct Releases(Mutex<ReleasesInFlight>);

#[derive(Debug, Default)]
pub(crate) struct ReleasesInFlight {
    pub(crate) last: u64,
    /// The time when each was sent, and the number of its lock.
    pub(crate) releases: HashMap<u64, (Instant, u64)>,
    /// Until then a task is known to watch the releases. Its runtime may have ended.
    pub(crate) watched_until: Option<Instant>,
}

impl Releases {
    /// Removes the late releases; returns the numbers of their locks, and whether no release is
    /// left.
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

    pub(crate) fn in_flight(&self) -> MutexGuard<'_, ReleasesInFlight> {
        self.0.lock()
    }
}
