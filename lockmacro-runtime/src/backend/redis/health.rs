//! Whether a server answers, as all connections of a manager to it have found out, and what is
//! logged of that: one line when it is lost and one when it is back, however many calls fail
//! meanwhile.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::error::Unavailability;

/// What is further apart is not one outage.
const APART: Duration = Duration::from_secs(60);
/// How often a failure is logged at WARN by itself, that is no outage.
const WARNED: Duration = Duration::from_secs(5);

/// It has not answered yet.
const NEW: u8 = 0;
const WELL: u8 = 1;
const DOUBTFUL: u8 = 2;

/// All servers of a manager.
#[derive(Default)]
pub(super) struct Healths {
    servers: Mutex<BTreeMap<String, Arc<Health>>>,
    lost: Arc<AtomicUsize>,
    warned: Mutex<Option<Instant>>,
}

/// One server.
#[derive(Default)]
pub(super) struct Health {
    /// Looked at for every answer.
    state: AtomicU8,
    outage: Mutex<Option<Outage>>,
    /// How many servers of the manager are lost.
    lost: Arc<AtomicUsize>,
}

/// Commands that have failed, and none that has not since the first of them.
struct Outage {
    since: Instant,
    last: Instant,
    /// Those of callers, each of which may have sent several commands, or none.
    failed_calls: u64,
    locks_lost: u64,
    /// Whether it was long enough to be logged.
    told: bool,
}

impl Healths {
    /// The one of the server with that name.
    pub(super) fn of(&self, name: &str) -> Arc<Health> {
        let new = || Arc::new(Health { lost: Arc::clone(&self.lost), ..Health::default() });
        Arc::clone(lock(&self.servers).entry(name.to_owned()).or_insert_with(new))
    }

    /// Of which server it was is not asked: mostly there is one that is in trouble.
    fn note(&self, note: impl Fn(&mut Outage)) {
        for server in lock(&self.servers).values() {
            if server.state.load(Ordering::Relaxed) == DOUBTFUL
                && let Some(outage) = &mut *lock(&server.outage)
            {
                note(outage);
            }
        }
    }

    /// Whether a server is lost, so that what fails is no news.
    pub(super) fn is_any_lost(&self) -> bool {
        self.lost.load(Ordering::Relaxed) > 0
    }

    /// Takes note of a lock that could not be kept.
    pub(super) fn lock_lost(&self) {
        self.note(|outage| outage.locks_lost += 1);
    }

    /// Takes note of a caller's call that has failed because of a server; tells whether that is to
    /// be logged at WARN, as some of many are.
    pub(super) fn call_failed(&self) -> bool {
        self.note(|outage| outage.failed_calls += 1);
        let mut warned = lock(&self.warned);
        let may = !self.is_any_lost() && warned.is_none_or(|last| last.elapsed() >= WARNED);
        if may {
            *warned = Some(Instant::now());
        }
        may
    }
}

impl Health {
    /// Takes note of a connection that could be opened, which not every broken server refuses.
    pub(super) fn opened(&self) {
        let _ = self.state.compare_exchange(NEW, WELL, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Takes note of an answer.
    pub(super) fn answered(&self, server: impl FnOnce() -> String) {
        if self.state.load(Ordering::Relaxed) == WELL {
            return;
        }
        let mut outage = lock(&self.outage);
        self.state.store(WELL, Ordering::Relaxed);
        let ended = outage.take().filter(|outage| outage.told);
        drop(outage);
        if let Some(Outage { since, failed_calls, locks_lost, .. }) = ended {
            self.lost.fetch_sub(1, Ordering::Relaxed);
            let (server, after) = (server(), since.elapsed());
            tracing::info!(%server, ?after, failed_calls, locks_lost, "lock server back");
        }
    }

    /// Takes note of a command that has failed because of the server. It is lost when none has not
    /// for `least`.
    pub(super) fn failed(
        &self,
        reason: Unavailability,
        least: Duration,
        server: impl FnOnce() -> String,
    ) {
        if self.state.load(Ordering::Relaxed) == NEW {
            // Who connects is told.
            return;
        }
        let now = Instant::now();
        let mut outage = lock(&self.outage);
        self.state.store(DOUBTFUL, Ordering::Relaxed);
        let is_over = |last: &Outage| !last.told && now.duration_since(last.last) > APART;
        if outage.as_ref().is_none_or(is_over) {
            *outage =
                Some(Outage { since: now, last: now, failed_calls: 0, locks_lost: 0, told: false });
        }
        let Some(outage) = &mut *outage else { return };
        outage.last = now;
        let since = now.duration_since(outage.since);
        if !outage.told && since >= least {
            outage.told = true;
            self.lost.fetch_add(1, Ordering::Relaxed);
            let (server, failed_calls) = (server(), outage.failed_calls);
            tracing::warn!(%server, ?since, failed_calls, %reason, "lock server lost");
        }
    }

    /// Whether it is lost.
    #[cfg(test)]
    pub(super) fn is_lost(&self) -> bool {
        self.state.load(Ordering::Relaxed) == DOUBTFUL
            && lock(&self.outage).as_ref().is_some_and(|outage| outage.told)
    }
}

/// Whether a server that says so, or nothing, does nothing for any lock.
pub(super) fn is_lost(reason: Unavailability) -> bool {
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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing that runs under these mutexes leaves them half changed.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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
        advance(APART * 2).await;
        fail(&health);
        assert!(!health.is_lost(), "these are two, and not one");
        advance(LEAST).await;
        fail(&health);
        assert!(health.is_lost() && healths.of("a:1").is_lost() && healths.is_any_lost());
        assert!(!healths.of("b:1").is_lost() && !healths.call_failed());
        health.opened();
        assert!(health.is_lost(), "a connection is no answer");
        health.answered(|| "a:1".to_owned());
        assert!(!health.is_lost() && !healths.is_any_lost());
    }

    #[tokio::test(start_paused = true)]
    async fn of_many_failures_some_are_told_at_warn() {
        let healths = Healths::default();
        assert!(healths.call_failed() && !healths.call_failed());
        advance(WARNED).await;
        assert!(healths.call_failed() && !healths.call_failed());
    }
}
