//! Telemetry of locks: `tracing` events, and with the feature `metrics` counters, gauges and
//! histograms.
//!
//! Metrics are labelled with the lock's name and the template of its key, never with the key: the
//! number of keys has no bound.

use std::borrow::{Borrow, Cow};
use std::time::Duration;

use crate::engine::observer;
use crate::protocol::ask::Ask;
use crate::sys::metrics::tell;
use crate::sys::time::{Moment, wall_clock};
use crate::value::error::LockError;
use crate::value::holder::{Holder, note_name};
use crate::value::key::Listed;
use crate::value::loss::{LossCause, Lost};

/// Counts one lock in a gauge until it is dropped. The gauge is part of the type, as every waiter
/// carries one and it has to be small.
#[derive(Debug)]
pub(crate) struct Counted<R: Borrow<Ask>, const HELD: bool>(R);

/// Counts a caller that waits for an answer.
pub(crate) type WaitingGauge<R> = Counted<R, false>;
/// Counts a held lock.
pub(crate) type HeldGauge<R> = Counted<R, true>;

impl<R: Borrow<Ask>, const HELD: bool> Counted<R, HELD> {
    const NAME: &str = if HELD { "lockmacro_held" } else { "lockmacro_waiting" };

    pub(crate) fn new(ask: R) -> Self {
        add(Self::NAME, ask.borrow(), 1.0);
        Self(ask)
    }
}

impl<R: Borrow<Ask>, const HELD: bool> Drop for Counted<R, HELD> {
    fn drop(&mut self) {
        add(Self::NAME, self.0.borrow(), -1.0);
    }
}

/// The span around the body of a lock.
pub(crate) fn span(ask: &Ask) -> tracing::Span {
    let (name, template, key) = shown(ask);
    tracing::debug_span!("lock", %name, template, %key)
}

/// Counts nothing yet of what alerts are about when a lock is asked for under its name for the
/// first time. A counter that would appear with its first event would not have increased by that.
pub(crate) fn asked_for(ask: &Ask) {
    if !note_name(&ask.name, ask.first_given().made_of()) {
        return;
    }
    for cause in [LossCause::Expired, LossCause::NotRenewed, LossCause::Taken] {
        count("lockmacro_lost_total", ask, "cause", cause.label(), 0);
    }
    count("lockmacro_released_late_total", ask, "cause", "taken", 0);
    count_unreported(&ask.name, 0);
}

/// Whom a caller has waited for that has its lock now: the outcome of its request, and the name of
/// the last holder that is known. `None` for a lock that was free.
pub(crate) type Behind = Option<(&'static str, Cow<'static, str>)>;

pub(crate) fn acquired(ask: &Ask, behind: Behind) {
    let (name, template, key) = shown(ask);
    tracing::debug!(%name, template, %key, waited = ?ask.asked.elapsed(), "lock acquired");
    asked(ask, behind.as_ref().map_or("acquired", |(outcome, _)| outcome));
    if let Some((_, holder)) = behind {
        waited_for(ask, || holder);
    }
}

/// Reports a caller that has waited long, with what is known of the holder: when it has asked for
/// the lock, the rest of its lease, and how long it usually holds the lock.
pub(crate) fn report_long_wait(
    ask: &Ask,
    holder: &Holder,
    usual: Option<Duration>,
    callers: usize,
) {
    let (name, template, key) = shown(ask);
    let waited = ask.asked.elapsed();
    let asked = holder.asked.and_then(|asked| wall_clock().duration_since(asked).ok());
    let [asked_ago, left, usual] =
        [asked, holder.free_within, usual].map(|time| time.map(tracing::field::debug));
    tracing::info!(
        %name, template, %key, ?waited, callers, %holder, asked_ago, left, usual,
        "long wait for a lock"
    );
}

/// Reports a lock that was not acquired. `known`: the outage of its servers was logged already.
pub(crate) fn refused(ask: &Ask, error: &LockError, known: bool) {
    let (name, template, key) = shown(ask);
    let waited = ask.asked.elapsed();
    if error.is_busy() {
        tracing::debug!(%name, template, %key, ?waited, %error, "lock busy");
        if let LockError::TimedOut { holder, .. } = error {
            waited_for(ask, || holder.function());
            return asked(ask, "timed_out");
        }
        return asked(ask, "busy");
    }
    if known {
        tracing::debug!(%name, template, %key, ?waited, %error, "lock unavailable");
    } else if matches!(error, LockError::Unavailable { .. }) {
        tracing::warn!(%name, template, %key, ?waited, %error, "lock unavailable");
    } else {
        tracing::warn!(%name, template, %key, ?waited, %error, "lock refused");
    }
    asked(ask, "error");
}

fn asked(ask: &Ask, outcome: &'static str) {
    count("lockmacro_acquisitions_total", ask, "outcome", outcome, 1);
    record("lockmacro_wait_seconds", ask, ask.asked);
}

pub(crate) fn renewed(ask: &Ask, answer: Result<bool, &LockError>) {
    let (name, _, key) = shown(ask);
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
    count("lockmacro_renewals_total", ask, "outcome", outcome, 1);
}

pub(crate) fn lost(ask: &Ask, lost: &Lost) {
    let (name, _, key) = shown(ask);
    tracing::warn!(%name, %key, cause = %lost.cause(), "lock lost");
    count("lockmacro_lost_total", ask, "cause", lost.cause().label(), 1);
}

/// Reports a release of a lock that was lost before, when no renewal had found the loss.
pub(crate) fn released_late(ask: &Ask) {
    let (name, _, key) = shown(ask);
    tracing::warn!(%name, %key, "lock was taken away before its release");
    count("lockmacro_released_late_total", ask, "cause", "taken", 1);
}

/// Reports a release without an answer. `known`: the outage of its servers was logged already.
pub(crate) fn release_unconfirmed(ask: &Ask, error: &LockError, known: bool) {
    let (name, _, key) = shown(ask);
    if known {
        tracing::debug!(%name, %key, %error, "lock is still being released")
    } else {
        tracing::warn!(%name, %key, %error, "lock is still being released")
    }
}

/// Reports a lease that was not renewed for half of its time, with the rest of the lease.
pub(crate) fn half_unrenewed(ask: &Ask, left: Duration, error: &LockError) {
    let (name, _, key) = shown(ask);
    tracing::warn!(%name, %key, ?left, %error, "lock not renewed for half of its time");
}

/// Reports the end of a lock that was held since `since`.
pub(crate) fn released(ask: &Ask, since: Moment) {
    record("lockmacro_hold_seconds", ask, since);
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
fn shown(ask: &Ask) -> (&str, &str, Listed<'_>) {
    (&ask.name, ask.first_given().made_of(), ask.listed())
}

/// The labels of a lock.
fn labels(ask: &Ask) -> [(&'static str, Cow<'static, str>); 2] {
    [("name", ask.name.clone()), ("template", ask.first_given().shared_template())]
}

/// The labels of a lock, and another one.
fn labels_and(
    ask: &Ask,
    label: &'static str,
    value: impl Into<Cow<'static, str>>,
) -> [(&'static str, Cow<'static, str>); 3] {
    let [name, template] = labels(ask);
    [name, template, (label, value.into())]
}

fn add(gauge: &'static str, ask: &Ask, change: f64) {
    tell!(gauge, gauge, labels(ask), increment(change));
}

/// Records the time since `since`.
fn record(histogram: &'static str, ask: &Ask, since: Moment) {
    tell!(histogram, histogram, labels(ask), record(since.elapsed()));
}

fn count(counter: &'static str, ask: &Ask, label: &'static str, value: &'static str, by: u64) {
    tell!(counter, counter, labels_and(ask, label, value), increment(by));
}

/// Records how long a caller has waited for the holder with this name.
fn waited_for(ask: &Ask, holder: impl FnOnce() -> Cow<'static, str>) {
    const NAME: &str = "lockmacro_contended_wait_seconds";
    let asked = ask.asked;
    tell!(histogram, NAME, labels_and(ask, "holder", holder()), record(asked.elapsed()));
}
