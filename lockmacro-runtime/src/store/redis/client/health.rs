//! Whether the servers of a manager answer, on all its connections. A lost server is logged once,
//! and once more when it is back, however many calls fail meanwhile.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::time::Duration;

use crate::store::redis::client::round_trip::RoundTrip;
use crate::value::sync::Mutex;
use crate::value::time::Instant;
use crate::value::unavailability::Unavailability;

/// Longest time between two failures of one outage.
const OUTAGE_GAP: Duration = Duration::from_secs(60);
/// Shortest time between two failures that are logged at WARN outside an outage.
const WARN_EVERY: Duration = Duration::from_secs(5);

/// The server has not answered yet.
const NEW: u8 = 0;
/// The last command was answered.
const UP: u8 = 1;
/// The last command has failed.
const SUSPECT: u8 = 2;
/// The slots of the server were moved to others: failures there are no outage.
const REMOVED: u8 = 3;

/// The health of all servers of a manager.
#[derive(Default)]
pub(crate) struct Healths {
    servers: Mutex<BTreeMap<String, Arc<Health>>>,
    lost: Arc<AtomicUsize>,
    warned: Mutex<Option<Instant>>,
}

/// The health of one server.
#[derive(Default)]
pub(crate) struct Health {
    /// Read for every answer.
    state: AtomicU8,
    outage: Mutex<Option<Outage>>,
    /// The number of servers that are lost, of all of the manager's.
    lost: Arc<AtomicUsize>,
    round_trip: Arc<RoundTrip>,
}

/// Failed commands without an answered one in between.
struct Outage {
    since: Instant,
    last: Instant,
    /// Of the last failure.
    reason: Unavailability,
    /// Failed calls of callers; each may have sent several commands, or none.
    failed_calls: u64,
    locks_lost: u64,
    /// Whether the outage was long enough to be logged.
    logged: bool,
}

impl Healths {
    /// The health of the server with that name.
    pub(crate) fn of(&self, name: &str) -> Arc<Health> {
        let health = self.known(name);
        health.added();
        health
    }

    /// The measured round trip of the server with that name.
    pub(crate) fn round_trip(&self, name: &str) -> Arc<RoundTrip> {
        Arc::clone(&self.known(name).round_trip)
    }

    fn known(&self, name: &str) -> Arc<Health> {
        let new = || Arc::new(Health { lost: Arc::clone(&self.lost), ..Health::default() });
        Arc::clone(self.servers.lock().entry(name.to_owned()).or_insert_with(new))
    }

    /// Notes that a cluster's slot map has these servers and no others. Ends the outages of the
    /// others: no answer of theirs could end them.
    pub(crate) fn retain_only(&self, names: &BTreeSet<String>) {
        let mut ended = Vec::new();
        self.servers.lock().retain(|name, health| {
            if names.contains(name) {
                health.added();
                return true;
            }
            ended.extend(health.removed().map(|outage| (name.clone(), outage)));
            // A call in flight may still use it, and has to find it again.
            Arc::strong_count(health) > 1
        });
        for (server, Outage { since, failed_calls, locks_lost, .. }) in ended {
            let after = since.elapsed();
            tracing::info!(
                %server, ?after, failed_calls, locks_lost, "lock server not in the slot map"
            );
        }
    }

    /// Applies `note` to the outage of the server with that name, or to all outages without a name.
    /// With one server the name is ignored: servers follow one another under a name.
    fn note(&self, at: Option<&str>, note: impl Fn(&mut Outage)) {
        let servers = self.servers.lock();
        let at = at.filter(|_| servers.len() > 1);
        for (name, server) in &*servers {
            if at.is_none_or(|at| at == name) {
                server.note(&note);
            }
        }
    }

    /// Whether any server is lost, so that a failure need not be logged.
    pub(crate) fn is_any_lost(&self) -> bool {
        self.lost.load(Ordering::Relaxed) > 0
    }

    /// Notes a failed call of a caller, whose error names the server. Returns whether to log it at
    /// WARN, which is limited to one in `WARN_EVERY`.
    pub(crate) fn call_failed(&self, server: Option<&str>) -> bool {
        self.note(server, |outage| outage.failed_calls += 1);
        let mut warned = self.warned.lock();
        let may = !self.is_any_lost() && warned.is_none_or(|last| last.elapsed() >= WARN_EVERY);
        if may {
            *warned = Some(Instant::now());
        }
        may
    }
}

impl Health {
    /// The measured round trip, over all connections to the server.
    pub(crate) fn round_trip(&self) -> &Arc<RoundTrip> {
        &self.round_trip
    }

    /// Notes a connection that was opened; some broken servers still accept connections.
    pub(crate) fn opened(&self) {
        if self.state.load(Ordering::Relaxed) == NEW {
            let outage = self.outage.lock();
            // Only an answer ends an outage.
            let next = if outage.is_none() { UP } else { SUSPECT };
            let _ = self.state.compare_exchange(NEW, next, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Notes that the server is in the slot map.
    fn added(&self) {
        let _ = self.state.compare_exchange(REMOVED, NEW, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Notes that the server is not in the slot map; returns the outage that ends thereby, if it
    /// was logged.
    fn removed(&self) -> Option<Outage> {
        let mut outage = self.outage.lock();
        self.state.store(REMOVED, Ordering::Relaxed);
        let ended = outage.take().filter(|outage| outage.logged);
        self.lost.fetch_sub(usize::from(ended.is_some()), Ordering::Relaxed);
        ended
    }

    /// Notes an answer.
    pub(crate) fn answered(&self, server: impl FnOnce() -> String) {
        if matches!(self.state.load(Ordering::Relaxed), UP | REMOVED) {
            return;
        }
        let mut outage = self.outage.lock();
        if self.state.load(Ordering::Relaxed) == REMOVED {
            return;
        }
        self.state.store(UP, Ordering::Relaxed);
        let ended = outage.take().filter(|outage| outage.logged);
        drop(outage);
        if let Some(Outage { since, failed_calls, locks_lost, .. }) = ended {
            self.lost.fetch_sub(1, Ordering::Relaxed);
            let (server, after) = (server(), since.elapsed());
            tracing::info!(%server, ?after, failed_calls, locks_lost, "lock server back");
        }
    }

    /// Notes a command that failed because of the server.
    ///
    /// The server is lost when no command was answered for `least`. A server that was never reached
    /// counts as lost only after a call of a caller has failed, too: a caller that connects sees
    /// the error.
    pub(crate) fn failed(
        &self,
        reason: Unavailability,
        least: Duration,
        server: impl FnOnce() -> String,
    ) {
        let now = Instant::now();
        let mut outage = self.outage.lock();
        let state = self.state.load(Ordering::Relaxed);
        if state == REMOVED {
            return;
        }
        if state != NEW {
            self.state.store(SUSPECT, Ordering::Relaxed);
        }
        let is_over = |last: &Outage| !last.logged && now.duration_since(last.last) > OUTAGE_GAP;
        if outage.as_ref().is_none_or(is_over) {
            *outage = Some(Outage {
                since: now,
                last: now,
                reason,
                failed_calls: 0,
                locks_lost: 0,
                logged: false,
            });
        }
        let Some(noted) = &mut *outage else { return };
        (noted.last, noted.reason) = (now, reason);
        let (since, failed_calls) = (now.duration_since(noted.since), noted.failed_calls);
        if noted.logged || since < least || (state == NEW && failed_calls == 0) {
            return;
        }
        noted.logged = true;
        self.lost.fetch_add(1, Ordering::Relaxed);
        // A tracing subscriber may be slow, and every answer waits for the mutex.
        drop(outage);
        let server = server();
        tracing::warn!(%server, ?since, failed_calls, %reason, "lock server lost");
    }

    /// Applies `note` to the outage, if there is one.
    fn note(&self, note: impl Fn(&mut Outage)) {
        if self.state.load(Ordering::Relaxed) != UP
            && let Some(outage) = &mut *self.outage.lock()
        {
            note(outage);
        }
    }

    /// Notes that a lock of this server was lost.
    pub(crate) fn lock_lost(&self) {
        self.note(|outage| outage.locks_lost += 1);
    }

    /// Why the server gives no answer and for how long it has not, if it is lost. A server that
    /// answers, and refuses, is asked by each caller.
    pub(crate) fn silent(&self) -> Option<(Unavailability, Duration)> {
        use Unavailability::{BusyScript, Disconnected, Loading, Refused, Timeout};
        if self.state.load(Ordering::Relaxed) == UP {
            return None;
        }
        let outage = self.outage.lock();
        let Outage { reason, since, .. } = outage.as_ref().filter(|outage| outage.logged)?;
        matches!(reason, BusyScript | Disconnected | Loading | Refused | Timeout)
            .then(|| (*reason, since.elapsed()))
    }

    /// Whether the server is lost.
    pub(crate) fn is_lost(&self) -> bool {
        self.state.load(Ordering::Relaxed) != UP
            && self.outage.lock().as_ref().is_some_and(|outage| outage.logged)
    }
}

/// Whether a server that fails for this reason serves no lock at all.
pub(crate) fn is_lost(reason: Unavailability) -> bool {
    use Unavailability::{
        BusyScript, ClusterDown, Disconnected, Loading, NotEnoughReplicas, NotSaving, PrimaryDown,
        ReadOnly, Refused, Timeout,
    };
    matches!(
        reason,
        BusyScript
            | ClusterDown
            | Disconnected
            | Loading
            | NotEnoughReplicas
            | NotSaving
            | PrimaryDown
            | ReadOnly
            | Refused
            | Timeout
    )
}
#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    const LEAST: Duration = Duration::from_millis(500);

    fn fail(health: &Health) {
        health.failed(Unavailability::Timeout, LEAST, || "a:1".to_owned());
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_is_lost_when_no_call_has_an_answer_for_long_enough() {
        let healths = Healths::default();
        let health = healths.of("a:1");
        fail(&health);
        advance(LEAST).await;
        fail(&health);
        assert!(!health.is_lost(), "it was never there");
        health.opened();
        fail(&health);
        advance(LEAST / 2).await;
        fail(&health);
        health.answered(|| "a:1".to_owned());
        advance(LEAST).await;
        fail(&health);
        assert!(!health.is_lost(), "it has answered in between");
        advance(OUTAGE_GAP * 2).await;
        fail(&health);
        assert!(!health.is_lost(), "these are two, and not one");
        advance(LEAST).await;
        fail(&health);
        assert!(health.is_lost() && healths.of("a:1").is_lost() && healths.is_any_lost());
        assert!(!healths.of("b:1").is_lost() && !healths.call_failed(None));
        health.opened();
        assert!(health.is_lost(), "a connection is no answer");
        health.answered(|| "a:1".to_owned());
        assert!(!health.is_lost() && !healths.is_any_lost());
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_was_never_reached_is_lost_when_calls_fail() {
        let healths = Healths::default();
        let health = healths.of("a:1");
        fail(&health);
        assert!(healths.call_failed(None));
        advance(LEAST / 2).await;
        fail(&health);
        assert!(!health.is_lost(), "not for long enough");
        advance(LEAST / 2).await;
        fail(&health);
        assert!(health.is_lost() && healths.is_any_lost());
        health.opened();
        assert!(health.is_lost(), "a connection is no answer");
        health.answered(|| "a:1".to_owned());
        assert!(!health.is_lost() && !healths.is_any_lost());
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_leaves_the_slot_map_is_no_longer_lost() {
        let healths = Healths::default();
        let (gone, stays) = (healths.of("a:1"), healths.of("b:1"));
        for health in [&gone, &stays] {
            health.opened();
            fail(health);
        }
        advance(LEAST).await;
        fail(&gone);
        assert!(healths.is_any_lost() && !healths.call_failed(None));
        let left = BTreeSet::from(["b:1".to_owned()]);
        healths.retain_only(&left);
        assert!(!gone.is_lost() && !healths.is_any_lost() && healths.call_failed(None));
        gone.answered(|| "a:1".to_owned());
        fail(&gone);
        advance(LEAST).await;
        fail(&gone);
        assert!(!healths.is_any_lost(), "what is still in flight to it is no outage");
        fail(&stays);
        assert!(stays.is_lost(), "its own outage goes on");
        stays.answered(|| "b:1".to_owned());

        let both = BTreeSet::from(["a:1".to_owned(), "b:1".to_owned()]);
        healths.retain_only(&both);
        gone.answered(|| "a:1".to_owned());
        fail(&gone);
        advance(LEAST).await;
        fail(&gone);
        assert!(gone.is_lost() && healths.is_any_lost(), "it is in the map again");
        drop(gone);
        healths.retain_only(&left);
        assert!(!healths.is_any_lost());
        let names: Vec<_> = healths.servers.lock().keys().cloned().collect();
        assert_eq!(names, ["b:1"]);
    }

    #[tokio::test(start_paused = true)]
    async fn of_many_failures_few_are_logged_at_warn() {
        let healths = Healths::default();
        assert!(healths.call_failed(None) && !healths.call_failed(None));
        advance(WARN_EVERY).await;
        assert!(healths.call_failed(None) && !healths.call_failed(None));
    }
}
