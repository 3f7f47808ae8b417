//! What a store of one's own can do.

use std::time::Duration;

use crate::value::limits::{TTL_MAX, TTL_MIN};

/// What a store can do: see [`LockStore::limits`](super::LockStore::limits).
///
/// The engine refuses a lock that needs more with
/// [`LockError::InvalidSetting`](crate::LockError::InvalidSetting), which names the setting and the
/// store.
///
/// ```
/// # use std::time::Duration;
/// use lockmacro_runtime::store::StoreLimits;
///
/// const SECOND: Duration = Duration::from_secs(1);
/// let limits = StoreLimits::default().fences().shortest_ttl(SECOND).granularity(SECOND);
/// # let _ = limits;
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct StoreLimits {
    pub(crate) has_fences: bool,
    pub(crate) shortest_ttl: Duration,
    pub(crate) longest_ttl: Duration,
    pub(crate) granularity: Duration,
    pub(crate) longest_pause: Duration,
}

impl Default for StoreLimits {
    /// No fences, a ttl of 50 ms to a day in whole milliseconds, and a pause of at most 100 ms.
    fn default() -> Self {
        Self {
            has_fences: false,
            shortest_ttl: TTL_MIN,
            longest_ttl: TTL_MAX,
            granularity: Duration::from_millis(1),
            longest_pause: Duration::from_millis(100),
        }
    }
}

impl StoreLimits {
    /// A grant comes with a fence if the request wants one.
    pub fn fences(mut self) -> Self {
        self.has_fences = true;
        self
    }

    /// The shortest ttl that a lock may have, by default 50 ms, which is also the least.
    pub fn shortest_ttl(mut self, ttl: Duration) -> Self {
        self.shortest_ttl = ttl.max(TTL_MIN);
        self
    }

    /// The longest ttl that a lock may have, by default a day, which is also the most. It counts in
    /// whole units of the store, rounded down.
    pub fn longest_ttl(mut self, ttl: Duration) -> Self {
        self.longest_ttl = ttl.min(TTL_MAX);
        self
    }

    /// The unit in which the store counts a ttl, by default a millisecond. The engine rounds every
    /// ttl and every `keep` up to a multiple of it. The lease of a holder is as long as was asked,
    /// and the store keeps the key a little longer.
    pub fn granularity(mut self, unit: Duration) -> Self {
        self.granularity = unit.max(Duration::from_millis(1));
        self
    }

    /// The longest pause of a waiter between two requests, by default 100 ms. The pauses begin with
    /// 25 ms and grow. A store whose [`freed`](super::LockStore::freed) is reliable can spare
    /// requests by a longer one.
    pub fn longest_pause(mut self, pause: Duration) -> Self {
        self.longest_pause = pause;
        self
    }

    /// A time in whole units of the store, rounded up.
    pub(crate) fn rounded(&self, time: Duration) -> Duration {
        let unit = self.granularity.as_nanos();
        let units = time.as_nanos().div_ceil(unit);
        Duration::from_nanos(u64::try_from(units * unit).unwrap_or(u64::MAX))
    }

    /// The longest ttl in whole units of the store. Rounded down, so that no ttl of a lock is
    /// rounded up beyond what the store can keep.
    pub(crate) fn longest_usable(&self) -> Duration {
        let unit = self.granularity.as_nanos();
        let units = self.longest_ttl.as_nanos() / unit;
        Duration::from_nanos(u64::try_from(units * unit).unwrap_or(u64::MAX))
    }

    /// The ttl that the store is asked for. It is never shorter than a `ttl` that the store permits.
    pub(crate) fn usable(&self, ttl: Duration) -> Duration {
        self.rounded(ttl.max(self.shortest_ttl)).min(self.longest_usable())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_rounded_up_to_the_unit_of_the_store() {
        let second = Duration::from_secs(1);
        let limits = StoreLimits::default().granularity(second).shortest_ttl(2 * second);
        assert_eq!(limits.usable(second), 2 * second);
        assert_eq!(limits.usable(Duration::from_millis(2_001)), 3 * second);
        assert_eq!(limits.rounded(Duration::from_millis(1)), second);
        assert_eq!(limits.rounded(Duration::ZERO), Duration::ZERO);
        assert_eq!(StoreLimits::default().usable(3 * second), 3 * second);
    }

    #[test]
    fn no_ttl_is_rounded_up_beyond_the_longest() {
        let second = Duration::from_secs(1);
        let limits = StoreLimits::default().granularity(second).longest_ttl(second * 19 / 2);
        assert_eq!(limits.longest_usable(), 9 * second);
        assert_eq!(limits.usable(second * 17 / 2), 9 * second);
        assert_eq!(limits.usable(10 * second), 9 * second);
    }
}
