//! The delay before another attempt. There is no queue over several nodes. Callers that repeat at
//! the same moment would split the votes again, so the delays are random.

use std::time::Duration;

use crate::value::backoff::Backoff;
use crate::value::random;

const SHORTEST: Duration = Duration::from_millis(1);
const LONGEST: Duration = Duration::from_millis(100);
/// The first pause, in round trips.
const ROUND_TRIPS: u32 = 4;
/// How long a pause is compared to the one before, in percent.
const GROWTH: u32 = 150;

pub(crate) struct RetryDelay(Backoff);

impl RetryDelay {
    /// Starts with a small multiple of a round trip.
    pub(crate) fn new(round_trip: Duration) -> Self {
        let first = round_trip.saturating_mul(ROUND_TRIPS).clamp(SHORTEST, LONGEST);
        Self(Backoff::growing(first, LONGEST, GROWTH))
    }

    /// The next delay: 50 % to 150 % of a time that grows, and no later than the end of the
    /// holder's lease.
    pub(crate) fn next(&mut self, left: Option<Duration>) -> Duration {
        let pause = self.0.step().mul_f64(0.5 + random::fraction());
        let end = left.map_or(pause, |left| left + SHORTEST.mul_f64(1.0 + random::fraction()));
        pause.min(end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_differ_grow_and_have_a_bound() {
        let mut pause = RetryDelay::new(Duration::from_micros(500));
        let first = pause.next(None);
        assert!(
            (Duration::from_millis(1)..=Duration::from_millis(3)).contains(&first),
            "{first:?}"
        );
        let pauses: Vec<_> = (0..50).map(|_| pause.next(None)).collect();
        assert!(pauses.windows(2).any(|pair| pair[0] != pair[1]));
        assert!(pauses.iter().all(|pause| *pause <= LONGEST.mul_f64(1.5)));
        assert!(pauses[40..].iter().all(|pause| *pause >= LONGEST.mul_f64(0.5)));
    }

    /// Many waiters ask all nodes for as long as the lock is held.
    #[test]
    fn a_waiter_asks_ten_times_a_second_in_the_end() {
        let mut pause = RetryDelay::new(Duration::from_micros(500));
        let pauses: Vec<_> = (0..200).map(|_| pause.next(None)).collect();
        let sum: Duration = pauses[100..].iter().sum();
        assert!(sum > Duration::from_secs(8) && sum < Duration::from_secs(12), "{sum:?}");
    }

    #[test]
    fn a_delay_ends_with_the_holders_lease() {
        let mut pause = RetryDelay::new(Duration::from_micros(u64::MAX / 1_000_000));
        assert!(pause.next(Some(Duration::ZERO)) <= SHORTEST * 2);
    }
}
