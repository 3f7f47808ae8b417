//! The time of the engine's files, without real clocks.

pub(crate) use crate::engine::backoff;

pub(crate) mod random {
    pub(crate) fn fraction() -> f64 {
        fastrand::f64()
    }
}

pub(crate) mod time {
    use std::time::Duration;

    /// A moment on the clock of a process, since its start.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
    pub(crate) struct Moment(Duration);

    impl Moment {
        /// Later than all that happens.
        pub(crate) const NEVER: Self = Self(Duration::from_secs(1 << 40));

        pub(crate) fn at(since_start: Duration) -> Self {
            Self(since_start)
        }

        pub(crate) fn after(self, later: Duration) -> Self {
            Self(self.0.saturating_add(later))
        }

        /// The time from `earlier` to this moment; zero when that is not earlier.
        pub(crate) fn since(self, earlier: Self) -> Duration {
            self.0.saturating_sub(earlier.0)
        }

        pub(crate) fn micros(self) -> i128 {
            self.0.as_micros() as i128
        }
    }
}
