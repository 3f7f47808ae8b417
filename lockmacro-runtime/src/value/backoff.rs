//! Delays between tries: each twice as long as the one before, with jitter.

use std::time::Duration;

/// A delay that doubles from try to try, up to a bound.
#[cfg(any(feature = "defer", test))]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Backoff {
    first: Duration,
    longest: Duration,
    failures: u32,
}

#[cfg(any(feature = "defer", test))]
impl Backoff {
    /// Starts with `first`.
    pub(crate) const fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest, failures: 0 }
    }

    /// The delay before the next try, with jitter.
    pub(crate) fn next(&mut self) -> Duration {
        let delay = exponential(self.first, self.failures, self.longest);
        self.failures = self.failures.saturating_add(1);
        delay
    }

    /// Starts again with the first delay.
    #[cfg(feature = "defer")]
    pub(crate) fn reset(&mut self) {
        self.failures = 0;
    }
}

/// The delay after a number of failures, with jitter: `first`, doubled for each failure, and at
/// most `longest`.
pub(crate) fn exponential(first: Duration, failures: u32, longest: Duration) -> Duration {
    jittered(first.saturating_mul(1 << failures.min(20)).min(longest))
}

/// 75 % to 125 % of a delay, so that callers that failed together do not retry together.
pub(crate) fn jittered(delay: Duration) -> Duration {
    delay.mul_f64(0.75 + fastrand::f64() / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delay_doubles_up_to_its_bound_and_differs() {
        let ms = Duration::from_millis;
        let mut backoff = Backoff::new(ms(10), ms(50));
        for expected in [10, 20, 40, 50, 50] {
            let delay = backoff.next();
            assert!(
                (ms(expected).mul_f64(0.75)..=ms(expected).mul_f64(1.25)).contains(&delay),
                "{delay:?}"
            );
        }
        let delays: Vec<_> = (0..20).map(|_| jittered(ms(100))).collect();
        assert!(delays.windows(2).any(|pair| pair[0] != pair[1]));
        assert!(exponential(ms(10), u32::MAX, Duration::MAX.mul_f64(0.5)) > ms(10));
    }
}
