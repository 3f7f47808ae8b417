//! Delays between tries: each longer than the one before, with jitter.

use std::time::Duration;

use crate::sys::random;

/// Growth of a delay that doubles, in percent.
const DOUBLE: u32 = 200;
/// Most failures that lengthen a delay.
const FAILURES_MAX: u32 = 20;

/// A delay that grows from try to try, up to a bound.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Backoff {
    first: Duration,
    longest: Duration,
    /// How long a delay is compared to the one before, in percent.
    growth: u32,
    delay: Duration,
}

impl Backoff {
    /// Starts with `first`, and doubles.
    pub(crate) const fn new(first: Duration, longest: Duration) -> Self {
        Self::growing(first, longest, DOUBLE)
    }

    /// The same for another growth, in percent.
    pub(crate) const fn growing(first: Duration, longest: Duration, growth: u32) -> Self {
        Self { first, longest, growth, delay: first }
    }

    /// The delay before the next try, with jitter and with another bound for the present: the delay
    /// grows on from there.
    pub(crate) fn next_within(&mut self, longest: Duration) -> Duration {
        self.delay = self.delay.min(longest);
        jittered(self.step())
    }

    /// The delay after a number of failures, with jitter.
    pub(crate) fn after(self, failures: u32) -> Duration {
        jittered(self.delay_after(failures))
    }

    /// The same without jitter.
    pub(crate) fn delay_after(mut self, failures: u32) -> Duration {
        (0..failures.min(FAILURES_MAX)).for_each(|_| self.grow());
        self.delay()
    }

    /// The delay before the next try, without jitter.
    pub(crate) fn step(&mut self) -> Duration {
        let delay = self.delay();
        self.grow();
        delay
    }

    /// The delay now, without jitter.
    pub(crate) fn delay(&self) -> Duration {
        self.delay.min(self.longest)
    }

    /// Makes the delay longer.
    pub(crate) fn grow(&mut self) {
        let grown = self.delay.checked_mul(self.growth).map(|delay| delay / 100);
        self.delay = grown.unwrap_or(self.longest).min(self.longest);
    }

    /// Starts again with the first delay.
    pub(crate) fn reset(&mut self) {
        self.delay = self.first;
    }
}

/// 75 % to 125 % of a delay, so that callers that failed together do not retry together.
pub(crate) fn jittered(delay: Duration) -> Duration {
    spread(delay, random::fraction())
}

/// The same for a jitter of 0 to 1.
pub(crate) fn spread(delay: Duration, jitter: f64) -> Duration {
    delay.mul_f64(0.75 + jitter / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    /// Checks a delay that is expected to have this many milliseconds, but for the jitter.
    fn assert_about(delay: Duration, expected: u64) {
        let range = ms(expected).mul_f64(0.75)..=ms(expected).mul_f64(1.25);
        assert!(range.contains(&delay), "{delay:?} is not about {expected} ms");
    }

    #[test]
    fn a_delay_doubles_up_to_its_bound_and_differs() {
        let mut backoff = Backoff::new(ms(10), ms(50));
        for expected in [10, 20, 40, 50, 50] {
            assert_about(jittered(backoff.step()), expected);
        }
        let delays: Vec<_> = (0..20).map(|_| jittered(ms(100))).collect();
        assert!(delays.windows(2).any(|pair| pair[0] != pair[1]));
        for (failures, expected) in [(0, 10), (1, 20), (2, 40), (3, 50), (u32::MAX, 50)] {
            assert_about(Backoff::new(ms(10), ms(50)).after(failures), expected);
        }
        assert!(Backoff::new(ms(10), Duration::MAX.mul_f64(0.5)).after(u32::MAX) > ms(10));
    }

    #[test]
    fn a_delay_grows_by_its_own_growth_and_starts_again() {
        let mut backoff = Backoff::growing(ms(20), ms(1_000), 300);
        let mut steps = || [(); 6].map(|()| backoff.step());
        assert_eq!(steps(), [20, 60, 180, 540, 1_000, 1_000].map(ms));
        backoff.reset();
        assert_eq!((backoff.delay(), backoff.step(), backoff.delay()), (ms(20), ms(20), ms(60)));
        let mut slowly = Backoff::growing(ms(2), ms(100), 150);
        assert_eq!([(); 3].map(|()| slowly.step()), [ms(2), ms(3), ms(3) * 3 / 2]);
        let mut endless = Backoff::new(Duration::MAX, Duration::MAX);
        assert_eq!([(); 2].map(|()| endless.step()), [Duration::MAX; 2]);
    }

    #[test]
    fn a_bound_for_the_present_holds_the_delay_back() {
        let mut backoff = Backoff::new(ms(10), ms(1_000));
        let mut next = |longest, expected: u64| {
            assert_about(backoff.next_within(ms(longest)), expected);
        };
        for (longest, expected) in [(40, 10), (40, 20), (40, 40), (40, 40), (100, 80), (400, 160)] {
            next(longest, expected);
        }
    }
}
