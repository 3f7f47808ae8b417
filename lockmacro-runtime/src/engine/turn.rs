//! A turn: the time for which one process passes a lock on inside itself, by one grant of the
//! store. This file has the rules for a single pass; every time is an argument.
//!
//! This is lock cohorting (Dice, Marathe, Shavit: "Lock Cohorting", PPoPP 2012), applied to leases.

use std::time::Duration;

use crate::value::fence::FenceBlock;
use crate::value::limits::CONFIRM_WINDOW;
use crate::value::time::Moment;

/// Round trips in a turn.
const ROUND_TRIPS: u32 = 10;
const TURN_MIN: Duration = Duration::from_millis(20);
const TURN_MAX: Duration = Duration::from_millis(100);

/// The length of a turn: the value that was set, or else ten round trips as last measured.
pub(crate) fn turn(set: Option<Duration>, round_trip: Duration) -> Duration {
    set.unwrap_or_else(|| (round_trip * ROUND_TRIPS).clamp(TURN_MIN, TURN_MAX))
}

/// The grant that a process passes on inside itself: the lease of one token.
#[derive(Debug, Clone)]
pub(crate) struct Tenure {
    /// When the turn began: with the grant.
    pub(crate) began: Moment,
    /// When the last command was sent that the store has answered with yes.
    pub(crate) sent: Moment,
    /// The end of the lease.
    pub(crate) ends: Moment,
    /// The latest moment to which the store may keep the lock without another command.
    pub(crate) kept_until: Moment,
    /// The fences of the grant that no holder has taken.
    pub(crate) fences: Option<FenceBlock>,
    /// Whether a holder has had the lock in this turn. The bound of the turn does not apply to the
    /// first holder.
    pub(crate) was_held: bool,
}

/// A caller's demands on a lock.
pub(crate) trait Wants {
    fn ttl(&self) -> Duration;

    /// Whether the caller needs a fence.
    fn is_fenced(&self) -> bool;
}

impl Tenure {
    /// Whether the lock may be passed to `next` at `now`, within a turn of this length.
    ///
    /// - The lease has to be worth a body: half of the next holder's ttl, or of the confirm window
    ///   if that is shorter.
    /// - The store must not keep the lock for longer than the next holder's ttl, or than the
    ///   confirm window if that is longer: a holder that dies leaves the lock by then.
    /// - Every holder that wants a fence gets a fence of its own.
    pub(crate) fn passes_to(&self, next: &impl Wants, turn: Duration, now: Moment) -> bool {
        self.serves(next, now) && (!self.was_held || now.since(self.began) < turn)
    }

    /// Whether `next` may take the lock up at `now`, after the lock was passed to it.
    pub(crate) fn serves(&self, next: &impl Wants, now: Moment) -> bool {
        let least = match self.was_held {
            true => next.ttl().min(CONFIRM_WINDOW) / 2,
            // The first holder gets the grant of the store, unless it takes the lock up too late.
            false => (self.ends.since(self.began) / 2).max(Duration::from_nanos(1)),
        };
        self.ends.since(now) >= least
            && self.kept_until.since(now) <= next.ttl().max(CONFIRM_WINDOW)
            && (!next.is_fenced() || self.fences.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Next(Duration, bool);

    impl Wants for Next {
        fn ttl(&self) -> Duration {
            self.0
        }

        fn is_fenced(&self) -> bool {
            self.1
        }
    }

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn tenure(ends: u64, kept_until: u64) -> Tenure {
        let at = |time| Moment::at(ms(1_000 + time));
        let (ends, kept_until) = (at(ends), at(kept_until));
        Tenure { began: at(0), sent: at(0), ends, kept_until, fences: None, was_held: true }
    }

    fn at(time: u64) -> Moment {
        Moment::at(ms(1_000 + time))
    }

    #[test]
    fn a_turn_is_ten_round_trips_within_its_bounds() {
        assert_eq!(turn(None, Duration::ZERO), ms(20));
        assert_eq!(turn(None, ms(5)), ms(50));
        assert_eq!(turn(None, ms(50)), ms(100));
        assert_eq!(turn(Some(Duration::ZERO), ms(50)), Duration::ZERO);
        assert_eq!(turn(Some(ms(900)), ms(1)), ms(900));
    }

    #[test]
    fn the_bound_of_a_turn_is_not_for_its_first_holder() {
        let mut tenure = tenure(29_000, 30_000);
        let next = Next(ms(30_000), false);
        assert!(tenure.passes_to(&next, ms(10), at(9)) && !tenure.passes_to(&next, ms(10), at(10)));
        assert!(!tenure.passes_to(&next, Duration::ZERO, at(0)));
        tenure.was_held = false;
        assert!(tenure.passes_to(&next, Duration::ZERO, at(10)));
    }

    #[test]
    fn a_pass_needs_half_of_the_next_holders_ttl_or_of_the_confirm_window() {
        let next = |ttl| Next(ms(ttl), false);
        let tenure = tenure(4_948, 5_000);
        assert!(tenure.serves(&next(300_000), at(2_448)), "half of the confirm window is left");
        assert!(!tenure.serves(&next(300_000), at(2_449)));
        assert!(tenure.serves(&next(1_000), at(4_448)), "half of its ttl is left");
        assert!(!tenure.serves(&next(1_000), at(4_449)));
        let first = Tenure { was_held: false, ..tenure };
        assert!(first.serves(&next(300_000), at(2_474)), "half of what was granted is left");
        assert!(!first.serves(&next(300_000), at(2_475)));
        let late = Tenure { ends: at(0), ..first };
        assert!(!late.serves(&next(50), at(0)));
    }

    #[test]
    fn no_tenure_outlasts_its_next_holder_on_the_store() {
        let next = |ttl| Next(ms(ttl), false);
        let tenure = tenure(29_000, 30_000);
        assert!(tenure.serves(&next(30_000), at(0)) && !tenure.serves(&next(29_999), at(0)));
        assert!(tenure.serves(&next(50), at(25_000)) && !tenure.serves(&next(50), at(24_999)));
    }

    #[test]
    fn a_fence_is_for_one_holder() {
        let mut tenure = tenure(29_000, 30_000);
        let fenced = Next(ms(30_000), true);
        assert!(!tenure.serves(&fenced, at(0)));
        tenure.fences = "7".parse().ok();
        assert!(tenure.serves(&fenced, at(0)));
    }
}
