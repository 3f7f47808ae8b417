//! Renewals of all leases of a manager: one table, and one task on the background thread.
//!
//! Leases that are not renewed are in the table too: they are confirmed when the server that
//! granted them may have been replaced.
//!
//! All in one file, as the table and its task share the states of a lease.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use std::time::Duration;
use std::{fmt, mem};

use futures_util::future::BoxFuture;
use tokio::sync::{Notify, Semaphore, SemaphorePermit};
use tokio::time::timeout;

use crate::store::dispatch::Store;
use crate::value::sync::{Mutex, MutexGuard};
use crate::value::task::spawn;
use crate::value::time::{Instant, Moment, checked};

/// Interval at which the clock is checked while there are leases. Timers stop while the machine is
/// suspended, and leases that became due meanwhile have to be confirmed soon after.
const CLOCK_CHECK: Duration = Duration::from_secs(1);

/// Most confirmations in flight, so that a new server is not flooded.
const MAX_IN_FLIGHT: usize = 256;

/// A lock whose lease is renewed, or confirmed.
pub(crate) trait Renewable: fmt::Debug + Send + Sync {
    /// Whether its lease is renewed. If not, it is only confirmed.
    fn wants_renewal(&self) -> bool;

    /// Renews or confirms the lease. Once this is over, and unless the lock was released meanwhile,
    /// calls `over`.
    fn renew<'a>(&'a self, store: &'a Store, over: &'a Over<'a>) -> BoxFuture<'a, ()>;
}

/// Records that a renewal is over, and when the next one is due.
pub(crate) type Over<'a> = dyn Fn(Option<Moment>) + Sync + 'a;

/// The leases of a manager, and when each is renewed.
#[derive(Debug)]
pub(crate) struct Renewals {
    table: Mutex<Table>,
    confirming: Semaphore,
    /// Wakes the task before its timer does.
    sooner: Notify,
}

#[derive(Debug, Default)]
struct Table {
    leases: BTreeMap<u64, Entry>,
    due: BTreeSet<(Moment, u64)>,
    last_id: u64,
    /// When the task's timer wakes it.
    wakes: Option<Moment>,
    /// When the server was last known to have changed, or may have.
    changed: Option<Moment>,
    /// The table is empty. The task has set no timer, and waits for a lease.
    asleep: bool,
    closed: bool,
}

#[derive(Debug)]
struct Entry {
    held: Weak<dyn Renewable>,
    state: State,
    /// When the next renewal is due by its lease, even if a change of server makes it due sooner.
    lease_due: Option<Moment>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// No renewal is planned.
    Idle,
    Due(Moment),
    /// A renewal is in flight. `stale`: its server may have been replaced meanwhile.
    InFlight {
        stale: bool,
    },
}

/// A renewal or confirmation that is due.
struct Due {
    id: u64,
    held: Arc<dyn Renewable>,
    lease_due: Option<Moment>,
}

/// A lease in the table. Dropping it ends its renewal.
pub(crate) struct Enrolled {
    renewals: Arc<Renewals>,
    id: u64,
}

impl Default for Renewals {
    fn default() -> Self {
        let (table, sooner) = Default::default();
        Self { table, confirming: Semaphore::new(MAX_IN_FLIGHT), sooner }
    }
}

impl Renewals {
    /// Adds a lease to the table, to be renewed from `due` on. Returns whether a renewal or a
    /// confirmation is due.
    ///
    /// `sent` is when the request that brought the lease was sent. If the server has changed since,
    /// the lease is due at once.
    pub(crate) fn enroll(
        self: &Arc<Self>,
        held: Weak<dyn Renewable>,
        sent: Moment,
        due: Option<Moment>,
    ) -> (Enrolled, bool) {
        let mut table = self.table.lock();
        table.last_id += 1;
        let id = table.last_id;
        table.leases.insert(id, Entry { held, state: State::Idle, lease_due: due });
        if mem::take(&mut table.asleep) {
            self.sooner.notify_one();
        }
        let due = table.changed.filter(|changed| sent <= *changed).or(due);
        if let Some(due) = due {
            self.schedule(table, id, due);
        }
        (Enrolled { renewals: Arc::clone(self), id }, due.is_some())
    }

    /// Ends the task.
    pub(crate) fn close(&self) {
        self.table.lock().closed = true;
        self.sooner.notify_one();
    }

    /// Sends the renewals that are due until the table is closed. Every renewal is a task of its
    /// own, so that a slow one delays no other. Renewals that are due together are sent together.
    pub(crate) async fn work(self: Arc<Self>, store: Arc<Store>) {
        let mut clocks = (Moment::now(), Instant::now());
        let mut probed = Moment::now();
        while let Some((due, mut next)) = self.take_due(Moment::now()) {
            let now = (Moment::now(), Instant::now());
            if now.0.since(clocks.0) > now.1.duration_since(clocks.1) + CLOCK_CHECK {
                // The machine was suspended: every lease is confirmed at once.
                self.all_due(now.0);
            }
            clocks = now;
            for due in due {
                spawn(renew(Arc::clone(&self), Arc::clone(&store), due));
            }
            if store.servers().may_fail_over() && !self.falls_asleep() {
                next = Some(next.unwrap_or(CLOCK_CHECK));
                if now.0.since(probed) >= CLOCK_CHECK {
                    probed = now.0;
                    let store = Arc::clone(&store);
                    spawn(async move { store.servers().check().await });
                }
            }
            match next {
                Some(pause) => drop(timeout(pause, self.sooner.notified()).await),
                None => self.sooner.notified().await,
            }
        }
    }

    /// Whether the table is empty. If so, the task sleeps until the next lease.
    fn falls_asleep(&self) -> bool {
        let mut table = self.table.lock();
        table.asleep = table.leases.is_empty();
        table.asleep
    }

    /// Takes the renewals that are due now, with the pause until the next check; `None` when the
    /// table is closed.
    fn take_due(&self, now: Moment) -> Option<(Vec<Due>, Option<Duration>)> {
        let mut table = self.table.lock();
        if table.closed {
            return None;
        }
        let mut renewed = Vec::new();
        while let Some((_, id)) = table.due.first().copied().filter(|(due, _)| *due <= now) {
            table.due.pop_first();
            if let Some(entry) = table.leases.get_mut(&id) {
                entry.state = State::InFlight { stale: false };
                let lease_due = entry.lease_due;
                renewed.extend(entry.held.upgrade().map(|held| Due { id, held, lease_due }));
            }
        }
        let pause = table.due.first().map(|(due, _)| checked(due.since(now), CLOCK_CHECK));
        table.wakes = pause.map(|pause| now.after(pause));
        Some((renewed, pause))
    }

    /// Makes every lease due now. Returns whether there are any.
    pub(crate) fn all_due(&self, now: Moment) -> bool {
        let mut table = self.table.lock();
        table.changed = Some(now);
        let Table { leases, due, .. } = &mut *table;
        due.clear();
        for (id, entry) in &mut *leases {
            match &mut entry.state {
                State::InFlight { stale } => *stale = true,
                state => {
                    due.insert((now, *id));
                    *state = State::Due(now);
                }
            }
        }
        self.sooner.notify_one();
        !leases.is_empty()
    }

    /// Whether the server may have been replaced since a request was sent.
    pub(crate) fn has_changed_since(&self, sent: Moment) -> bool {
        self.table.lock().changed.is_some_and(|changed| sent <= changed)
    }

    /// Records that a renewal is over, and when the next one is due.
    fn over(&self, id: u64, next: Option<Moment>) {
        let mut table = self.table.lock();
        let Some(entry) = table.leases.get_mut(&id) else { return };
        let stale = entry.state == State::InFlight { stale: true };
        entry.state = State::Idle;
        entry.lease_due = next;
        if let Some(due) = if stale { Some(Moment::now()) } else { next } {
            self.schedule(table, id, due);
        }
    }

    /// Waits for a permit to send, as all leases are due at once after a change of server. A
    /// renewal waits only until it is due by its lease, and then is sent without a permit.
    async fn permit(&self, lease_due: Option<Moment>) -> Option<SemaphorePermit<'_>> {
        let permit = self.confirming.acquire();
        match lease_due.map(|due| due.since(Moment::now())) {
            None => permit.await.ok(),
            Some(Duration::ZERO) => None,
            Some(left) => timeout(left, permit).await.ok()?.ok(),
        }
    }

    fn schedule(&self, mut table: MutexGuard<'_, Table>, id: u64, due: Moment) {
        if let Some(entry) = table.leases.get_mut(&id) {
            entry.state = State::Due(due);
            table.due.insert((due, id));
            if table.wakes.is_none_or(|wakes| due < wakes) {
                self.sooner.notify_one();
            }
        }
    }
}

impl fmt::Debug for Enrolled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Does not print the table, which contains every other lease.
        f.debug_tuple("Enrolled").field(&self.id).finish()
    }
}

impl Drop for Enrolled {
    fn drop(&mut self) {
        let mut table = self.renewals.table.lock();
        if let Some(Entry { state: State::Due(due), .. }) = table.leases.remove(&self.id) {
            table.due.remove(&(due, self.id));
        }
    }
}

async fn renew(renewals: Arc<Renewals>, store: Arc<Store>, Due { id, held, lease_due }: Due) {
    let lease_due = held.wants_renewal().then(|| lease_due.unwrap_or_else(Moment::now));
    let _permit = renewals.permit(lease_due).await;
    held.renew(&store, &|next| renewals.over(id, next)).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct NeverHeld;

    impl Renewable for NeverHeld {
        fn wants_renewal(&self) -> bool {
            false
        }

        fn renew<'a>(&'a self, _: &'a Store, _: &'a Over<'a>) -> BoxFuture<'a, ()> {
            unreachable!()
        }
    }

    /// A lock that was dropped.
    fn dropped() -> Weak<dyn Renewable> {
        Weak::<NeverHeld>::new()
    }

    #[test]
    fn a_lease_that_was_granted_before_the_last_change_is_confirmed_at_once() {
        let renewals = Arc::new(Renewals::default());
        let at = |ms| Moment::at(Duration::from_millis(ms));
        let (_none, due) = renewals.enroll(dropped(), at(1), None);
        assert!(!due, "nothing has changed");
        // The server changes between the grant of a lease and its entry in the table.
        renewals.all_due(at(5));
        for (sent, late) in [(4, true), (5, true), (6, false)] {
            let (_enrolled, due) = renewals.enroll(dropped(), at(sent), None);
            assert_eq!(due, late, "{sent}");
        }
    }

    /// The server of before has answered a renewal that was in flight.
    #[test]
    fn a_renewal_in_flight_while_the_server_changes_is_followed_by_another_one() {
        let renewals = Arc::new(Renewals::default());
        let held: Arc<dyn Renewable> = Arc::new(NeverHeld);
        let now = Moment::now();
        let (enrolled, _) = renewals.enroll(Arc::downgrade(&held), now, Some(now));
        let taken = |at| renewals.take_due(at).map_or(0, |(due, _)| due.len());
        let later = now.after(Duration::from_secs(60));
        for changes in [false, true] {
            assert_eq!(taken(later), 1, "it is sent");
            if changes {
                renewals.all_due(now);
                assert_eq!(taken(later), 0, "it is in flight");
            }
            renewals.over(enrolled.id, Some(later));
            assert_eq!(taken(Moment::now()), usize::from(changes));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn confirmations_are_limited_and_delay_no_renewal() {
        let renewals = Renewals::default();
        let mut permits = Vec::new();
        let an_hour = Duration::from_secs(60 * 60);
        let soon = || Moment::now().after(Duration::from_secs(60));
        for nth in 0..MAX_IN_FLIGHT {
            permits.push(renewals.permit((nth % 2 == 0).then(soon)).await.expect("there is room"));
        }
        // A renewal that is due is sent without a permit; another one waits until it is due.
        let due = timeout(an_hour, renewals.permit(Some(Moment::now()))).await;
        assert!(due.expect("it does not wait").is_none());
        let start = Instant::now();
        assert!(renewals.permit(Some(soon())).await.is_none());
        assert!(start.elapsed() > Duration::from_secs(50));
        // A confirmation waits without a limit.
        let mut waiting = Box::pin(renewals.permit(None));
        assert!(timeout(an_hour, &mut waiting).await.is_err());
        permits.pop();
        assert!(waiting.await.is_some());
    }

    #[test]
    fn a_change_of_server_does_not_change_when_a_lease_is_due() {
        let renewals = Arc::new(Renewals::default());
        let at = |ms| Moment::at(Duration::from_millis(ms));
        let lease_due =
            |enrolled: &Enrolled| renewals.table.lock().leases.get(&enrolled.id).unwrap().lease_due;
        let (renewed, _) = renewals.enroll(dropped(), at(1), Some(at(50)));
        let (fixed, _) = renewals.enroll(dropped(), at(1), None);
        renewals.all_due(at(5));
        let (late, _) = renewals.enroll(dropped(), at(4), Some(at(60)));
        let all = [lease_due(&renewed), lease_due(&fixed), lease_due(&late)];
        assert_eq!(all, [Some(at(50)), None, Some(at(60))]);
        renewals.over(renewed.id, Some(at(70)));
        assert_eq!(lease_due(&renewed), Some(at(70)));
    }
}
