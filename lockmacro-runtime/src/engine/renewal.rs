//! The renewals of all leases of a manager: one table, one task in the background. Leases that are
//! not renewed are in it too, to be confirmed when another server has taken the place of the one
//! that granted them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::mem;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::{Notify, Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout};

use crate::engine::telemetry;
use crate::protocol::request::Request;
use crate::store::dispatch::Store;
use crate::value::backoff::exponential;
use crate::value::labels::Labelled;
use crate::value::sync::{Mutex, MutexGuard};
use crate::value::time::Moment;

/// How often the clock is looked at while there are leases. A timer stands still while the machine
/// sleeps, and what became due meanwhile is to be confirmed soon after.
const BEAT: Duration = Duration::from_secs(1);

/// After so long a server in trouble is asked again whether it still holds a lock; the pauses
/// double, up to eight times as long.
const CONFIRM_AGAIN: Duration = Duration::from_millis(250);
/// So many confirmations are under way at once; a new server is not stormed.
const AT_ONCE: usize = 256;

/// A lock whose lease is renewed, or confirmed.
pub(crate) trait Renewable: fmt::Debug + Send + Sync {
    /// What is asked for.
    fn request(&self) -> &Request;

    /// Whether its lease is to be renewed; else it is only confirmed.
    fn wants_renewal(&self) -> bool;

    /// For how long its holder believes in it, if it does.
    fn keeps(&self, now: Moment) -> Option<Duration>;

    /// For how long it may be renewed now, where `ttl` is wanted.
    fn allowed(&self, ttl: Duration) -> Duration;

    /// Takes note of the answer to what was sent at `sent`; tells when to renew it next.
    fn answered(&self, held: bool, sent: Moment, ttl: Duration) -> Option<Moment>;

    /// Takes note that there was no answer; tells when to try again.
    fn unanswered(&self) -> Option<Moment>;

    /// What is left, the first time that it is less than half of the lease.
    fn is_halved(&self) -> Option<Duration>;
}

/// Which leases are renewed, and when.
#[derive(Debug)]
pub(crate) struct Renewals {
    table: Mutex<Table>,
    confirming: Semaphore,
    /// Something is due before the task wakes by itself.
    sooner: Notify,
}

#[derive(Debug, Default)]
struct Table {
    leases: BTreeMap<u64, Entry>,
    due: BTreeSet<(Moment, u64)>,
    last_id: u64,
    /// When the task wakes by itself.
    wakes: Option<Moment>,
    /// When the server may have become another one for the last time.
    changed: Option<Moment>,
    /// The task waits for a first lease, and has no beat meanwhile.
    asleep: bool,
    closed: bool,
}

#[derive(Debug)]
struct Entry {
    held: Weak<dyn Renewable>,
    state: State,
    /// When the next renewal is due by itself, whatever has it done sooner.
    own: Option<Moment>,
    /// Confirmations in a row without an answer.
    failed: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Nothing is to be done.
    Idle,
    Due(Moment),
    /// A renewal is under way; `stale` when it may ask a server that was replaced meanwhile.
    UnderWay {
        stale: bool,
    },
}

/// A renewal or confirmation that is due.
struct Due {
    id: u64,
    held: Arc<dyn Renewable>,
    own: Option<Moment>,
}

/// A lease in the table. Dropping it ends its renewal.
pub(crate) struct Enrolled {
    renewals: Arc<Renewals>,
    id: u64,
}

impl Default for Renewals {
    fn default() -> Self {
        let (table, sooner) = Default::default();
        Self { table, confirming: Semaphore::new(AT_ONCE), sooner }
    }
}

impl Renewals {
    /// Takes a lease into the table, to be renewed from `due` on if it is to be renewed; tells
    /// whether something is to be done. It was granted by what was sent at `sent`: if the server
    /// has changed since, before the lease was here, it is due at once.
    pub(crate) fn enroll(
        self: &Arc<Self>,
        held: Weak<dyn Renewable>,
        sent: Moment,
        due: Option<Moment>,
    ) -> (Enrolled, bool) {
        let mut table = self.table();
        table.last_id += 1;
        let id = table.last_id;
        table.leases.insert(id, Entry { held, state: State::Idle, own: due, failed: 0 });
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
        self.table().closed = true;
        self.sooner.notify_one();
    }

    /// Renews what is due until the table is closed. Each renewal has its own time, so that a slow
    /// one delays no other; those that are due together leave together.
    pub(crate) async fn work(self: Arc<Self>, store: Arc<Store>) {
        let mut clocks = (Moment::now(), Instant::now());
        let mut looked = Moment::now();
        while let Some((due, mut next)) = self.take_due(Moment::now()) {
            let now = (Moment::now(), Instant::now());
            if now.0.since(clocks.0) > now.1.duration_since(clocks.1) + BEAT {
                // The machine has slept: whatever is believed is confirmed at once.
                self.all_due(now.0);
            }
            clocks = now;
            for due in due {
                tokio::spawn(renew(Arc::clone(&self), Arc::clone(&store), due));
            }
            if store.fails_over() && !self.falls_asleep() {
                next = Some(next.unwrap_or(BEAT));
                if now.0.since(looked) >= BEAT {
                    looked = now.0;
                    let store = Arc::clone(&store);
                    tokio::spawn(async move { store.look().await });
                }
            }
            match next {
                Some(pause) => drop(timeout(pause, self.sooner.notified()).await),
                None => self.sooner.notified().await,
            }
        }
    }

    /// Whether there is nothing to look after until the next lease comes.
    fn falls_asleep(&self) -> bool {
        let mut table = self.table();
        table.asleep = table.leases.is_empty();
        table.asleep
    }

    /// What is to be renewed now, and how long until the next; `None` when the table is closed.
    fn take_due(&self, now: Moment) -> Option<(Vec<Due>, Option<Duration>)> {
        let mut table = self.table();
        if table.closed {
            return None;
        }
        let mut renewed = Vec::new();
        while let Some((_, id)) = table.due.first().copied().filter(|(due, _)| *due <= now) {
            table.due.pop_first();
            if let Some(entry) = table.leases.get_mut(&id) {
                entry.state = State::UnderWay { stale: false };
                let own = entry.own;
                renewed.extend(entry.held.upgrade().map(|held| Due { id, held, own }));
            }
        }
        let pause = table.due.first().map(|(due, _)| due.since(now).min(BEAT));
        table.wakes = pause.map(|pause| now.after(pause));
        Some((renewed, pause))
    }

    /// Has every lease renewed or confirmed now; tells whether there are any.
    pub(crate) fn all_due(&self, now: Moment) -> bool {
        let mut table = self.table();
        table.changed = Some(now);
        let Table { leases, due, .. } = &mut *table;
        due.clear();
        for (id, entry) in &mut *leases {
            entry.state = match entry.state {
                State::UnderWay { .. } => State::UnderWay { stale: true },
                State::Idle | State::Due(_) => {
                    due.insert((now, *id));
                    State::Due(now)
                }
            };
        }
        self.sooner.notify_one();
        !leases.is_empty()
    }

    /// Takes note that a renewal is over, and when the next one is due.
    fn over(&self, id: u64, next: Option<Moment>) {
        let mut table = self.table();
        let Some(entry) = table.leases.get_mut(&id) else { return };
        let stale = entry.state == State::UnderWay { stale: true };
        entry.state = State::Idle;
        entry.own = next;
        if next.is_none() {
            entry.failed = 0;
        }
        if let Some(due) = if stale { Some(Moment::now()) } else { next } {
            self.schedule(table, id, due);
        }
    }

    /// Waits for a turn, as all leases are due at once when a server has changed: a renewal only until
    /// it is due by itself.
    async fn turn(&self, own: Option<Moment>) -> Option<SemaphorePermit<'_>> {
        let turn = self.confirming.acquire();
        match own.map(|own| own.since(Moment::now())) {
            None => turn.await.ok(),
            Some(Duration::ZERO) => None,
            Some(left) => timeout(left, turn).await.ok()?.ok(),
        }
    }

    /// When a confirmation that had no answer is sent again.
    fn confirm_again(&self, id: u64) -> Moment {
        let mut table = self.table();
        let failed = table.leases.get_mut(&id).map_or(0, |entry| {
            entry.failed = entry.failed.saturating_add(1);
            entry.failed - 1
        });
        Moment::now().after(exponential(CONFIRM_AGAIN, failed, CONFIRM_AGAIN * 8))
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

    fn is_enrolled(&self, id: u64) -> bool {
        self.table().leases.contains_key(&id)
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock()
    }
}

impl fmt::Debug for Enrolled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the table, which has everybody else's leases in it.
        f.debug_tuple("Enrolled").field(&self.id).finish()
    }
}

impl Drop for Enrolled {
    fn drop(&mut self) {
        let mut table = self.renewals.table();
        if let Some(Entry { state: State::Due(due), .. }) = table.leases.remove(&self.id) {
            table.due.remove(&(due, self.id));
        }
    }
}

async fn renew(renewals: Arc<Renewals>, store: Arc<Store>, Due { id, held, own }: Due) {
    let (request, renewed) = (held.request(), held.wants_renewal());
    let own = renewed.then(|| own.unwrap_or_else(Moment::now));
    let _turn = renewals.turn(own).await;
    if !renewals.is_enrolled(id) {
        return;
    }
    let sent = Moment::now();
    let (answer, ttl) = if renewed {
        let ttl = held.allowed(request.ttl);
        (store.renew_acknowledged(request, ttl, request.ttl / 3).await, ttl)
    } else if let Some(left) = held.keeps(sent) {
        // A server that knows the lock may have forgotten for how long. The lease stays as it is.
        (store.confirm(request, left).await, Duration::ZERO)
    } else {
        return renewals.over(id, None);
    };
    if !renewals.is_enrolled(id) {
        // Given back meanwhile: a "not yours" is no news.
        return;
    }
    let next = match answer {
        Ok(ours) => held.answered(ours, sent, ttl),
        Err(_) if renewed => held.unanswered(),
        Err(_) => held.unanswered().map(|_| renewals.confirm_again(id)),
    };
    if let (true, Err(error)) = (renewed, &answer)
        && let Some(left) = held.is_halved()
    {
        telemetry::in_trouble(request.labels(), request.listed(), left, error);
    }
    renewals.over(id, next);
    if renewed || !matches!(answer, Ok(true)) {
        telemetry::renewed(request.labels(), request.listed(), answer.as_ref().copied());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Never;

    impl Renewable for Never {
        fn request(&self) -> &Request {
            unreachable!()
        }

        fn wants_renewal(&self) -> bool {
            false
        }

        fn keeps(&self, _: Moment) -> Option<Duration> {
            None
        }

        fn allowed(&self, ttl: Duration) -> Duration {
            ttl
        }

        fn answered(&self, _: bool, _: Moment, _: Duration) -> Option<Moment> {
            None
        }

        fn unanswered(&self) -> Option<Moment> {
            None
        }

        fn is_halved(&self) -> Option<Duration> {
            None
        }
    }

    /// A lock that was dropped.
    fn nobody() -> Weak<dyn Renewable> {
        Weak::<Never>::new()
    }

    #[test]
    fn a_lease_that_was_granted_before_the_last_change_is_confirmed_at_once() {
        let renewals = Arc::new(Renewals::default());
        let at = |ms| Moment::at(Duration::from_millis(ms));
        let (_none, due) = renewals.enroll(nobody(), at(1), None);
        assert!(!due, "nothing has changed");
        // Nobody was enrolled whom it concerns, and somebody is about to be.
        renewals.all_due(at(5));
        for (sent, late) in [(4, true), (5, true), (6, false)] {
            let (_enrolled, due) = renewals.enroll(nobody(), at(sent), None);
            assert_eq!(due, late, "{sent}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_server_is_not_stormed_and_no_renewal_is_late_for_that() {
        let renewals = Renewals::default();
        let mut turns = Vec::new();
        let an_hour = Duration::from_secs(60 * 60);
        let soon = || Moment::now().after(Duration::from_secs(60));
        for nth in 0..AT_ONCE {
            turns.push(renewals.turn((nth % 2 == 0).then(soon)).await.expect("there is room"));
        }
        // One that is due goes without a turn, and one that is not, when it is.
        let due = timeout(an_hour, renewals.turn(Some(Moment::now()))).await;
        assert!(due.expect("it does not wait").is_none());
        let start = Instant::now();
        assert!(renewals.turn(Some(soon())).await.is_none());
        assert!(start.elapsed() > Duration::from_secs(50));
        // A confirmation has all the time.
        let mut waiting = Box::pin(renewals.turn(None));
        assert!(timeout(an_hour, &mut waiting).await.is_err());
        turns.pop();
        assert!(waiting.await.is_some());
    }

    #[test]
    fn what_has_it_done_sooner_does_not_change_when_a_renewal_is_due() {
        let renewals = Arc::new(Renewals::default());
        let at = |ms| Moment::at(Duration::from_millis(ms));
        let own = |enrolled: &Enrolled| renewals.table().leases.get(&enrolled.id).unwrap().own;
        let (renewed, _) = renewals.enroll(nobody(), at(1), Some(at(50)));
        let (fixed, _) = renewals.enroll(nobody(), at(1), None);
        renewals.all_due(at(5));
        let (late, _) = renewals.enroll(nobody(), at(4), Some(at(60)));
        let all = [own(&renewed), own(&fixed), own(&late)];
        assert_eq!(all, [Some(at(50)), None, Some(at(60))]);
        renewals.over(renewed.id, Some(at(70)));
        assert_eq!(own(&renewed), Some(at(70)));
    }

    #[test]
    fn a_server_in_trouble_is_asked_less_and_less() {
        let renewals = Arc::new(Renewals::default());
        let (enrolled, _) = renewals.enroll(nobody(), Moment::now(), None);
        let pause = || renewals.confirm_again(enrolled.id).since(Moment::now());
        let pauses: Vec<_> = (0..5).map(|_| pause()).collect();
        assert!(pauses[0] < CONFIRM_AGAIN * 2, "{pauses:?}");
        assert!(pauses[3] > CONFIRM_AGAIN * 4 && pauses[4] < CONFIRM_AGAIN * 10, "{pauses:?}");
        renewals.over(enrolled.id, None);
        assert!(pause() < CONFIRM_AGAIN * 2, "it had answered");
    }
}
