//! The timers of a manager: when leases are renewed, and when queues with waiters are looked at.
//! One table, and one task on the background thread.
//!
//! Leases that are not renewed are in the table too: they are confirmed when the server that
//! granted them may have been replaced.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use std::time::Duration;
use std::{fmt, mem};

use futures_util::future::BoxFuture;
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::store::handle::Store;
use crate::sys::sync::{Mutex, MutexGuard};
use crate::sys::task::spawn;
use crate::sys::time::{Instant, Moment, checked};

/// Interval at which the clock is checked while the table has entries. Timers stop while the
/// machine is suspended, and what became due meanwhile has to be done soon after.
const CLOCK_CHECK: Duration = Duration::from_secs(1);

/// A lock whose lease is renewed or confirmed, or a queue.
pub(crate) trait Timed: fmt::Debug + Send + Sync {
    /// Renews or confirms the lease, or looks at the queue. Once this is over, and unless the entry
    /// is not needed any more, calls `over`.
    fn run<'a>(self: Arc<Self>, store: &'a Store, over: &'a Over<'a>) -> BoxFuture<'a, ()>;
}

/// Records that an entry was run, and when it is due next.
pub(crate) type Over<'a> = dyn Fn(Option<Moment>) + Sync + 'a;

/// The entries of a manager, and when each is due.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    table: Mutex<TimerTable>,
    /// Wakes the task before its timer does.
    sooner: Notify,
}

#[derive(Debug, Default)]
struct TimerTable {
    entries: BTreeMap<u64, Timer>,
    due: BTreeSet<(Moment, u64)>,
    last_id: u64,
    /// When the task's timer wakes it.
    wakes: Option<Moment>,
    /// When the server was last known to have changed, or may have.
    changed: Option<Moment>,
    /// The table is empty. The task has set no timer, and waits for an entry.
    asleep: bool,
    closed: bool,
}

#[derive(Debug)]
struct Timer {
    timed: Weak<dyn Timed>,
    state: TimerState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TimerState {
    /// Nothing is planned.
    Idle,
    Due(Moment),
    /// It runs. `outdated`: the server may have been replaced meanwhile.
    Running {
        outdated: bool,
    },
}

/// The locks and queues that are due, by the numbers of their entries.
type Taken = Vec<(u64, Arc<dyn Timed>)>;

/// An entry of the table. Dropping it removes the entry.
pub(crate) struct Enrolled {
    timers: Arc<Timers>,
    id: u64,
}

impl Timers {
    /// Adds an entry to the table, due at `due`. Returns whether it is due at any time.
    ///
    /// `sent` is when the request that brought the lease was sent. If the server has changed since,
    /// the lease is due at once.
    pub(crate) fn enroll(
        self: &Arc<Self>,
        timed: Weak<dyn Timed>,
        sent: Moment,
        due: Option<Moment>,
    ) -> (Enrolled, bool) {
        let mut table = self.table.lock();
        table.last_id += 1;
        let id = table.last_id;
        table.entries.insert(id, Timer { timed, state: TimerState::Idle });
        // The task has set no timer, and would sleep through the new entry.
        if mem::take(&mut table.asleep) {
            self.sooner.notify_one();
        }
        // The server was replaced while the grant was in flight: it may not know of the lock.
        let due = table.changed.filter(|changed| sent <= *changed).or(due);
        if let Some(due) = due {
            self.schedule(table, id, due);
        }
        (Enrolled { timers: Arc::clone(self), id }, due.is_some())
    }

    /// Ends the task.
    pub(crate) fn close(&self) {
        self.table.lock().closed = true;
        self.sooner.notify_one();
    }

    /// Runs the entries that are due until the table is closed. Each runs in a task of its own, so
    /// that a slow one delays no other. Renewals that are due together are sent together.
    pub(crate) async fn work(self: Arc<Self>, store: Store) {
        let mut clocks = (Moment::now(), Instant::now());
        let mut probed = Moment::now();
        while let Some((due, mut next)) = self.take_due(Moment::now()) {
            let now = (Moment::now(), Instant::now());
            if now.0.since(clocks.0) > now.1.duration_since(clocks.1) + CLOCK_CHECK {
                // The machine was suspended: every lease is confirmed at once.
                self.all_due(now.0);
            }
            clocks = now;
            for (id, timed) in due {
                let timers = Arc::clone(&self);
                let store = store.clone();
                spawn(async move { timed.run(&store, &|next| timers.over(id, next)).await });
            }
            // Only while there are entries: a manager without locks asks its server nothing.
            if store.facts.may_fail_over && !self.fall_asleep() {
                next = Some(next.unwrap_or(CLOCK_CHECK));
                if now.0.since(probed) >= CLOCK_CHECK {
                    probed = now.0;
                    let store = store.clone();
                    spawn(async move { store.backend.check().await });
                }
            }
            match next {
                Some(pause) => drop(timeout(pause, self.sooner.notified()).await),
                None => self.sooner.notified().await,
            }
        }
    }

    /// Whether the table is empty. If so, the task sleeps until the next entry.
    fn fall_asleep(&self) -> bool {
        let mut table = self.table.lock();
        table.asleep = table.entries.is_empty();
        table.asleep
    }

    /// Takes what is due now, with the pause until the next check; `None` when the table is closed.
    fn take_due(&self, now: Moment) -> Option<(Taken, Option<Duration>)> {
        let mut table = self.table.lock();
        if table.closed {
            return None;
        }
        let mut taken = Vec::new();
        while let Some((_, id)) = table.due.first().copied().filter(|(due, _)| *due <= now) {
            table.due.pop_first();
            if let Some(entry) = table.entries.get_mut(&id) {
                entry.state = TimerState::Running { outdated: false };
                // A lock that is being dropped needs no renewal, and its `Enrolled` removes the
                // entry.
                taken.extend(entry.timed.upgrade().map(|timed| (id, timed)));
            }
        }
        let pause = table.due.first().map(|(due, _)| checked(due.since(now), CLOCK_CHECK));
        // Noted under the same mutex: an entry that comes before the task sleeps, and is due
        // sooner, wakes it all the same.
        table.wakes = pause.map(|pause| now.after(pause));
        Some((taken, pause))
    }

    /// Makes every entry due now. Returns whether there are any.
    pub(crate) fn all_due(&self, now: Moment) -> bool {
        let mut table = self.table.lock();
        table.changed = Some(now);
        let TimerTable { entries, due, .. } = &mut *table;
        due.clear();
        for (id, entry) in &mut *entries {
            match &mut entry.state {
                // Its answer may be that of the server before.
                TimerState::Running { outdated } => *outdated = true,
                state => {
                    due.insert((now, *id));
                    *state = TimerState::Due(now);
                }
            }
        }
        self.sooner.notify_one();
        !entries.is_empty()
    }

    /// When the server was last replaced, or may have been.
    pub(crate) fn last_change(&self) -> Option<Moment> {
        self.table.lock().changed
    }

    /// Records that an entry was run, and when it is due next.
    fn over(&self, id: u64, next: Option<Moment>) {
        let mut table = self.table.lock();
        // It was dropped while it ran.
        let Some(entry) = table.entries.get_mut(&id) else { return };
        let outdated = entry.state == TimerState::Running { outdated: true };
        entry.state = TimerState::Idle;
        if let Some(due) = if outdated { Some(Moment::now()) } else { next } {
            self.schedule(table, id, due);
        }
    }

    fn schedule(&self, mut table: MutexGuard<'_, TimerTable>, id: u64, due: Moment) {
        let TimerTable { entries, due: all, wakes, .. } = &mut *table;
        let Some(entry) = entries.get_mut(&id) else { return };
        if let TimerState::Due(before) = mem::replace(&mut entry.state, TimerState::Due(due)) {
            all.remove(&(before, id));
        }
        all.insert((due, id));
        if wakes.is_none_or(|wakes| due < wakes) {
            self.sooner.notify_one();
        }
    }
}

impl Enrolled {
    /// The entry is due at `due`, which is sooner than before.
    pub(crate) fn sooner(&self, due: Moment) {
        self.timers.schedule(self.timers.table.lock(), self.id, due);
    }
}

impl fmt::Debug for Enrolled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Does not print the table, which contains every other entry.
        f.debug_tuple("Enrolled").field(&self.id).finish()
    }
}

impl Drop for Enrolled {
    fn drop(&mut self) {
        let mut table = self.timers.table.lock();
        if let Some(Timer { state: TimerState::Due(due), .. }) = table.entries.remove(&self.id) {
            table.due.remove(&(due, self.id));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct NeverHeld;

    impl Timed for NeverHeld {
        fn run<'a>(self: Arc<Self>, _: &'a Store, _: &'a Over<'a>) -> BoxFuture<'a, ()> {
            unreachable!()
        }
    }

    /// A lock that was dropped.
    fn dropped() -> Weak<dyn Timed> {
        Weak::<NeverHeld>::new()
    }

    #[test]
    fn a_lease_that_was_granted_before_the_last_change_is_confirmed_at_once() {
        let timers = Arc::new(Timers::default());
        let at = |ms| Moment::at(Duration::from_millis(ms));
        let (_none, due) = timers.enroll(dropped(), at(1), None);
        assert!(!due, "nothing has changed");
        // The server changes between the grant of a lease and its entry in the table.
        timers.all_due(at(5));
        for (sent, late) in [(4, true), (5, true), (6, false)] {
            let (_enrolled, due) = timers.enroll(dropped(), at(sent), None);
            assert_eq!(due, late, "{sent}");
        }
    }

    /// The server of before has answered a renewal that was in flight.
    #[test]
    fn a_renewal_in_flight_while_the_server_changes_is_followed_by_another_one() {
        let timers = Arc::new(Timers::default());
        let held: Arc<dyn Timed> = Arc::new(NeverHeld);
        let now = Moment::now();
        let (enrolled, _) = timers.enroll(Arc::downgrade(&held), now, Some(now));
        let taken = |at| timers.take_due(at).map_or(0, |(due, _)| due.len());
        let later = now.after(Duration::from_secs(60));
        for changes in [false, true] {
            assert_eq!(taken(later), 1, "it is sent");
            if changes {
                timers.all_due(now);
                assert_eq!(taken(later), 0, "it is in flight");
            }
            timers.over(enrolled.id, Some(later));
            assert_eq!(taken(Moment::now()), usize::from(changes));
        }
    }

    #[test]
    fn an_entry_is_due_once_however_often_it_becomes_due_sooner() {
        let timers = Arc::new(Timers::default());
        let held: Arc<dyn Timed> = Arc::new(NeverHeld);
        let at = |ms| Moment::at(Duration::from_millis(ms));
        let (enrolled, _) = timers.enroll(Arc::downgrade(&held), at(1), Some(at(50)));
        enrolled.sooner(at(30));
        enrolled.sooner(at(10));
        let taken = |at| timers.take_due(at).map_or(0, |(due, _)| due.len());
        assert_eq!((taken(at(9)), taken(at(10)), taken(at(60))), (0, 1, 0));
    }
}
