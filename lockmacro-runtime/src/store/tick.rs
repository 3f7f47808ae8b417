//! The pause after which a waiter repeats its request.

use std::time::Duration;

use crate::sys::time::Moment;

/// Pause after which a waiter repeats its request, which refreshes its entry in the queue.
const TICK: Duration = Duration::from_secs(2);
/// The same while pushes cannot be received: for the waiter itself and each one before it.
const TICK_WITHOUT_PUSHES: Duration = Duration::from_millis(100);
/// Pauses of the first waiter while a foreign client holds the lock, whose release pushes nothing,
/// and until when each pause is used. Each pause divides the next one. The last one is usual among
/// clients that poll.
const FOREIGN: [(Duration, Duration); 3] = [
    (Duration::from_millis(25), Duration::from_secs(2)),
    (Duration::from_millis(50), Duration::from_secs(10)),
    (Duration::from_millis(100), Duration::MAX),
];
/// Shortest pause between two requests.
const TICK_MIN: Duration = Duration::from_millis(2);
/// Number of first waiters that also repeat their request when the lock expires, in case its holder
/// is dead.
const RANKS_AT_EXPIRY: u32 = 3;

/// Since when the first waiter has found a foreign client holding the lock.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Foreign(Option<Moment>);

impl Foreign {
    /// Records an answer to the waiter of that rank. Returns the pause before its next request, if
    /// that should come soon.
    ///
    /// Requests are sent at multiples of a step from the first such answer on, and up to a fifth of
    /// a step later, by `jitter` (0 to 1). So a foreign client that polls no more often than the
    /// last step finds the lock free no earlier.
    pub(crate) fn tick(
        &mut self,
        rank: u32,
        foreign: bool,
        now: Moment,
        jitter: f64,
    ) -> Option<Duration> {
        if rank > 0 || !foreign {
            self.0 = None;
            return None;
        }
        let passed = now.since(*self.0.get_or_insert(now));
        let (step, _) = FOREIGN.into_iter().find(|(_, until)| passed < *until)?;
        let over = Duration::from_nanos((passed.as_nanos() % step.as_nanos()) as u64);
        let pause = step - over;
        // A slow answer is not followed by a request at once.
        let pause = if pause < step / 4 { pause + step } else { pause };
        Some(pause + (step / 5).mul_f64(jitter.clamp(0.0, 1.0)))
    }
}

/// The pause in which a waiter waits for a push, before it repeats its request. It depends on the
/// waiter's rank, the rest of the holder's lease, and whether pushes can be received. `jitter` (0
/// to 1) spreads it by ± 20 %.
pub(crate) fn tick(rank: u32, left: Option<Duration>, pushes: bool, jitter: f64) -> Duration {
    if left == Some(Duration::ZERO) {
        // The lock is free: there are more dead waiters in front than one request removes.
        return TICK_MIN;
    }
    let tick = if pushes { TICK } else { TICK.min(TICK_WITHOUT_PUSHES * rank.saturating_add(1)) };
    let tick = tick.mul_f64(0.8 + 0.4 * jitter.clamp(0.0, 1.0));
    let expiry = left.filter(|_| rank < RANKS_AT_EXPIRY).map(|left| left + TICK_MIN * (rank + 1));
    expiry.map_or(tick, |expiry| tick.min(expiry)).max(TICK_MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn the_first_waiters_repeat_their_request_when_the_lock_expires() {
        assert_eq!(tick(0, Some(ms(300)), true, 0.5), ms(302));
        assert_eq!(tick(1, Some(ms(300)), true, 0.5), ms(304));
        assert_eq!(tick(3, Some(ms(300)), true, 0.5), TICK);
        assert_eq!(tick(0, Some(ms(60_000)), true, 0.5), TICK);
        assert_eq!(tick(0, None, true, 0.0), ms(1_600));
        assert_eq!(tick(0, None, false, 0.5), ms(100));
        assert_eq!(tick(9, None, false, 0.5), ms(1_000));
        assert_eq!(tick(u32::MAX, None, false, 0.5), TICK);
        assert_eq!(tick(9_000, Some(Duration::ZERO), true, 0.5), TICK_MIN);
    }

    #[test]
    fn the_first_waiter_repeats_its_request_often_while_a_foreign_client_holds_the_lock() {
        let mut foreign = Foreign::default();
        let mut tick = |rank, is_foreign, at, jitter| {
            foreign.tick(rank, is_foreign, Moment::at(ms(at)), jitter)
        };
        assert_eq!(tick(1, true, 1_000, 0.5), None);
        assert_eq!(tick(0, false, 1_000, 0.5), None);
        assert_eq!(tick(0, true, 1_007, 0.0), Some(ms(25)));
        assert_eq!(tick(0, true, 1_033, 0.0), Some(ms(24)));
        assert_eq!(tick(0, true, 1_037, 1.0), Some(ms(25)));
        assert_eq!(tick(0, true, 1_055, 0.0), Some(ms(27)));
        assert_eq!(tick(0, true, 3_017, 1.0), Some(ms(50)));
        assert_eq!(tick(0, true, 60_020, 0.0), Some(ms(87)));
        assert_eq!(tick(0, false, 60_020, 0.0), None);
        assert_eq!(tick(0, true, 60_030, 0.0), Some(ms(25)));
    }
}
