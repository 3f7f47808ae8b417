//! What the key queue uses of the runtime's values, without real clocks.

/// The fences of a grant.
pub(crate) mod fence {
    /// Numbers that no holder has had, in order.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) struct FenceBlock {
        first: u64,
        last: u64,
    }

    impl FenceBlock {
        pub(crate) fn new(first: u64, last: u64) -> Self {
            Self { first, last }
        }

        pub(crate) fn first(self) -> u64 {
            self.first
        }

        /// The numbers after the first.
        pub(crate) fn rest(self) -> Option<Self> {
            let first = self.first + 1;
            (first <= self.last).then_some(Self { first, ..self })
        }
    }
}

pub(crate) mod limits {
    use std::time::Duration;

    pub(crate) const CONFIRM_WINDOW: Duration = Duration::from_secs(5);
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

        pub(crate) fn micros(self) -> u128 {
            self.0.as_micros()
        }
    }
}
