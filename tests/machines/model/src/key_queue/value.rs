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

pub(crate) mod loss {
    /// The cause of a loss.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) enum LossCause {
        Expired,
        NotRenewed,
        Taken,
        Released,
    }
}

pub(crate) mod limits {
    use std::time::Duration;

    #[cfg(test)]
    pub(crate) const TTL_MIN: Duration = Duration::from_millis(50);
    #[cfg(test)]
    pub(crate) const TTL_MAX: Duration = Duration::from_secs(24 * 60 * 60);
    pub(crate) const CONFIRM_WINDOW: Duration = Duration::from_secs(5);
}
