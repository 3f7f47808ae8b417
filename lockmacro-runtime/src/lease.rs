//! The arithmetic of a lease: what a client may believe, and for how long. No I/O.
//!
//! A server counts a ttl from the moment at which it ran the command. The client cannot know that
//! moment, only that it came after the command was sent, so it counts from before sending, and
//! takes off what the two clocks may drift apart meanwhile: then its lease always ends before the
//! server's. The allowance is the one of the Redlock description, 1 % of the ttl and 2 ms.

use std::fmt;
use std::time::Duration;

use crate::error::LockError;

/// Shortest ttl: below it a lease is over before a busy machine has begun the body.
pub(crate) const TTL_MIN: Duration = Duration::from_millis(50);
/// Longest ttl.
pub(crate) const TTL_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// The ttl of a lock that was given none.
pub(crate) const TTL_DEFAULT: Duration = Duration::from_secs(30);

/// A moment on a clock that goes on while the machine sleeps, as the server's does.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(Duration);

impl Moment {
    /// The present. Linux' `CLOCK_BOOTTIME` goes on during suspend; macOS' `CLOCK_MONOTONIC` does
    /// so by itself.
    #[cfg(unix)]
    pub(crate) fn now() -> Self {
        use rustix::time::{ClockId, clock_gettime};
        #[cfg(any(target_os = "linux", target_os = "android"))]
        let clock = ClockId::Boottime;
        #[cfg(not(any(target_os = "linux", target_os = "android")))]
        let clock = ClockId::Monotonic;
        let time = clock_gettime(clock);
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
        let nanos = u32::try_from(time.tv_nsec).unwrap_or(0);
        Self(Duration::new(seconds, nanos))
    }

    /// The moment `later` than this one.
    pub(crate) fn after(self, later: Duration) -> Self {
        Self(self.0.saturating_add(later))
    }

    /// How long it is from `earlier` to this moment; zero when that is not earlier.
    pub(crate) fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl fmt::Debug for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} after boot", self.0)
    }
}

/// Until when a lock may be believed to be held.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lease {
    ends: Moment,
}

impl Lease {
    /// The lease of `ttl` that a command sent at `sent` brought.
    pub(crate) fn new(sent: Moment, ttl: Duration) -> Self {
        Self { ends: sent.after(ttl.saturating_sub(drift(ttl))) }
    }

    /// What is left of it; zero when it is over.
    pub(crate) fn remaining(self, now: Moment) -> Duration {
        self.ends.since(now)
    }

    /// Whether somebody else may hold the lock.
    pub(crate) fn is_over(self, now: Moment) -> bool {
        now >= self.ends
    }
}

fn drift(ttl: Duration) -> Duration {
    ttl / 100 + Duration::from_millis(2)
}

/// A ttl the server can count (whole milliseconds), or the error that says why not.
pub(crate) fn check_ttl(ttl: Duration) -> Result<Duration, LockError> {
    if (TTL_MIN..=TTL_MAX).contains(&ttl) {
        Ok(ttl - Duration::from_nanos(u64::from(ttl.subsec_nanos() % 1_000_000)))
    } else {
        Err(LockError::InvalidTtl { ttl })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(ms: u64) -> Moment {
        Moment(Duration::from_millis(ms))
    }

    #[test]
    fn a_lease_is_counted_from_before_sending_less_the_drift() {
        let lease = Lease::new(at(1_000), Duration::from_secs(10));
        assert_eq!(lease.remaining(at(1_000)), Duration::from_millis(9_898));
        assert!(!lease.is_over(at(10_897)));
        assert!(lease.is_over(at(10_898)));
        assert_eq!(lease.remaining(at(20_000)), Duration::ZERO);
    }

    #[test]
    fn a_ttl_is_whole_milliseconds_within_its_bounds() {
        let just_over = Duration::from_micros(50_999);
        assert_eq!(check_ttl(just_over), Ok(TTL_MIN));
        assert_eq!(check_ttl(TTL_MAX), Ok(TTL_MAX));
        for ttl in
            [Duration::ZERO, Duration::from_micros(49_999), TTL_MAX + Duration::from_nanos(1)]
        {
            assert_eq!(check_ttl(ttl), Err(LockError::InvalidTtl { ttl }));
        }
    }

    proptest! {
        /// The server runs the command at any time after it was sent, on a clock that is up to
        /// 0.5 % faster or slower: its key outlives the client's lease.
        #[test]
        fn the_server_outlives_the_lease(
            ttl_ms in 50_u64..86_400_000,
            delay_us in 0_u64..10_000_000,
            rate_ppm in -5_000_i64..=5_000,
        ) {
            let lease = Lease::new(at(0), Duration::from_millis(ttl_ms));
            let ttl_us = i128::from(ttl_ms) * 1_000;
            let expires_us = i128::from(delay_us) + ttl_us * 1_000_000 / i128::from(1_000_000 + rate_ppm);
            prop_assert!((lease.ends.0.as_micros() as i128) < expires_us);
        }
    }
}
