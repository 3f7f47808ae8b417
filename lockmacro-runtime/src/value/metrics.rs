//! The metrics: a table of all, and those that belong to no request for a lock. The others are
//! counted by `telemetry`. Without the feature `metrics` nothing is done.

#[cfg(feature = "metrics")]
use metrics::Unit;

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
const TABLE: [(Kind, &str, &str); 10] = [
    (Counter, "lockmacro_acquisitions_total", "Requests for a lock, by outcome."),
    (Histogram, "lockmacro_wait_seconds", "Time from the request for a lock to the answer."),
    (Histogram, "lockmacro_contended_wait_seconds", "The same while another caller had the lock."),
    (Histogram, "lockmacro_hold_seconds", "Time from the request for a lock to its release."),
    (Gauge, "lockmacro_waiting", "Callers that wait for an answer."),
    (Gauge, "lockmacro_held", "Locks that are held."),
    (Counter, "lockmacro_renewals_total", "Renewals of held locks, by outcome."),
    (Counter, "lockmacro_lost_total", "Locks that were lost while they were held, by cause."),
    (Counter, "lockmacro_released_late_total", "Releases that found the lock lost, by cause."),
    (Counter, "lockmacro_unreported_total", "Errors that a return type cannot carry."),
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

#[cfg(not(feature = "metrics"))]
pub(crate) fn describe() {}
#[cfg(not(feature = "metrics"))]
pub(crate) fn unreported(_: &str) {}
