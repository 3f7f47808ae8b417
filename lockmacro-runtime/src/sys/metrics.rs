//! The metrics: how they are told to a recorder, their descriptions, and those that belong to no
//! request for a lock. The others are counted by `telemetry`. Without the feature `metrics` nothing
//! is done.

use std::borrow::Cow;

/// Tells a change of a metric with these labels to the recorder. Without the feature `metrics`
/// nothing is evaluated.
macro_rules! tell {
    ($kind:ident, $name:expr, $labels:expr, $change:ident($by:expr)) => {{
        #[cfg(feature = "metrics")]
        ::metrics::$kind!($name, &$labels).$change($by);
        #[cfg(not(feature = "metrics"))]
        let _ = || ($name, $labels, $by);
    }};
}
pub(crate) use tell;

/// Describes the metrics to the recorder. Each manager does so, as a recorder may be installed
/// after the first one was made.
#[cfg(feature = "metrics")]
pub(crate) fn describe() {
    use metrics::{Unit, describe_counter, describe_gauge, describe_histogram};

    for (name, text) in [
        ("lockmacro_acquisitions_total", "Requests for a lock, by outcome."),
        ("lockmacro_refusals_total", "Errors instead of a lock, by reason."),
        ("lockmacro_renewals_total", "Renewals of held locks, by outcome."),
        ("lockmacro_lost_total", "Locks that were lost while they were held, by cause."),
        ("lockmacro_released_late_total", "Releases that found the lock lost, by cause."),
        ("lockmacro_unreported_total", "Errors that a return type cannot carry."),
        ("lockmacro_jobs_total", "Jobs, by what became of them."),
    ] {
        describe_counter!(name, Unit::Count, text);
    }
    for (name, text) in [
        ("lockmacro_waiting", "Callers that wait for an answer."),
        ("lockmacro_held", "Locks that are held."),
        ("lockmacro_server_down", "Managers that get no answer from the lock server."),
    ] {
        describe_gauge!(name, Unit::Count, text);
    }
    for (name, text) in [
        ("lockmacro_wait_seconds", "Time from the request for a lock to the answer."),
        ("lockmacro_contended_wait_seconds", "The same while another caller had the lock."),
        ("lockmacro_hold_seconds", "Time from the request for a lock to its release."),
    ] {
        describe_histogram!(name, Unit::Seconds, text);
    }
}

/// Counts an error that a caller gets instead of the lock called `name`.
pub(crate) fn refused(name: Cow<'static, str>, reason: &'static str) {
    let labels = [("name", name), ("reason", reason.into())];
    tell!(counter, "lockmacro_refusals_total", labels, increment(1));
}

/// A recorder of metrics for tests.
#[cfg(all(test, feature = "metrics"))]
pub(crate) mod gauges {
    use std::sync::Arc;

    use metrics::{
        Counter, Gauge, GaugeFn, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit,
    };

    /// Calls a function with each change of a gauge.
    #[derive(Clone)]
    pub(crate) struct Gauges(Arc<dyn Fn(f64) + Send + Sync>);

    impl Gauges {
        pub(crate) fn new(changed: impl Fn(f64) + Send + Sync + 'static) -> Self {
            Self(Arc::new(changed))
        }
    }

    impl GaugeFn for Gauges {
        fn increment(&self, change: f64) {
            (self.0)(change);
        }

        fn decrement(&self, _: f64) {}
        fn set(&self, _: f64) {}
    }

    impl Recorder for Gauges {
        fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
        fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
        fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

        fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
            Counter::noop()
        }

        fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
            Gauge::from_arc(Arc::new(self.clone()))
        }

        fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
            Histogram::noop()
        }
    }
}
