//! The renewals of all leases of a manager: one table, one task in the background.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use crate::backend::Backend;
use crate::clock::Moment;
use crate::held::Held;
use crate::telemetry;

/// How often the clock is looked at while there are leases. A timer stands still while the machine
/// sleeps, and what became due meanwhile is to be confirmed soon after.
const BEAT: Duration = Duration::from_secs(1);

/// Which leases are renewed, and when.
#[derive(Debug, Default)]
pub(crate) struct Renewals {
    table: Mutex<Table>,
    /// Something is due before the task wakes by itself.
    sooner: Notify,
}

#[derive(Debug, Default)]
struct Table {
    leases: HashMap<u64, Entry>,
    due: BTreeSet<(Moment, u64)>,
    last_id: u64,
    /// When the task wakes by itself.
    wakes: Option<Moment>,
    closed: bool,
}

#[derive(Debug)]
struct Entry {
    held: Weak<Held>,
    /// `None` while a renewal is under way.
    due: Option<Moment>,
}

/// A lease in the table. Dropping it ends its renewal.
#[derive(Debug)]
pub(crate) struct Enrolled {
    renewals: Arc<Renewals>,
    id: u64,
}

impl Renewals {
    pub(crate) fn enroll(self: &Arc<Self>, held: &Arc<Held>, due: Moment) -> Enrolled {
        let mut table = self.table();
        table.last_id += 1;
        let id = table.last_id;
        table.leases.insert(id, Entry { held: Arc::downgrade(held), due: None });
        self.schedule(table, id, due);
        Enrolled { renewals: Arc::clone(self), id }
    }

    /// Ends the task.
    pub(crate) fn close(&self) {
        self.table().closed = true;
        self.sooner.notify_one();
    }

    /// Renews what is due until the table is closed. Each renewal has its own time, so that a slow
    /// one delays no other; those that are due together leave together.
    pub(crate) async fn work(self: Arc<Self>, backend: Arc<Backend>) {
        let mut under_way = JoinSet::new();
        let mut clocks = (Moment::now(), Instant::now());
        while let Some((due, next)) = self.take_due(Moment::now()) {
            let now = (Moment::now(), Instant::now());
            if now.0.since(clocks.0) > now.1.duration_since(clocks.1) + BEAT {
                // The machine has slept: whatever is believed is confirmed at once.
                self.all_due(now.0);
            }
            clocks = now;
            for (id, held) in due {
                under_way.spawn(renew(Arc::clone(&self), Arc::clone(&backend), id, held));
            }
            while under_way.try_join_next().is_some() {}
            match next {
                Some(pause) => drop(timeout(pause, self.sooner.notified()).await),
                None => self.sooner.notified().await,
            }
        }
    }

    /// What is to be renewed now, and how long until the next; `None` when the table is closed.
    #[expect(clippy::type_complexity, reason = "a pair of what and when")]
    fn take_due(&self, now: Moment) -> Option<(Vec<(u64, Arc<Held>)>, Option<Duration>)> {
        let mut table = self.table();
        if table.closed {
            return None;
        }
        let mut renewed = Vec::new();
        while let Some((_, id)) = table.due.first().copied().filter(|(due, _)| *due <= now) {
            table.due.pop_first();
            if let Some(entry) = table.leases.get_mut(&id) {
                entry.due = None;
                renewed.extend(entry.held.upgrade().map(|held| (id, held)));
            }
        }
        let pause = table.due.first().map(|(due, _)| due.since(now).min(BEAT));
        table.wakes = pause.map(|pause| now.after(pause));
        Some((renewed, pause))
    }

    fn all_due(&self, now: Moment) {
        let mut table = self.table();
        let Table { leases, due, .. } = &mut *table;
        due.clear();
        for (id, entry) in leases {
            if entry.due.is_some() {
                entry.due = Some(now);
                due.insert((now, *id));
            }
        }
        self.sooner.notify_one();
    }

    fn reschedule(&self, id: u64, due: Moment) {
        let table = self.table();
        self.schedule(table, id, due);
    }

    fn schedule(&self, mut table: MutexGuard<'_, Table>, id: u64, due: Moment) {
        // Not there any more: its lock was given back meanwhile.
        if let Some(entry) = table.leases.get_mut(&id) {
            entry.due = Some(due);
            table.due.insert((due, id));
            if table.wakes.is_none_or(|wakes| due < wakes) {
                self.sooner.notify_one();
            }
        }
    }

    fn is_enrolled(&self, id: u64) -> bool {
        self.table().leases.contains_key(&id)
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // Nothing that runs under this mutex can panic.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Enrolled {
    fn drop(&mut self) {
        let mut table = self.renewals.table();
        if let Some(Entry { due: Some(due), .. }) = table.leases.remove(&self.id) {
            table.due.remove(&(due, self.id));
        }
    }
}

async fn renew(renewals: Arc<Renewals>, backend: Arc<Backend>, id: u64, held: Arc<Held>) {
    if !renewals.is_enrolled(id) {
        return;
    }
    let claim = held.claim();
    let (ttl, sent) = (held.allowed(claim.ttl), Moment::now());
    let answer = backend.renew(claim, ttl).await;
    if !renewals.is_enrolled(id) {
        // Given back meanwhile: a "not yours" is no news.
        return;
    }
    let next = match answer {
        Ok(ours) => held.answered(ours, sent, ttl),
        Err(_) => held.unanswered(),
    };
    if let Some(due) = next {
        renewals.reschedule(id, due);
    }
    telemetry::renewed(&claim.labels, claim.listed(), answer.as_ref().copied());
}
