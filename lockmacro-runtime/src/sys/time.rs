//! The clocks: of leases, which differs between systems, of timers, and of the wall. Nothing else
//! reads a clock.
//!
//! With the feature `test-util`, all three go by tokio's clock in a runtime that has paused it.

use std::fmt;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use crate::sys::platform::since_boot;
use crate::sys::world;

/// The clock of timers and timeouts, which may stop while the machine is suspended.
pub(crate) use tokio::time::Instant;

/// A moment on a clock that runs on while the machine is suspended, as the server's clock does.
///
/// Stored as nanoseconds since boot plus one, so that an `Option` of it is no larger. They last for
/// 584 years.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(NonZeroU64);

impl Moment {
    /// The present.
    pub(crate) fn now() -> Self {
        #[cfg(feature = "test-util")]
        if let Some(since_boot) = virtual_time::since_boot() {
            return Self::at(since_boot);
        }
        Self::at(since_boot())
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
    fn nanos(self) -> u64 {
        self.0.get() - 1
    }
}

/// The date and time.
pub(crate) fn wall_clock() -> SystemTime {
    #[cfg(feature = "test-util")]
    if let Some(time) = virtual_time::wall_clock() {
        return time;
    }
    SystemTime::now()
}

/// How long a timer may run that is to end after `left`: for `check` at most, as timers stop while
/// the machine is suspended. No virtual clock does that.
pub(crate) fn checked(left: Duration, check: Duration) -> Duration {
    #[cfg(feature = "test-util")]
    if virtual_time::is_one_clock() {
        return left;
    }
    left.min(check)
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

/// A moment that one thread writes at a time, and any thread reads.
#[derive(Debug)]
pub(crate) struct SharedMoment(AtomicU64);

impl SharedMoment {
    pub(crate) fn new(moment: Option<Moment>) -> Self {
        Self(Self::number(moment).into())
    }

    pub(crate) fn set(&self, moment: Option<Moment>) {
        self.0.store(Self::number(moment), Ordering::Release);
    }

    pub(crate) fn get(&self) -> Option<Moment> {
        // Where threads are simulated, another one may go on here, as at a mutex.
        world::switch();
        NonZeroU64::new(self.0.load(Ordering::Acquire)).map(Moment)
    }

    fn number(moment: Option<Moment>) -> u64 {
        moment.map_or(0, |moment| moment.0.get())
    }
}

/// The clock of the caller's runtime, where it is not the real one: `tokio::time::pause` has
/// stopped it, or has stopped it once.
///
/// Without a runtime the clock is real. So a thread that blocks goes by virtual time only if it is
/// one of `spawn_blocking`, or has entered the runtime.
#[cfg(feature = "test-util")]
mod virtual_time {
    use std::sync::LazyLock;
    use std::time::{Duration, Instant, SystemTime};

    use tokio::runtime::Handle;

    use crate::sys::{platform, world};

    /// Longest time for which a thread is parked under virtual time.
    const PARK: Duration = Duration::from_millis(1);

    /// The clocks at one moment, from which virtual time is counted on all of them.
    struct Clocks {
        timers: Instant,
        since_boot: Duration,
        wall: SystemTime,
    }

    static CLOCKS: LazyLock<Clocks> = LazyLock::new(|| Clocks {
        timers: Instant::now(),
        since_boot: platform::since_boot(),
        wall: SystemTime::now(),
    });

    /// The time of the runtime's clock, if that is not the real one: tokio does not tell whether it
    /// is paused.
    fn now() -> Option<Instant> {
        let before = Instant::now();
        let by_tokio = tokio::time::Instant::now().into_std();
        let real = before..=Instant::now();
        (!real.contains(&by_tokio)).then_some(by_tokio)
    }

    /// How far virtual time is behind the start of its count, and how far it is past that.
    fn moved() -> Option<(Duration, Duration)> {
        let now = now()?;
        let start = CLOCKS.timers;
        Some((start.saturating_duration_since(now), now.saturating_duration_since(start)))
    }

    pub(super) fn since_boot() -> Option<Duration> {
        if let Some(world) = world::current() {
            return Some(world.since_boot());
        }
        let (back, on) = moved()?;
        Some(CLOCKS.since_boot.saturating_sub(back).saturating_add(on))
    }

    pub(super) fn wall_clock() -> Option<SystemTime> {
        if let Some(world) = world::current() {
            return SystemTime::UNIX_EPOCH.checked_add(world.since_1970());
        }
        let (back, on) = moved()?;
        CLOCKS.wall.checked_sub(back)?.checked_add(on)
    }

    /// Whether leases go by the clock of the timers.
    pub(super) fn is_one_clock() -> bool {
        // A simulation may suspend a machine.
        world::current().is_none() && now().is_some()
    }

    /// How long a thread may be parked that is to be parked for this time.
    pub(crate) fn longest_park(longest: Duration) -> Duration {
        if now().is_some() { longest.min(PARK) } else { longest }
    }

    /// The caller's runtime, if it has a virtual clock.
    pub(crate) fn virtual_runtime() -> Option<Handle> {
        if world::current().is_some() {
            return Handle::try_current().ok();
        }
        // A paused clock that agrees with the real one does so for one reading at most.
        now().or_else(now).and_then(|_| Handle::try_current().ok())
    }
}

#[cfg(feature = "test-util")]
pub(crate) use virtual_time::{longest_park, virtual_runtime};

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
