//! The measured round trip to a server: smoothed, with its deviation, as in TCP (RFC 6298); and the
//! shortest recent one, which neither large replies nor pauses of the server lengthen.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use crate::value::time::Instant;

/// Length of a window in which the shortest answer is kept; the one before counts, too.
const WINDOW: Duration = Duration::from_secs(10);
/// Fewest answers from which the shortest one is known.
const ANSWERS_MIN: u32 = 4;

/// The round trip to one server, shared by all connections of a manager.
#[derive(Debug)]
pub(crate) struct RoundTrip {
    /// The smoothed round trip and its deviation, in microseconds, 32 bits each.
    measured: AtomicU64,
    /// The time that the windows are counted from.
    began: Instant,
    /// The number of this window and its shortest answer in microseconds, 32 bits each.
    window: AtomicU64,
    /// The same for the last window with answers.
    previous: AtomicU64,
    /// The number of answers, up to [`ANSWERS_MIN`].
    answers: AtomicU32,
    /// Whether a ttl too short for the round trip was logged.
    warned: AtomicBool,
}

impl Default for RoundTrip {
    fn default() -> Self {
        let (measured, window, previous, answers, warned) = Default::default();
        Self { measured, began: Instant::now(), window, previous, answers, warned }
    }
}

impl RoundTrip {
    /// Notes an answer to a command that was sent at `asked`. Of two concurrent answers one may be
    /// ignored.
    pub(crate) fn note(&self, asked: Instant) {
        let now = Instant::now();
        self.noted(now, now.duration_since(asked));
    }

    fn noted(&self, now: Instant, took: Duration) {
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
        let number = now.duration_since(self.began).as_secs() / WINDOW.as_secs() + 1;
        let window = self.window.load(Ordering::Relaxed);
        if window >> 32 != number {
            self.previous.store(window, Ordering::Relaxed);
        }
        if window >> 32 != number || took < window & u64::from(u32::MAX) {
            self.window.store(number << 32 | took, Ordering::Relaxed);
        }
        if self.answers.load(Ordering::Relaxed) < ANSWERS_MIN {
            self.answers.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The shortest recent round trip; zero until there are enough answers.
    pub(crate) fn shortest(&self) -> Duration {
        if self.answers.load(Ordering::Relaxed) < ANSWERS_MIN {
            return Duration::ZERO;
        }
        let windows = [&self.window, &self.previous].map(|window| window.load(Ordering::Relaxed));
        let shortest = windows.into_iter().filter(|window| *window != 0);
        let shortest = shortest.map(|window| window & u64::from(u32::MAX)).min();
        Duration::from_micros(shortest.unwrap_or_default())
    }

    /// The longest time that an answer of a healthy server may take.
    pub(crate) fn longest(&self) -> Duration {
        let (smoothed, deviation) = self.measured();
        Duration::from_micros(2 * smoothed + 4 * deviation)
    }

    /// Whether a ttl too short for the round trip is still to be logged; true once.
    pub(crate) fn should_warn(&self) -> bool {
        !self.warned.swap(true, Ordering::Relaxed)
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
    fn a_longer_round_trip_counts_from_its_first_answer() {
        let round_trip = RoundTrip::default();
        assert_eq!(round_trip.longest(), Duration::ZERO);
        let now = Instant::now();
        (0..50).for_each(|_| round_trip.noted(now, ms(1)));
        assert!(round_trip.longest() < ms(3), "{round_trip:?}");
        round_trip.noted(now, ms(60));
        assert!(round_trip.longest() > ms(60), "{round_trip:?}");
        (0..50).for_each(|_| round_trip.noted(now, ms(60)));
        assert!(round_trip.longest() < ms(130), "{round_trip:?}");
        assert_eq!(round_trip.shortest(), ms(1));
        for later in [1, 2] {
            (0..50).for_each(|_| round_trip.noted(now + later * WINDOW, ms(60)));
        }
        assert_eq!(round_trip.shortest(), ms(60), "it has been far away for long");
    }

    #[test]
    fn large_replies_and_pauses_of_the_server_do_not_count_as_its_round_trip() {
        let round_trip = RoundTrip::default();
        let now = Instant::now();
        (0..3).for_each(|_| round_trip.noted(now, ms(900)));
        assert_eq!(round_trip.shortest(), Duration::ZERO, "of so few it is not known");
        round_trip.noted(now, ms(1));
        // Many callers waited for a server that hung.
        (0..5_000).for_each(|_| round_trip.noted(now + WINDOW, ms(900)));
        assert_eq!(round_trip.shortest(), ms(1));
        (0..5_000).for_each(|nth| {
            let took = if nth % 1_000 == 0 { ms(2) } else { ms(900) };
            round_trip.noted(now + 2 * WINDOW, took);
        });
        assert_eq!(round_trip.shortest(), ms(2));
    }

    #[test]
    fn any_duration_can_be_noted() {
        let round_trip = RoundTrip::default();
        let now = Instant::now();
        (0..9).for_each(|_| round_trip.noted(now, Duration::MAX));
        assert!(round_trip.longest() > ms(1_000) && round_trip.longest() < ms(9_000_000));
        round_trip.noted(now, Duration::ZERO);
    }
}
