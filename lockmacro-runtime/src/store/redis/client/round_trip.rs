//! How long a server takes to answer, as measured: smoothed, with its deviation, as TCP does it
//! (RFC 6298); and the shortest of late, which no large reply and no pause of the server makes long.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// For how long the shortest answer is looked for, and then for as long again.
const WINDOW: Duration = Duration::from_secs(10);
/// The shortest of fewer answers tells nothing.
const ANSWERS_MIN: u32 = 4;

/// One for all connections of a manager to one server.
#[derive(Debug)]
pub(crate) struct RoundTrip {
    /// The smoothed time and its deviation, in microseconds, 32 bits each.
    measured: AtomicU64,
    /// What windows are counted from.
    began: Instant,
    /// The number of this window and its shortest answer in microseconds, 32 bits each.
    window: AtomicU64,
    /// The same of the last one that had answers.
    previous: AtomicU64,
    /// How many answers there were, up to [`ANSWERS_MIN`].
    answers: AtomicU32,
    /// Whether a ttl was warned to be too short for it.
    warned: AtomicBool,
}

impl Default for RoundTrip {
    fn default() -> Self {
        let (measured, window, previous, answers, warned) = Default::default();
        Self { measured, began: Instant::now(), window, previous, answers, warned }
    }
}

impl RoundTrip {
    /// Takes note of an answer to what was sent at `asked`. Of two at the same time one may be
    /// forgotten.
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

    /// The shortest of late; zero before some answers.
    pub(crate) fn shortest(&self) -> Duration {
        if self.answers.load(Ordering::Relaxed) < ANSWERS_MIN {
            return Duration::ZERO;
        }
        let windows = [&self.window, &self.previous].map(|window| window.load(Ordering::Relaxed));
        let shortest = windows.into_iter().filter(|window| *window != 0);
        let shortest = shortest.map(|window| window & u64::from(u32::MAX)).min();
        Duration::from_micros(shortest.unwrap_or_default())
    }

    /// How long an answer of a server that is well may take.
    pub(crate) fn longest(&self) -> Duration {
        let (smoothed, deviation) = self.measured();
        Duration::from_micros(2 * smoothed + 4 * deviation)
    }

    /// Whether nobody was warned yet that a ttl is too short for it.
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
        // A crowd that waited for a server that stood still.
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
