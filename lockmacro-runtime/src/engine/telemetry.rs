//! Telemetry of locks: `tracing` events, and with the feature `metrics` counters, gauges and
//! histograms.
//!
//! Metrics are labelled with the lock's name and the template of its key, never with the key: the
//! number of keys has no bound.

use std::borrow::Borrow;
use std::fmt::Display;
use std::ops::Deref;
use std::time::Duration;

use crate::engine::observer;
use crate::protocol::request::{Labels, Request};
use crate::value::error::LockError;
use crate::value::key::Listed;
use crate::value::loss::Lost;
use crate::value::time::Moment;

/// Counts one lock in a gauge until it is dropped. The gauge is part of the type, as every waiter
/// carries one and it has to be small.
#[derive(Debug)]
pub(crate) struct Counted<L: Borrow<Request>, const HELD: bool> {
    request: L,
}

/// Counts a caller that waits for an answer.
pub(crate) type WaitingGauge<L> = Counted<L, false>;
/// Counts a held lock.
pub(crate) type HeldGauge<L> = Counted<L, true>;

impl<L: Borrow<Request>, const HELD: bool> Counted<L, HELD> {
    pub(crate) fn new(request: L) -> Self {
        let counted = Self { request };
        #[cfg(feature = "metrics")]
        counted.gauge().increment(1);
        counted
    }
}

impl<L: Borrow<Request>, const HELD: bool> Deref for Counted<L, HELD> {
    type Target = L;

    fn deref(&self) -> &L {
        &self.request
    }
}

#[cfg(feature = "metrics")]
impl<L: Borrow<Request>, const HELD: bool> Counted<L, HELD> {
    fn gauge(&self) -> metrics::Gauge {
        let name = if HELD { "lockmacro_held" } else { "lockmacro_waiting" };
        numbers::gauge(name, self.request.borrow().labels())
    }
}

#[cfg(feature = "metrics")]
impl<L: Borrow<Request>, const HELD: bool> Drop for Counted<L, HELD> {
    fn drop(&mut self) {
        self.gauge().decrement(1);
    }
}

/// Counts a caller that waits for an answer and keeps no gauge, and then that it waits no more.
pub(crate) fn waits(labels: Labels<'_>, is_more: bool) {
    numbers::waits(labels, is_more);
}

/// The span around the body of a lock.
pub(crate) fn span(labels: Labels<'_>, key: impl Display) -> tracing::Span {
    tracing::debug_span!("lock", name = %labels.name, template = labels.key.made_of(), %key)
}

pub(crate) fn acquired(labels: Labels<'_>, key: impl Display, asked: Moment) {
    let (name, template) = (labels.name, labels.key.made_of());
    let waited = asked.elapsed();
    tracing::debug!(%name, template, %key, ?waited, "lock acquired");
    numbers::asked(labels, "acquired", asked);
}

/// Reports a lock that was not acquired. `known`: the outage of its servers was logged already.
pub(crate) fn refused(
    labels: Labels<'_>,
    key: impl Display,
    error: &LockError,
    asked: Moment,
    known: bool,
) {
    let (name, template) = (labels.name, labels.key.made_of());
    let waited = asked.elapsed();
    if error.is_busy() {
        tracing::debug!(%name, template, %key, ?waited, %error, "lock busy");
        let timed_out = matches!(error, LockError::TimedOut { .. });
        numbers::asked(labels, if timed_out { "timed_out" } else { "busy" }, asked);
        return;
    }
    if known {
        tracing::debug!(%name, template, %key, ?waited, %error, "lock unavailable");
    } else if error.is_unavailable() {
        tracing::warn!(%name, template, %key, ?waited, %error, "lock unavailable");
    } else {
        tracing::warn!(%name, template, %key, ?waited, %error, "lock refused");
    }
    numbers::asked(labels, "error", asked);
}

pub(crate) fn renewed(labels: Labels<'_>, key: impl Display, answer: Result<bool, &LockError>) {
    let outcome = match answer {
        Ok(true) => {
            tracing::trace!(name = %labels.name, %key, "lock renewed");
            "renewed"
        }
        Ok(false) => "taken",
        Err(
            error @ (LockError::Unavailable { .. }
            | LockError::NoQuorum { .. }
            | LockError::InsufficientReplicas { .. }),
        ) => {
            tracing::debug!(name = %labels.name, %key, %error, "lock not renewed yet");
            "error"
        }
        // Another try would fail as well.
        Err(error) => {
            tracing::warn!(name = %labels.name, %key, %error, "lock not renewed");
            "error"
        }
    };
    numbers::count("lockmacro_renewals_total", labels, ("outcome", outcome));
}

pub(crate) fn lost(labels: Labels<'_>, lost: &Lost) {
    tracing::warn!(name = %labels.name, key = %lost.listed(), cause = %lost.cause(), "lock lost");
    numbers::count("lockmacro_lost_total", labels, ("cause", lost.cause().label()));
}

/// Reports a release of a lock that was lost before, when no renewal had found the loss.
pub(crate) fn released_late(labels: Labels<'_>, key: impl Display) {
    tracing::warn!(name = %labels.name, %key, "lock was taken away before its release");
    numbers::count("lockmacro_released_late_total", labels, ("cause", "taken"));
}

pub(crate) fn release_unconfirmed(
    labels: Labels<'_>,
    key: impl Display,
    error: &LockError,
    known: bool,
) {
    let name = labels.name;
    match known {
        true => tracing::debug!(%name, %key, %error, "lock is still being released"),
        false => tracing::warn!(%name, %key, %error, "lock is still being released"),
    }
}

/// Reports a lease that was not renewed for half of its time, with the rest of the lease.
pub(crate) fn half_unrenewed(
    labels: Labels<'_>,
    key: impl Display,
    left: Duration,
    error: &LockError,
) {
    let name = labels.name;
    tracing::warn!(%name, %key, ?left, %error, "lock not renewed for half of its time");
}

pub(crate) fn released(labels: Labels<'_>, since: Moment) {
    numbers::held(labels, since);
}

/// Reports an error that the return type of a function cannot carry.
pub(crate) fn unreported(name: &str, key: Option<Listed<'_>>, error: &LockError) {
    let key = key.map(tracing::field::display);
    tracing::error!(%name, key, %error, "lock failed in a function that cannot return an error");
    observer::unreported(error);
    numbers::unreported(name);
}

#[cfg(feature = "metrics")]
mod numbers {
    use metrics::{Gauge, counter, gauge as metric, histogram};

    use super::Labels;
    use crate::value::time::Moment;

    pub(crate) fn gauge(name: &'static str, labels: Labels<'_>) -> Gauge {
        metric!(name, "name" => labels.name.clone(), "template" => labels.key.shared_template())
    }

    pub(crate) fn waits(labels: Labels<'_>, is_more: bool) {
        let waiting = gauge("lockmacro_waiting", labels);
        if is_more { waiting.increment(1) } else { waiting.decrement(1) }
    }

    pub(crate) fn asked(labels: Labels<'_>, outcome: &'static str, asked: Moment) {
        count("lockmacro_acquisitions_total", labels, ("outcome", outcome));
        let (name, template) = (labels.name.clone(), labels.key.shared_template());
        histogram!("lockmacro_wait_seconds", "name" => name, "template" => template)
            .record(asked.elapsed());
    }

    pub(crate) fn held(labels: Labels<'_>, since: Moment) {
        let (name, template) = (labels.name.clone(), labels.key.shared_template());
        histogram!("lockmacro_hold_seconds", "name" => name, "template" => template)
            .record(since.elapsed());
    }

    pub(crate) fn count(
        counter: &'static str,
        labels: Labels<'_>,
        (label, value): (&'static str, &'static str),
    ) {
        let (name, template) = (labels.name.clone(), labels.key.shared_template());
        counter!(counter, "name" => name, "template" => template, label => value).increment(1);
    }

    pub(crate) fn unreported(name: &str) {
        counter!("lockmacro_unreported_total", "name" => name.to_owned()).increment(1);
    }
}

#[cfg(not(feature = "metrics"))]
mod numbers {
    use super::Labels;
    use crate::value::time::Moment;

    pub(crate) fn waits(_: Labels<'_>, _: bool) {}
    pub(crate) fn asked(_: Labels<'_>, _: &str, _: Moment) {}
    pub(crate) fn held(_: Labels<'_>, _: Moment) {}
    pub(crate) fn count(_: &str, _: Labels<'_>, _: (&str, &str)) {}
    pub(crate) fn unreported(_: &str) {}
}
