//! A lock that was handed off, and since when its lease counts.

use std::num::NonZeroU64;
use std::time::Duration;

use crate::value::fence::FenceBlock;
use crate::value::time::Moment;

/// A lock that was handed off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HandOff {
    /// When the push was received.
    pub(crate) received: Moment,
    /// The connection that received it.
    pub(crate) connection: u64,
    /// When the lock was handed off, in microseconds of the server's clock.
    pub(crate) at: u64,
    /// The ttl until the lock is confirmed.
    pub(crate) ttl: Duration,
    pub(crate) fences: Option<FenceBlock>,
}

/// A reading of the server's clock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sample {
    /// When the request was sent.
    pub(crate) sent: Moment,
    /// The connection that sent it, if that is known.
    pub(crate) connection: Option<NonZeroU64>,
    /// The server's clock when it answered, in microseconds.
    pub(crate) server: u64,
}

impl HandOff {
    /// When the lease of this hand-off starts; `None` when the hand-off is older than the sample,
    /// whose answer is newer then, or came from another server, which has another clock. Also when
    /// half of the lease has passed by `now`: too little of it may be left.
    ///
    /// The server's clock shows how long after the sample the lock was handed off. The drift is
    /// subtracted, and the lease never starts after the push was received. A late push leaves less
    /// of the lease; counting from its receipt would count on an expired lock.
    pub(crate) fn counts_from(&self, sample: Sample, now: Moment) -> Option<Moment> {
        if sample.connection.is_none_or(|known| known.get() != self.connection) {
            return None;
        }
        let later = Duration::from_micros(self.at.checked_sub(sample.server)?);
        let sent = sample.sent.after(later - later / 100).min(self.received);
        (now.since(sent) < self.ttl / 2).then_some(sent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn at(time: u64) -> Moment {
        Moment::at(ms(time))
    }

    fn hand_off(received_ms: u64, at_ms: u64) -> HandOff {
        let received = Moment::at(ms(received_ms));
        HandOff { received, connection: 1, at: at_ms * 1_000, ttl: ms(5_000), fences: None }
    }

    #[test]
    fn a_hand_off_counts_by_the_servers_clock_and_never_from_after_its_receipt() {
        let (sent, connection) = (Moment::at(ms(1_000)), NonZeroU64::new(1));
        let sample = Sample { sent, connection, server: 70_000_000 };
        // A second after the sample on the server's clock; the message took four.
        let late = hand_off(6_000, 71_000);
        assert_eq!(late.counts_from(sample, at(2_000)), Some(Moment::at(ms(1_990))));
        // The server's clock has jumped ahead.
        let ahead = hand_off(1_500, 99_000);
        assert_eq!(ahead.counts_from(sample, at(2_000)), Some(Moment::at(ms(1_500))));
        // The push was in flight while the request was answered.
        let stale = hand_off(1_500, 69_999);
        assert_eq!(stale.counts_from(sample, at(2_000)), None);
    }

    #[test]
    fn a_hand_off_does_not_count_by_the_clock_of_another_server() {
        let sample =
            |connection| Sample { sent: Moment::at(ms(0)), connection, server: 70_000_000 };
        let (known, received) = (NonZeroU64::new, hand_off(1_000, 70_900));
        assert_eq!(received.counts_from(sample(known(1)), at(1_000)), Some(Moment::at(ms(891))));
        for other in [known(2), None] {
            assert_eq!(received.counts_from(sample(other), at(1_000)), None, "{other:?}");
        }
    }

    /// As in a process that was stopped. Its body would begin with less than half of the lease.
    #[test]
    fn a_hand_off_does_not_count_after_half_of_its_lease() {
        let sample = Sample { sent: at(0), connection: NonZeroU64::new(1), server: 70_000_000 };
        let received = hand_off(9_000, 71_000);
        assert_eq!(received.counts_from(sample, at(990 + 2_499)), Some(at(990)));
        assert_eq!(received.counts_from(sample, at(990 + 2_500)), None);
    }
}
