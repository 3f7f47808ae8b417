//! How long a server takes to answer, as measured: smoothed, with its deviation, as TCP does it
//! (RFC 6298).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// One for all connections of a manager to one server.
#[derive(Debug, Default)]
pub(crate) struct RoundTrip {
    /// The smoothed time and its deviation, in microseconds, 32 bits each.
    measured: AtomicU64,
    /// Whether a ttl was told to be too short for it.
    told: AtomicBool,
}

impl RoundTrip {
    /// Takes note of an answer. Of two at the same time one may be forgotten.
    pub(crate) fn note(&self, took: Duration) {
        let took = u64::try_from(took.as_micros()).unwrap_or(u64::MAX).clamp(1, 1 << 30);
        let (smoothed, deviation) = self.measured();
        let (smoothed, deviation) = match smoothed {
            0 => (took, took / 2),
            _ => {
                let off = smoothed.abs_diff(took);
                ((7 * smoothed + took) / 8, (3 * deviation + off) / 4)
            }
        };
        self.measured.store(smoothed << 32 | deviation, Ordering::Relaxed);
    }

    /// The smoothed time; zero before the first answer.
    pub(crate) fn smoothed(&self) -> Duration {
        Duration::from_micros(self.measured().0)
    }

    /// How long an answer of a server that is well may take.
    pub(crate) fn longest(&self) -> Duration {
        let (smoothed, deviation) = self.measured();
        Duration::from_micros(2 * smoothed + 4 * deviation)
    }

    /// Whether nobody was told yet that a ttl is too short for it.
    pub(crate) fn is_to_be_told(&self) -> bool {
        !self.told.swap(true, Ordering::Relaxed)
    }

    fn measured(&self) -> (u64, u64) {
        let measured = self.measured.load(Ordering::Relaxed);
        (measured >> 32, measured & u64::from(u32::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    #[test]
    fn a_server_that_is_moved_far_away_is_given_more_time_with_its_first_answer() {
        let round_trip = RoundTrip::default();
        assert_eq!(round_trip.longest(), Duration::ZERO);
        (0..50).for_each(|_| round_trip.note(ms(1)));
        assert!(round_trip.longest() < ms(3), "{round_trip:?}");
        round_trip.note(ms(60));
        assert!(round_trip.longest() > ms(60), "{round_trip:?}");
        (0..50).for_each(|_| round_trip.note(ms(60)));
        assert!(round_trip.longest() < ms(130), "{round_trip:?}");
        assert!(round_trip.smoothed() > ms(59), "{round_trip:?}");
    }

    #[test]
    fn no_time_is_too_long_to_be_noted() {
        let round_trip = RoundTrip::default();
        (0..9).for_each(|_| round_trip.note(Duration::MAX));
        assert!(round_trip.longest() > ms(1_000) && round_trip.longest() < ms(9_000_000));
        round_trip.note(Duration::ZERO);
    }
}
