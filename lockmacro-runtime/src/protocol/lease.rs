//! The arithmetic of a lease: how long a client may rely on a lock, and when to renew it. No I/O;
//! every time is an argument, but for [`late`], which reads the clock.
//!
//! A server counts a ttl from when it ran the command. The client only knows that this was after
//! the command was sent. So the client counts from before sending, and subtracts an allowance for
//! the drift of the two clocks. Its lease then always ends before the server's. The allowance is
//! the one of the Redlock description: 1 % of the ttl and 2 ms.

use std::time::Duration;

use crate::sys::time::Moment;
use crate::value::loss::LossCause;

/// Shortest pause before a failed renewal is tried again.
const RETRY_MIN: Duration = Duration::from_millis(50);

/// How long a client may rely on a lock. A loss is final.
#[derive(Debug, Clone)]
pub(crate) struct Lease {
    ttl: Duration,
    ends: Moment,
    /// How long the lock is granted, until a first renewal confirms it.
    unconfirmed: Option<Duration>,
    /// Whether it is renewed, and not only confirmed.
    renews: bool,
    /// The latest end: of the renewals, or of what a confirmation lengthens.
    limit: Option<Moment>,
    lost: Option<LossCause>,
}

impl Lease {
    /// A lease of `ttl`, which the command that was sent at `sent` has granted for `granted`. A
    /// first renewal confirms the rest. It is renewed until `renewed_until`, or not at all.
    pub(crate) fn new(
        sent: Moment,
        granted: Duration,
        ttl: Duration,
        renewed_until: Option<Moment>,
    ) -> Self {
        let unconfirmed = (granted < ttl).then_some(granted);
        let renews = renewed_until.is_some();
        let limit = renewed_until;
        let mut lease = Self { ttl, ends: sent, unconfirmed, renews, limit, lost: None };
        lease.extend(sent, granted);
        lease
    }

    /// A lease of `ttl` from now on for the next holder of a lock, whose grant ends at `ends`. A
    /// renewal confirms the rest.
    pub(crate) fn passed(
        now: Moment,
        ends: Moment,
        ttl: Duration,
        renewed_until: Option<Moment>,
    ) -> Self {
        let mut lease = Self::new(now, ttl, ttl, renewed_until);
        if !lease.renews {
            lease.limit = Some(lease.ends);
        }
        lease.unconfirmed = (ends < lease.ends).then(|| ends.since(now));
        lease.ends = lease.ends.min(ends);
        lease
    }

    /// How long the lock may still be relied on, or why it is lost.
    pub(crate) fn remaining(&mut self, now: Moment) -> Result<Duration, LossCause> {
        if now >= self.ends {
            let cause =
                if self.wants_renewal() { LossCause::NotRenewed } else { LossCause::Expired };
            self.lost.get_or_insert(cause);
        }
        self.lost.map_or_else(|| Ok(self.ends.since(now)), Err)
    }

    /// Records a renewal for `ttl` by a command that was sent at `sent`. A lease that was over
    /// before the answer came stays over.
    pub(crate) fn renewed(
        &mut self,
        sent: Moment,
        ttl: Duration,
        now: Moment,
    ) -> Result<Duration, LossCause> {
        self.remaining(now)?;
        // An extension for less than the lease's own ttl leaves the rest of it to be confirmed.
        let is_whole = self.limit.is_some_and(|limit| end_of(sent, ttl) >= limit);
        if ttl >= self.ttl || is_whole {
            self.unconfirmed = None;
        }
        self.extend(sent, ttl);
        self.remaining(now)
    }

    /// Records the server's answer that another token has the lock, or none.
    pub(crate) fn taken(&mut self) {
        self.lost.get_or_insert(LossCause::Taken);
    }

    /// Whether the lease is to be renewed.
    pub(crate) fn wants_renewal(&self) -> bool {
        self.unconfirmed.is_some()
            || self.renews && self.limit.is_none_or(|limit| self.ends < limit)
    }

    /// When to renew a lease that was granted or renewed by a command sent at `sent`: a third of
    /// the ttl later. `jitter` (0 to 1) moves that by ± 10 %, so that simultaneous leases spread.
    pub(crate) fn first_try(&self, sent: Moment, jitter: f64) -> Option<Moment> {
        let third = self.unconfirmed.unwrap_or(self.ttl) / 3;
        self.wants_renewal().then(|| sent.after(third.mul_f64(0.9 + 0.2 * jitter.clamp(0.0, 1.0))))
    }

    /// How much of `ttl` a renewal at `now` may request: up to one renewal's ttl beyond the limit.
    pub(crate) fn allowed(&self, ttl: Duration, now: Moment) -> Duration {
        match self.limit.map(|limit| limit.since(now)) {
            Some(left) if self.renews => ttl.min(left + self.ttl),
            Some(left) => ttl.min(counted(left)),
            None => ttl,
        }
    }

    /// How much of `ttl` an extension at `now` may request, which its caller has asked for: more
    /// than a renewal of its own.
    pub(crate) fn extension(&self, ttl: Duration, now: Moment) -> Duration {
        if self.renews { self.allowed(ttl, now) } else { ttl }
    }

    /// Records an extension for `ttl` by a command that was sent at `sent`: the lease may last for
    /// longer than the ttl with which it began.
    pub(crate) fn extended(&mut self, sent: Moment, ttl: Duration) {
        if !self.renews {
            self.limit = self.limit.map(|limit| limit.max(end_of(sent, ttl)));
        }
    }

    /// The ttl that a server has to count from `now` on, so that the key outlasts the lease; `None`
    /// when the lease is over.
    pub(crate) fn keeps(&mut self, now: Moment) -> Option<Duration> {
        self.remaining(now).ok().map(counted)
    }

    /// When to retry a renewal that failed at `now`.
    pub(crate) fn next_try(&self, now: Moment) -> Moment {
        now.after((self.unconfirmed.unwrap_or(self.ttl) / 20).max(RETRY_MIN))
    }

    fn extend(&mut self, sent: Moment, ttl: Duration) {
        // The server never shortens a ttl, so no answer shortens the lease, in whatever order
        // answers arrive.
        let end = self.ends.max(end_of(sent, ttl));
        self.ends = self.limit.map_or(end, |limit| end.min(limit));
    }

    /// When the lease ends.
    pub(crate) fn ends(&self) -> Moment {
        self.ends
    }
}

/// Whether a lease of `ttl`, granted by a command that was sent at `sent`, is over by now.
pub(crate) fn late(sent: Moment, ttl: Duration, now: Moment) -> bool {
    now >= end_of(sent, ttl)
}

/// When a lease of `ttl` ends that was granted by a command sent at `sent`.
pub(crate) fn end_of(sent: Moment, ttl: Duration) -> Moment {
    sent.after(ttl.saturating_sub(drift(ttl)))
}

/// The ttl that a server has to count, so that a lease of `left` ends before: the inverse of
/// `drift`, rounded up.
fn counted(left: Duration) -> Duration {
    (left + Duration::from_millis(2)) * 100 / 99 + Duration::from_millis(1)
}

/// The detail of the error of a lock that was granted after its lease had ended.
pub(crate) fn too_slow(ttl: Duration) -> String {
    format!("the ttl is {ttl:?}")
}

/// The allowance for the drift of the two clocks.
fn drift(ttl: Duration) -> Duration {
    ttl / 100 + Duration::from_millis(2)
}

#[cfg(test)]
mod tests {
    use crate::value::limits::{TTL_MAX, TTL_MIN};

    use proptest::prelude::*;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn at(ms: u64) -> Moment {
        Moment::at(Duration::from_millis(ms))
    }

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// A lease that is confirmed.
    fn granted(sent: Moment, ttl: Duration, renewed_until: Option<Moment>) -> Lease {
        Lease::new(sent, ttl, ttl, renewed_until)
    }

    /// Until when a lease without a limit is renewed.
    fn always() -> Option<Moment> {
        Some(at(0).after(Duration::MAX))
    }

    #[test]
    fn a_handed_off_lease_is_retried_by_its_confirm_window() {
        let mut lease = Lease::new(at(0), 5 * SECOND, 300 * SECOND, None);
        assert_eq!(lease.next_try(at(100)), at(350));
        assert_eq!(lease.remaining(at(5_000)), Err(LossCause::NotRenewed));
        let mut lease = Lease::new(at(0), 5 * SECOND, 300 * SECOND, None);
        assert_eq!(lease.renewed(at(400), 300 * SECOND, at(401)), Ok(ms(296_997)));
        assert_eq!(lease.next_try(at(401)), at(15_401));
        assert_eq!(lease.remaining(at(300_400)), Err(LossCause::Expired));
    }

    #[test]
    fn a_passed_lease_that_lasts_until_its_limit_ends_with_it() {
        let limit = Some(at(300));
        let mut lease = Lease::passed(at(0), at(500), SECOND, limit);
        assert!(!lease.wants_renewal());
        assert_eq!(lease.remaining(at(300)), Err(LossCause::Expired));
        let mut lease = Lease::passed(at(0), at(200), SECOND, limit);
        assert!(lease.wants_renewal());
        assert_eq!(lease.remaining(at(200)), Err(LossCause::NotRenewed));
    }

    #[test]
    fn an_extension_of_a_passed_lease_lengthens_it_beyond_its_own_ttl() {
        let mut lease = Lease::passed(at(0), at(500), SECOND, None);
        assert!(lease.allowed(60 * SECOND, at(0)) < ms(1_010), "a confirmation is for its ttl");
        assert_eq!(lease.extension(60 * SECOND, at(0)), 60 * SECOND);
        lease.extended(at(0), 60 * SECOND);
        assert_eq!(lease.renewed(at(0), 60 * SECOND, at(1)), Ok(ms(59_397)));
        assert!(!lease.wants_renewal(), "its own ttl is confirmed, too");
        assert_eq!(lease.remaining(at(59_398)), Err(LossCause::Expired));
        let mut lease = Lease::passed(at(0), at(500), SECOND, None);
        assert_eq!(lease.renewed(at(0), 60 * SECOND, at(1)), Ok(ms(987)), "of a confirmation");
    }

    #[test]
    fn a_shorter_extension_takes_nothing_from_a_passed_lease() {
        let passed = || Lease::passed(at(0), at(500), SECOND, None);
        let handed_off = || Lease::new(at(0), ms(500), SECOND, None);
        for (mut lease, granted) in [(passed(), ms(500)), (handed_off(), ms(493))] {
            lease.extended(at(0), ms(200));
            assert_eq!(lease.renewed(at(0), ms(200), at(1)), Ok(granted - ms(1)));
            assert!(lease.wants_renewal(), "the rest of its ttl is not confirmed");
            let confirmed = lease.allowed(SECOND, at(100));
            let left = lease.renewed(at(100), confirmed, at(101)).unwrap();
            assert!(left >= ms(887), "{left:?}");
            assert!(!lease.wants_renewal());
        }
        let mut lease = passed();
        assert!(lease.renewed(at(0), SECOND, at(1)).is_ok(), "confirmed");
        lease.extended(at(100), ms(200));
        assert_eq!(lease.renewed(at(100), ms(200), at(101)), Ok(ms(887)));
    }

    #[test]
    fn a_lease_is_counted_from_before_sending_less_the_drift() {
        let mut lease = granted(at(1_000), 10 * SECOND, None);
        assert_eq!(lease.remaining(at(1_000)), Ok(ms(9_898)));
        assert_eq!(lease.remaining(at(10_897)), Ok(ms(1)));
        assert_eq!(lease.remaining(at(10_898)), Err(LossCause::Expired));
    }

    #[test]
    fn a_loss_is_final() {
        let mut lease = granted(at(0), SECOND, always());
        assert_eq!(lease.remaining(at(2_000)), Err(LossCause::NotRenewed));
        assert_eq!(lease.remaining(at(0)), Err(LossCause::NotRenewed));
        assert_eq!(lease.renewed(at(500), SECOND, at(600)), Err(LossCause::NotRenewed));

        let mut lease = granted(at(0), SECOND, always());
        lease.taken();
        assert_eq!(lease.renewed(at(500), SECOND, at(600)), Err(LossCause::Taken));
    }

    #[test]
    fn a_renewal_counts_from_before_it_was_sent() {
        let mut lease = granted(at(0), SECOND, always());
        assert_eq!(lease.renewed(at(300), SECOND, at(900)), Ok(ms(388)));
    }

    #[test]
    fn an_answer_that_comes_after_the_end_renews_nothing() {
        let mut lease = granted(at(0), SECOND, always());
        assert_eq!(lease.renewed(at(300), SECOND, at(988)), Err(LossCause::NotRenewed));
    }

    #[test]
    fn a_shorter_renewal_does_not_shorten_the_lease() {
        let mut lease = granted(at(0), SECOND, always());
        assert_eq!(lease.renewed(at(300), ms(100), at(400)), Ok(ms(588)));
    }

    #[test]
    fn a_limit_ends_a_renewed_lease() {
        let mut lease = granted(at(0), SECOND, Some(at(1_500)));
        assert!(lease.first_try(at(0), 0.5).is_some());
        assert_eq!(lease.renewed(at(600), SECOND, at(601)), Ok(ms(899)));
        assert_eq!(lease.first_try(at(600), 0.5), None);
        assert_eq!(lease.remaining(at(1_500)), Err(LossCause::Expired));
    }

    #[test]
    fn a_confirmed_key_outlasts_its_lease() {
        for ttl in [TTL_MIN, SECOND, TTL_MAX] {
            let mut lease = granted(at(0), ttl, None);
            let left = lease.remaining(at(20)).unwrap();
            let keeps = lease.keeps(at(20)).unwrap();
            let counted = keeps - drift(keeps);
            assert!(counted >= left && counted - left < Duration::from_millis(2), "{ttl:?}");
        }
        assert_eq!(granted(at(0), SECOND, None).keeps(at(990)), None);
    }

    #[test]
    fn renewals_start_at_a_third_of_the_ttl_and_are_retried_soon() {
        let lease = granted(at(0), 30 * SECOND, always());
        assert_eq!(lease.first_try(at(0), 0.0), Some(at(9_000)));
        assert_eq!(lease.first_try(at(0), 1.0), Some(at(11_000)));
        assert_eq!(lease.next_try(at(9_000)), at(10_500));
        let short = granted(at(0), ms(100), always());
        assert_eq!(short.next_try(at(33)), at(83));
        assert_eq!(granted(at(0), SECOND, None).first_try(at(0), 0.5), None);
    }

    #[test]
    fn a_renewal_requests_at_most_one_ttl_beyond_the_limit() {
        let lease = granted(at(0), SECOND, Some(at(1_500)));
        assert_eq!(lease.allowed(SECOND, at(100)), SECOND);
        assert_eq!(lease.allowed(60 * SECOND, at(100)), ms(2_400));
        assert_eq!(lease.allowed(SECOND, at(2_000)), SECOND);
    }

    proptest! {
        /// The server runs each command at any time between its sending and the answer, on a clock
        /// that is up to 0.5 % faster or slower: the key outlasts the lease.
        #[test]
        fn the_key_outlasts_the_lease(
            ttl_ms in 50_u64..86_400_000,
            rate_ppm in -5_000_i64..=5_000,
            rounds in proptest::collection::vec((0_u64..100, 0_u64..100, 1_u64..=100), 1..8),
        ) {
            let ttl = ms(ttl_ms);
            let ttl_us = i128::from(ttl_ms) * 1_000 * 1_000_000 / i128::from(1_000_000 + rate_ppm);
            let mut sent = at(0);
            let mut lease = granted(sent, ttl, always());
            let mut expires_us = ttl_us;
            for (wait, ran, answered) in rounds {
                sent = sent.after(ttl * u32::try_from(wait).unwrap() / 100);
                let run = sent.after(ttl * u32::try_from(ran * answered).unwrap() / 40_000);
                let now = sent.after(ttl * u32::try_from(answered).unwrap() / 400);
                if expires_us <= run.micros() {
                    break;
                }
                expires_us = run.micros() + ttl_us;
                if lease.renewed(sent, ttl, now).is_err() {
                    break;
                }
                sent = now;
                prop_assert!(lease.ends.micros() < expires_us);
            }
        }
    }
}
