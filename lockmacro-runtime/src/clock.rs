//! The clock on which leases are counted.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A moment on a clock that goes on while the machine sleeps, as the server's does.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(Duration);

impl Moment {
    /// The present. Linux' `CLOCK_BOOTTIME` goes on during suspend; macOS' `CLOCK_MONOTONIC` does
    /// so by itself. On other Unix systems it may stand still, and a machine that sleeps must not
    /// hold locks there.
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

    /// How long ago it was.
    pub(crate) fn elapsed(self) -> Duration {
        Self::now().since(self)
    }

    /// Nanoseconds since the machine was started.
    pub(crate) fn nanos(self) -> u128 {
        self.0.as_nanos()
    }
}

/// The last of several moments, to the microsecond, that threads share.
#[derive(Debug, Default)]
pub(crate) struct LastMoment(AtomicU64);

impl LastMoment {
    pub(crate) fn note(&self, moment: Moment) {
        let micros = u64::try_from(moment.0.as_micros()).unwrap_or(u64::MAX);
        self.0.fetch_max(micros, Ordering::Relaxed);
    }

    /// That of the machine's start when there was none.
    pub(crate) fn get(&self) -> Moment {
        Moment(Duration::from_micros(self.0.load(Ordering::Relaxed)))
    }
}

#[cfg(test)]
impl Moment {
    pub(crate) fn at(since_boot: Duration) -> Self {
        Self(since_boot)
    }

    pub(crate) fn micros(self) -> i128 {
        i128::try_from(self.0.as_micros()).unwrap()
    }
}

impl fmt::Debug for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} after boot", self.0)
    }
}
