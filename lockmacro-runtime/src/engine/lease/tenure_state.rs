//! The state of a tenure, as its present holder knows it.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::value::fence::FenceBlock;
use crate::value::time::{LastMoment, Moment};
use crate::value::token::Token;

/// The state of the tenure that a held lock is part of.
#[derive(Debug)]
pub(crate) struct TenureState {
    pub(crate) began: Moment,
    /// When the last command was sent that has succeeded.
    sent: LastMoment,
    /// Until when the store may keep the lock without another command.
    kept_until: LastMoment,
    /// Number of renewals in flight.
    in_flight: AtomicU32,
    /// When a renewal was last found to be without an answer. The renewal may still be applied.
    unanswered_at: LastMoment,
    /// The fences of the grant for later holders.
    pub(crate) fences: Option<FenceBlock>,
    /// The label of this holder, where the token has the label of another one.
    pub(crate) label: Option<Token>,
}

/// An extension in flight. Dropping this value records that the extension is without an answer.
pub(crate) struct Extension<'a>(Option<&'a TenureState>);

impl TenureState {
    pub(crate) fn new(began: Moment, sent: Moment, kept_until: Moment) -> Self {
        let (first, last) = (LastMoment::default(), LastMoment::default());
        first.note(sent);
        last.note(kept_until);
        let (in_flight, unanswered_at) = (AtomicU32::new(0), LastMoment::default());
        let (sent, kept_until) = (first, last);
        Self { began, sent, kept_until, in_flight, unanswered_at, fences: None, label: None }
    }

    /// Records that a renewal is sent, which may make the store keep the lock until `kept_until`.
    pub(crate) fn sends(&self, kept_until: Moment) {
        self.in_flight.fetch_add(1, Ordering::SeqCst);
        self.kept_until.note(kept_until);
    }

    /// The same for an extension, whose future may be dropped.
    pub(crate) fn extends(&self, kept_until: Moment) -> Extension<'_> {
        self.sends(kept_until);
        Extension(Some(self))
    }

    /// Records that a renewal that was sent at `sent` has succeeded.
    pub(crate) fn confirmed(&self, sent: Moment, kept_until: Moment) {
        self.kept_until.note(kept_until);
        self.sent.note(sent);
        self.answered();
    }

    /// Records that a renewal was answered.
    pub(crate) fn answered(&self) {
        self.in_flight.fetch_sub(1, Ordering::SeqCst);
    }

    /// Records that a renewal is without an answer.
    pub(crate) fn unanswered(&self, now: Moment) {
        // Noted before the renewal counts as no longer in flight.
        self.unanswered_at.note(now);
        self.answered();
    }

    /// Whether the ttl on the store is uncertain: a renewal is in flight, or no renewal has
    /// succeeded that was sent after the last one without an answer.
    pub(crate) fn is_suspect(&self) -> bool {
        self.in_flight.load(Ordering::SeqCst) > 0 || self.unanswered_at.get() >= self.sent.get()
    }

    pub(crate) fn sent(&self) -> Moment {
        self.sent.get()
    }

    pub(crate) fn kept_until(&self) -> Moment {
        self.kept_until.get()
    }
}

impl Extension<'_> {
    /// The extension was answered.
    pub(crate) fn answered(mut self) {
        self.0 = None;
    }
}

impl Drop for Extension<'_> {
    fn drop(&mut self) {
        if let Some(turn) = self.0 {
            turn.unanswered(Moment::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(ms: u64) -> Moment {
        Moment::at(Duration::from_millis(ms))
    }

    #[test]
    fn the_end_of_the_ttl_on_the_store_is_known_when_a_renewal_is_sent() {
        let turn = TenureState::new(at(1), at(1), at(101));
        assert!(!turn.is_suspect());
        turn.sends(at(150));
        assert_eq!((turn.kept_until(), turn.is_suspect()), (at(150), true));
        turn.confirmed(at(50), at(160));
        assert_eq!((turn.kept_until(), turn.sent()), (at(160), at(50)));
        assert!(!turn.is_suspect());
    }

    #[test]
    fn only_a_renewal_sent_after_the_last_unanswered_one_ends_the_suspicion() {
        let turn = TenureState::new(at(1), at(1), at(101));
        turn.sends(at(150));
        turn.sends(at(155));
        turn.unanswered(at(60));
        turn.confirmed(at(55), at(165));
        assert!(turn.is_suspect(), "it was sent before");
        turn.sends(at(170));
        turn.confirmed(at(70), at(175));
        assert!(!turn.is_suspect());
        drop(turn.extends(at(180)));
        assert!(turn.is_suspect(), "no caller waits for its answer");
        turn.extends(at(180)).answered();
        assert_eq!(turn.in_flight.load(Ordering::Acquire), 1, "the holder notes the answer");
    }
}
