//! Telemetry of locks: `tracing` events, and with the feature `metrics` counters, gauges and
//! histograms.
//!
//! Metrics are labelled with the lock's name and the template of its key, never with the key: the
//! number of keys has no bound.

use std::borrow::{Borrow, Cow};
use std::time::Duration;

use crate::engine::observer;
use crate::protocol::request::Request;
use crate::sys::metrics::tell;
use crate::sys::time::{Moment, wall_clock};
use crate::value::error::LockError;
use crate::value::holder::{Holder, note_name};
use crate::value::key::Listed;
use crate::value::loss::{LossCause, Lost};

/// Counts one lock in a gauge until it is dropped. The gauge is part of the type, as every waiter
/// carries one and it has to be small.
#[derive(Debug)]
pub(crate) struct Counted<R: Borrow<Request>, const HELD: bool>(R);

/// Counts a caller that waits for an answer.
pub(crate) type WaitingGauge<R> = Counted<R, false>;
/// Counts a held lock.
pub(crate) type HeldGauge<R> = Counted<R, true>;

impl<R: Borrow<Request>, const HELD: bool> Counted<R, HELD> {
    const NAME: &str = if HELD { "lockmacro_held" } else { "lockmacro_waiting" };

    pub(crate) fn new(request: R) -> Self {
        add(Self::NAME, request.borrow(), 1.0);
        Self(request)
    }
}

impl<R: Borrow<Request>, const HELD: bool> Drop for Counted<R, HELD> {
    fn drop(&mut self) {
        add(Self::NAME, self.0.borrow(), -1.0);
    }
}

/// The span around the body of a lock.
pub(crate) fn span(request: &Request) -> tracing::Span {
    let (name, template, key) = shown(request);
    tracing::debug_span!("lock", %name, template, %key)
}

/// Counts nothing yet of what alerts are about when a lock is asked for under its name for the
/// first time. A counter that would appear with its first event would not have increased by that.
pub(crate) fn asked_for(request: &Request) {
    if !note_name(&request.name, request.first_given().made_of()) {
        return;
    }
    for cause in [LossCause::Expired, LossCause::NotRenewed, LossCause::Taken] {
        count("lockmacro_lost_total", request, "cause", cause.label(), 0);
    }
    count("lockmacro_released_late_total", request, "cause", "taken", 0);
    count_unreported(&request.name, 0);
}

/// Whom a caller has waited for that has its lock now: the outcome of its request, and the name of
/// the last holder that is known. `None` for a lock that was free.
pub(crate) type Behind = Option<(&'static str, Cow<'static, str>)>;

pub(crate) fn acquired(request: &Request, behind: Behind) {
    let (name, template, key) = shown(request);
    tracing::debug!(%name, template, %key, waited = ?request.asked.elapsed(), "lock acquired");
    asked(request, behind.as_ref().map_or("acquired", |(outcome, _)| outcome));
    if let Some((_, holder)) = behind {
        waited_for(request, || holder);
    }
}

/// Reports a caller that has waited long, with what is known of the holder: when it has asked for
/// the lock, the rest of its lease, and how long it usually holds the lock.
pub(crate) fn report_long_wait(
    request: &Request,
    holder: &Holder,
    usual: Option<Duration>,
    callers: usize,
) {
    let (name, template, key) = shown(request);
    let waited = request.asked.elapsed();
    let asked = holder.asked.and_then(|asked| wall_clock().duration_since(asked).ok());
    let [asked_ago, left, usual] =
        [asked, holder.free_within, usual].map(|time| time.map(tracing::field::debug));
    tracing::info!(
        %name, template, %key, ?waited, callers, %holder, asked_ago, left, usual,
        "long wait for a lock"
    );
}

/// Reports a lock that was not acquired. `known`: the outage of its servers was logged already.
pub(crate) fn refused(request: &Request, error: &LockError, known: bool) {
    let (name, template, key) = shown(request);
    let waited = request.asked.elapsed();
    if error.is_busy() {
        tracing::debug!(%name, template, %key, ?waited, %error, "lock busy");
        if let LockError::TimedOut { holder, .. } = error {
            waited_for(request, || holder.function());
            return asked(request, "timed_out");
        }
        return asked(request, "busy");
    }
    if known {
        tracing::debug!(%name, template, %key, ?waited, %error, "lock unavailable");
    } else if matches!(error, LockError::Unavailable { .. }) {
        tracing::warn!(%name, template, %key, ?waited, %error, "lock unavailable");
    } else {
        tracing::warn!(%name, template, %key, ?waited, %error, "lock refused");
    }
    asked(request, "error");
}

fn asked(request: &Request, outcome: &'static str) {
    count("lockmacro_acquisitions_total", request, "outcome", outcome, 1);
    record("lockmacro_wait_seconds", request, request.asked);
}

pub(crate) fn renewed(request: &Request, answer: Result<bool, &LockError>) {
    let (name, _, key) = shown(request);
    let outcome = match answer {
        Ok(true) => {
            tracing::trace!(%name, %key, "lock renewed");
            "renewed"
        }
        Ok(false) => "taken",
        Err(error @ LockError::Unavailable { .. }) => {
            tracing::debug!(%name, %key, %error, "lock not renewed yet");
            "error"
        }
        // Another try would fail as well.
        Err(error) => {
            tracing::warn!(%name, %key, %error, "lock not renewed");
            "error"
        }
    };
    count("lockmacro_renewals_total", request, "outcome", outcome, 1);
}

pub(crate) fn lost(request: &Request, lost: &Lost) {
    let (name, _, key) = shown(request);
    tracing::warn!(%name, %key, cause = %lost.cause(), "lock lost");
    count("lockmacro_lost_total", request, "cause", lost.cause().label(), 1);
}

/// Reports a release of a lock that was lost before, when no renewal had found the loss.
pub(crate) fn released_late(request: &Request) {
    let (name, _, key) = shown(request);
    tracing::warn!(%name, %key, "lock was taken away before its release");
    count("lockmacro_released_late_total", request, "cause", "taken", 1);
}

/// Reports a release without an answer. `known`: the outage of its servers was logged already.
pub(crate) fn release_unconfirmed(request: &Request, error: &LockError, known: bool) {
    let (name, _, key) = shown(request);
    if known {
        tracing::debug!(%name, %key, %error, "lock is still being released")
    } else {
        tracing::warn!(%name, %key, %error, "lock is still being released")
    }
}

/// Reports a lease that was not renewed for half of its time, with the rest of the lease.
pub(crate) fn half_unrenewed(request: &Request, left: Duration, error: &LockError) {
    let (name, _, key) = shown(request);
    tracing::warn!(%name, %key, ?left, %error, "lock not renewed for half of its time");
}

/// Reports the end of a lock that was held since `since`.
pub(crate) fn released(request: &Request, since: Moment) {
    record("lockmacro_hold_seconds", request, since);
}

/// Reports an error that the return type of a function cannot carry.
pub(crate) fn unreported(name: &str, key: Option<Listed<'_>>, error: &LockError) {
    let key = key.map(tracing::field::display);
    tracing::error!(%name, key, %error, "lock failed in a function that cannot return an error");
    observer::observe(error, true);
    count_unreported(name, 1);
}

fn count_unreported(name: &str, by: u64) {
    tell!(counter, "lockmacro_unreported_total", [("name", name.to_owned())], increment(by));
}

/// The name, template and keys of a lock in the log.
fn shown(request: &Request) -> (&str, &str, Listed<'_>) {
    (&request.name, request.first_given().made_of(), request.listed())
}

/// The labels of a lock.
fn labels(request: &Request) -> [(&'static str, Cow<'static, str>); 2] {
    [("name", request.name.clone()), ("template", request.first_given().shared_template())]
}

/// The labels of a lock, and another one.
fn labels_and(
    request: &Request,
    label: &'static str,
    value: impl Into<Cow<'static, str>>,
) -> [(&'static str, Cow<'static, str>); 3] {
    let [name, template] = labels(request);
    [name, template, (label, value.into())]
}

fn add(gauge: &'static str, request: &Request, change: f64) {
    tell!(gauge, gauge, labels(request), increment(change));
}

/// Records the time since `since`.
fn record(histogram: &'static str, request: &Request, since: Moment) {
    tell!(histogram, histogram, labels(request), record(since.elapsed()));
}

fn count(
    counter: &'static str,
    request: &Request,
    label: &'static str,
    value: &'static str,
    by: u64,
) {
    tell!(counter, counter, labels_and(request, label, value), increment(by));
}

/// Records how long a caller has waited for the holder with this name.
fn waited_for(request: &Request, holder: impl FnOnce() -> Cow<'static, str>) {
    const NAME: &str = "lockmacro_contended_wait_seconds";
    let asked = request.asked;
    tell!(histogram, NAME, labels_and(request, "holder", holder()), record(asked.elapsed()));
}
