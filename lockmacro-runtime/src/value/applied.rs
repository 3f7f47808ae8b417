//! Whether a request was applied, where that may be unknown.

/// Whether a request was applied, or any of several with the same token. The least known is the
/// largest.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Applied {
    /// It was not applied, and cannot be any more. Also for a request that was never sent.
    #[default]
    No,
    /// It was applied, and cannot be once more.
    Yes,
    /// It has no answer: it may have been applied, or may be later.
    Unknown,
}

impl Applied {
    /// The same for two requests together: unknown if it is unknown for either of them.
    pub(crate) fn and(self, other: Self) -> Self {
        self.max(other)
    }

    /// Whether no request is left that may still arrive.
    pub(crate) fn is_known(self) -> bool {
        self != Self::Unknown
    }

    /// Whether there may be something to release, now or later.
    pub(crate) fn may_be(self) -> bool {
        self != Self::No
    }
}

#[cfg(test)]
mod tests {
    use super::Applied::{No, Unknown, Yes};
    use super::*;

    #[test]
    fn of_two_requests_the_less_known_one_counts() {
        for (one, other, both) in [
            (No, No, No),
            (No, Yes, Yes),
            (Yes, Yes, Yes),
            (No, Unknown, Unknown),
            (Yes, Unknown, Unknown),
            (Unknown, Unknown, Unknown),
        ] {
            assert_eq!((one.and(other), other.and(one)), (both, both), "{one:?} {other:?}");
        }
    }

    #[test]
    fn only_a_request_that_is_known_not_to_be_applied_leaves_nothing_to_release() {
        assert_eq!([No, Yes, Unknown].map(Applied::may_be), [false, true, true]);
        assert_eq!([No, Yes, Unknown].map(Applied::is_known), [true, true, false]);
    }
}
