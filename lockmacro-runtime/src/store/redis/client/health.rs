//! Whether the servers of a manager answer, on all its connections. A lost server is logged once,
//! and once more when it is back, however many calls fail meanwhile.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::store::redis::client::round_trip::RoundTrip;
use crate::value::error::Unavailability;
use crate::value::sync::Mutex;
use crate::value::time::Instant;

/// Longest time between two failures of one outage.
const OUTAGE_GAP: Duration = Duration::from_secs(60);
/// Shortest time between two failures that are logged at WARN outside an outage.
const WARN_EVERY: Duration = Duration::from_secs(5);

/// The health of all servers of a manager.
#[derive(Default)]
pub(crate) struct Healths {
    servers: Mutex<BTreeMap<String, Weak<Health>>>,
    warned: Mutex<Option<Instant>>,
}

/// The health of one server, for as long as it is used: an outage of a node that leaves its cluster
/// ends with its last connection, because no answer would end it.
#[derive(Default)]
pub(crate) struct Health {
    /// The last command has failed. Read for every answer.
    failing: AtomicBool,
    outage: Mutex<Option<Outage>>,
    round_trip: Arc<RoundTrip>,
}

/// Failed commands without an answered one in between.
struct Outage {
    since: Instant,
    last: Instant,
    /// Of the last failure.
    reason: Unavailability,
    /// Whether the outage was long enough to be logged.
    logged: bool,
}

impl Healths {
    /// The health of the server with that name.
    pub(crate) fn of(&self, name: &str) -> Arc<Health> {
        let mut servers = self.servers.lock();
        if let Some(known) = servers.get(name).and_then(Weak::upgrade) {
            return known;
        }
        servers.retain(|_, health| health.strong_count() > 0);
        let new = Arc::<Health>::default();
        servers.insert(name.to_owned(), Arc::downgrade(&new));
        new
    }

    /// Whether any server is lost, so that a failure need not be logged.
    pub(crate) fn is_any_lost(&self) -> bool {
        let servers = self.servers.lock();
        servers.values().filter_map(Weak::upgrade).any(|health| health.is_lost())
    }

    /// Whether to log a failed call at WARN: not while a server is lost, and one in `WARN_EVERY`.
    pub(crate) fn is_news(&self) -> bool {
        let mut warned = self.warned.lock();
        let is = !self.is_any_lost() && warned.is_none_or(|last| last.elapsed() >= WARN_EVERY);
        if is {
            *warned = Some(Instant::now());
        }
        is
    }
}

impl Health {
    /// The measured round trip, over all connections to the server.
    pub(crate) fn round_trip(&self) -> &Arc<RoundTrip> {
        &self.round_trip
    }

    /// Notes an answer.
    pub(crate) fn answered(&self, server: impl FnOnce() -> String) {
        if !self.failing.load(Ordering::Relaxed) {
            return;
        }
        let mut outage = self.outage.lock();
        self.failing.store(false, Ordering::Relaxed);
        let ended = outage.take().filter(|outage| outage.logged);
        drop(outage);
        if let Some(Outage { since, .. }) = ended {
            let (server, after) = (server(), since.elapsed());
            tracing::info!(%server, ?after, "lock server back");
        }
    }

    /// Notes a command that failed because of the server. The server is lost when no command was
    /// answered for `least`.
    pub(crate) fn failed(
        &self,
        reason: Unavailability,
        least: Duration,
        server: impl FnOnce() -> String,
    ) {
        let now = Instant::now();
        let mut outage = self.outage.lock();
        self.failing.store(true, Ordering::Relaxed);
        let goes_on = |last: &Outage| last.logged || now.duration_since(last.last) <= OUTAGE_GAP;
        let (since, was_logged) = match outage.take().filter(goes_on) {
            Some(Outage { since, logged, .. }) => (since, logged),
            None => (now, false),
        };
        let lasts = now.duration_since(since);
        let logged = was_logged || lasts >= least;
        *outage = Some(Outage { since, last: now, reason, logged });
        // A tracing subscriber may be slow, and every answer waits for the mutex.
        drop(outage);
        if logged && !was_logged {
            let (server, since) = (server(), lasts);
            tracing::warn!(%server, ?since, %reason, "lock server lost");
        }
    }

    /// Why the server gives no answer and for how long it has not, if it is lost. A server that
    /// answers, and refuses, is asked by each caller.
    pub(crate) fn silent(&self) -> Option<(Unavailability, Duration)> {
        use Unavailability::{BusyScript, Disconnected, Loading, Refused, Timeout};
        let (reason, since) = self.lost()?;
        matches!(reason, BusyScript | Disconnected | Loading | Refused | Timeout)
            .then(|| (reason, since.elapsed()))
    }

    /// Whether the server is lost.
    pub(crate) fn is_lost(&self) -> bool {
        self.lost().is_some()
    }

    /// Why the server is lost, and since when.
    fn lost(&self) -> Option<(Unavailability, Instant)> {
        if !self.failing.load(Ordering::Relaxed) {
            return None;
        }
        let outage = self.outage.lock();
        outage.as_ref().filter(|outage| outage.logged).map(|outage| (outage.reason, outage.since))
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
        assert!(!healths.of("b:1").is_lost() && !healths.is_news());
        health.answered(|| "a:1".to_owned());
        assert!(!health.is_lost() && !healths.is_any_lost() && healths.is_news());
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_nothing_uses_any_more_is_no_longer_lost() {
        let healths = Healths::default();
        let (gone, stays) = (healths.of("a:1"), healths.of("b:1"));
        for health in [&gone, &stays] {
            fail(health);
        }
        advance(LEAST).await;
        fail(&gone);
        assert!(healths.is_any_lost());
        drop(gone);
        assert!(!healths.is_any_lost() && !healths.of("a:1").is_lost());
        fail(&stays);
        assert!(stays.is_lost(), "its own outage goes on");
        assert_eq!(healths.servers.lock().len(), 2);
        drop(healths.of("c:1"));
        drop(healths.of("d:1"));
        assert_eq!(healths.servers.lock().len(), 2, "names are not kept");
    }

    #[tokio::test(start_paused = true)]
    async fn of_many_failures_few_are_logged_at_warn() {
        let healths = Healths::default();
        assert!(healths.is_news() && !healths.is_news());
        advance(WARN_EVERY).await;
        assert!(healths.is_news() && !healths.is_news());
    }
}
