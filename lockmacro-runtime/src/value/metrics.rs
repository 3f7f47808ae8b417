//! The metrics: a table of all, and those that belong to no request for a lock. The others are
//! counted by `telemetry`. Without the feature `metrics` nothing is done.

use std::borrow::Cow;
#[cfg(feature = "defer")]
use std::sync::Arc;

#[cfg(feature = "metrics")]
use metrics::Unit;

use crate::value::error::LockError;

#[cfg(feature = "metrics")]
enum Kind {
    Counter,
    Gauge,
    /// Of seconds.
    Histogram,
}
#[cfg(feature = "metrics")]
use Kind::{Counter, Gauge, Histogram};

/// All metrics, and the sentence that a recorder shows.
#[cfg(feature = "metrics")]
const TABLE: [(Kind, &str, &str); 13] = [
    (Counter, "lockmacro_acquisitions_total", "Requests for a lock, by outcome."),
    (Counter, "lockmacro_refusals_total", "Errors instead of a lock, by reason."),
    (Histogram, "lockmacro_wait_seconds", "Time from the request for a lock to the answer."),
    (Histogram, "lockmacro_contended_wait_seconds", "The same while another caller had the lock."),
    (Histogram, "lockmacro_hold_seconds", "Time from the request for a lock to its release."),
    (Gauge, "lockmacro_waiting", "Callers that wait for an answer."),
    (Gauge, "lockmacro_held", "Locks that are held."),
    (Counter, "lockmacro_renewals_total", "Renewals of held locks, by outcome."),
    (Counter, "lockmacro_lost_total", "Locks that were lost while they were held, by cause."),
    (Counter, "lockmacro_released_late_total", "Releases that found the lock lost, by cause."),
    (Counter, "lockmacro_unreported_total", "Errors that a return type cannot carry."),
    (Counter, "lockmacro_deferred_calls_total", "Deferred calls, by what became of them."),
    (Gauge, "lockmacro_server_up", "1 while the lock server answers, 0 while it is lost."),
];

/// Describes the metrics to the recorder. Each manager does so, as a recorder may be installed
/// after the first one was made.
#[cfg(feature = "metrics")]
pub(crate) fn describe() {
    for (kind, name, text) in TABLE {
        match kind {
            Counter => metrics::describe_counter!(name, Unit::Count, text),
            Gauge => metrics::describe_gauge!(name, Unit::Count, text),
            Histogram => metrics::describe_histogram!(name, Unit::Seconds, text),
        }
    }
}

/// Counts an error that the return type of a function cannot carry.
#[cfg(feature = "metrics")]
pub(crate) fn unreported(name: &str) {
    metrics::counter!("lockmacro_unreported_total", "name" => name.to_owned()).increment(1);
}

/// Counts an error that a caller gets instead of the lock called `name`.
#[cfg(feature = "metrics")]
pub(crate) fn refused(name: Cow<'static, str>, error: &LockError) {
    let labels = [("name", name), ("reason", reason(error).into())];
    metrics::counter!("lockmacro_refusals_total", &labels).increment(1);
}

/// The kind of an error, in one word.
#[cfg(feature = "metrics")]
fn reason(error: &LockError) -> &'static str {
    match error {
        LockError::Busy { .. } => "busy",
        LockError::TimedOut { .. } => "timed_out",
        LockError::QueueFull { .. } => "queue_full",
        #[cfg(feature = "defer")]
        LockError::Deferred { .. } => "deferred",
        LockError::Lost(_) => "lost",
        LockError::Unavailable { .. } => "unavailable",
        LockError::KeyNotALock { .. } => "key_not_a_lock",
        LockError::AccessDenied { .. } => "access_denied",
        LockError::Authentication { .. } => "authentication",
        #[cfg(feature = "reuse")]
        LockError::ReusedKey { .. } => "reused_key",
        LockError::InvalidKey { .. } => "invalid_key",
        LockError::InvalidSetting { .. } => "invalid_setting",
        LockError::NotInstalled => "not_installed",
        LockError::NoRuntime { .. } => "no_runtime",
        LockError::ShutDown { .. } => "shut_down",
    }
}

/// Counts what became of a call of a deferred function.
#[cfg(all(feature = "metrics", feature = "defer"))]
pub(crate) fn deferred(name: &Arc<str>, event: &'static str) {
    let name = metrics::SharedString::from(Arc::clone(name));
    metrics::counter!("lockmacro_deferred_calls_total", "name" => name, "event" => event)
        .increment(1);
}

/// Notes whether a server answers: 1 or 0, or NaN for one that is not used any more.
#[cfg(feature = "metrics")]
pub(crate) fn server_up(server: impl FnOnce() -> String, up: f64) {
    metrics::gauge!("lockmacro_server_up", "server" => server()).set(up);
}

#[cfg(not(feature = "metrics"))]
pub(crate) fn refused(_: Cow<'static, str>, _: &LockError) {}
#[cfg(all(not(feature = "metrics"), feature = "defer"))]
pub(crate) fn deferred(_: &Arc<str>, _: &'static str) {}
#[cfg(not(feature = "metrics"))]
pub(crate) fn server_up(_: impl FnOnce() -> String, _: f64) {}
#[cfg(not(feature = "metrics"))]
pub(crate) fn describe() {}
#[cfg(not(feature = "metrics"))]
pub(crate) fn unreported(_: &str) {}
