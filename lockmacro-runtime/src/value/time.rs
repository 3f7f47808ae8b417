//! The clock of leases.

use std::fmt;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A moment on a clock that runs on while the machine is suspended, as the server's clock does.
///
/// Stored as nanoseconds since boot plus one, so that an `Option` of it is no larger. They last for
/// 584 years.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(NonZeroU64);

impl Moment {
    /// The present. `CLOCK_BOOTTIME` of Linux and `CLOCK_MONOTONIC` of macOS run on during suspend.
    /// On other Unix systems the clock may stop, and a machine that is suspended there must not
    /// hold locks.
    pub(crate) fn now() -> Self {
        use rustix::time::{ClockId, clock_gettime};
        #[cfg(any(target_os = "linux", target_os = "android"))]
        let clock = ClockId::Boottime;
        #[cfg(not(any(target_os = "linux", target_os = "android")))]
        let clock = ClockId::Monotonic;
        let time = clock_gettime(clock);
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
        let nanos = u32::try_from(time.tv_nsec).unwrap_or(0);
        Self::at(Duration::new(seconds, nanos))
    }

    pub(crate) fn at(since_boot: Duration) -> Self {
        Self(NonZeroU64::MIN).after(since_boot)
    }

    /// The moment that is `later` after this one.
    pub(crate) fn after(self, later: Duration) -> Self {
        let later = u64::try_from(later.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(later))
    }

    /// The time from `earlier` to this moment; zero when that is not earlier.
    pub(crate) fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.nanos().saturating_sub(earlier.nanos()))
    }

    /// The time from this moment until now.
    pub(crate) fn elapsed(self) -> Duration {
        Self::now().since(self)
    }

    /// Nanoseconds since boot.
    pub(crate) fn nanos(self) -> u64 {
        self.0.get() - 1
    }
}

/// The latest of several moments, shared by threads.
#[derive(Debug, Default)]
pub(crate) struct LastMoment(AtomicU64);

impl Clone for LastMoment {
    fn clone(&self) -> Self {
        Self(self.get().nanos().into())
    }
}

impl LastMoment {
    pub(crate) fn note(&self, moment: Moment) {
        self.0.fetch_max(moment.nanos(), Ordering::Relaxed);
    }

    /// The latest moment; the boot of the machine when there was none.
    pub(crate) fn get(&self) -> Moment {
        Moment::at(Duration::from_nanos(self.0.load(Ordering::Relaxed)))
    }
}

#[cfg(test)]
impl Moment {
    pub(crate) fn micros(self) -> i128 {
        i128::from(self.nanos() / 1_000)
    }
}

impl fmt::Debug for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} after boot", Duration::from_nanos(self.nanos()))
    }
}
