//! The mode of a lock: which holders its key has at the same time.

/// Most permits of one key.
pub(crate) const PERMITS_MAX: u32 = 10_000;

/// Which other holders a key may have beside the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Mode {
    /// Nobody.
    #[default]
    Exclusive,
    /// Any number of holders that are not exclusive.
    Shared,
    /// Holders that are not exclusive, fewer than this number. At least 2.
    Permits(u32),
}

impl Mode {
    /// The mode of a caller that lets `permits` hold the key at once, itself included.
    pub(crate) const fn of_permits(permits: u32) -> Self {
        if permits == 1 { Mode::Exclusive } else { Mode::Permits(permits) }
    }

    pub(crate) fn is_exclusive(self) -> bool {
        self == Mode::Exclusive
    }

    /// The number of permits, if the key has one.
    pub(crate) fn permits(self) -> Option<u32> {
        match self {
            Mode::Permits(permits) => Some(permits),
            Mode::Exclusive | Mode::Shared => None,
        }
    }

    /// The number of holders at which a caller has to wait, as the scripts take it; 0 for none.
    pub(crate) fn limit(self) -> u32 {
        match self {
            Mode::Exclusive => 1,
            Mode::Shared => 0,
            Mode::Permits(permits) => permits,
        }
    }

    /// Whether a caller of this mode may hold the key beside `holders` that are not exclusive.
    pub(crate) fn admits(self, holders: usize) -> bool {
        self == Mode::Shared || holders < usize::try_from(self.limit()).unwrap_or(usize::MAX)
    }

    /// Whether a body that holds the key in this mode may do what `inner` needs.
    pub(crate) fn covers(self, inner: Self) -> bool {
        self.is_exclusive() || !inner.is_exclusive()
    }

    /// The stricter of two modes: a key that is named twice is locked once.
    pub(crate) fn stricter(self, other: Self) -> Self {
        match (self, other) {
            (Mode::Exclusive, _) | (_, Mode::Exclusive) => Mode::Exclusive,
            (Mode::Permits(one), Mode::Permits(other)) => Mode::Permits(one.min(other)),
            (Mode::Shared, other) | (other, Mode::Shared) => other,
        }
    }

    /// Why the mode cannot be asked for, with the fix.
    pub(crate) fn fault(self) -> Option<String> {
        match self {
            Mode::Permits(0) => Some(format!("0 would let nobody in: name 1 to {PERMITS_MAX}")),
            Mode::Permits(permits) if permits > PERMITS_MAX => {
                Some(format!("{permits} is too large: name 1 to {PERMITS_MAX}, or use `shared`"))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_permit_is_an_exclusive_lock() {
        assert_eq!(Mode::of_permits(1), Mode::Exclusive);
        assert!(Mode::of_permits(1).admits(0) && !Mode::of_permits(1).admits(1));
    }

    #[test]
    fn a_holder_enters_beside_fewer_than_its_own_number() {
        assert!(Mode::Permits(3).admits(2) && !Mode::Permits(3).admits(3));
        assert!(Mode::Shared.admits(usize::MAX));
    }

    #[test]
    fn a_key_that_is_named_twice_has_the_stricter_mode() {
        let [three, five] = [3, 5].map(Mode::Permits);
        assert_eq!(three.stricter(five), three);
        for mode in [Mode::Shared, three, Mode::Exclusive] {
            assert_eq!(mode.stricter(Mode::Shared), mode);
            assert_eq!(Mode::Shared.stricter(mode), mode);
            assert_eq!(mode.stricter(Mode::Exclusive), Mode::Exclusive);
        }
    }

    #[test]
    fn only_an_exclusive_holder_covers_an_exclusive_caller() {
        let all = [Mode::Exclusive, Mode::Shared, Mode::Permits(2)];
        for (outer, covered) in
            all.into_iter().zip([[true; 3], [false, true, true], [false, true, true]])
        {
            assert_eq!(all.map(|inner| outer.covers(inner)), covered, "inside of {outer:?}");
        }
    }

    #[test]
    fn a_number_of_permits_has_bounds() {
        for (permits, is_fine) in [(0, false), (1, true), (PERMITS_MAX, true), (10_001, false)] {
            assert_eq!(Mode::of_permits(permits).fault().is_none(), is_fine, "{permits}");
        }
    }
}
