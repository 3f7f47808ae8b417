//! What a holder knows of the tenure that its lock is part of.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::value::fence::FenceBlock;
use crate::value::time::{LastMoment, Moment};
use crate::value::token::Token;

/// What is known of a tenure.
#[derive(Debug)]
pub(crate) struct InTurn {
    pub(crate) began: Moment,
    /// When the last command was sent that the store has answered with yes.
    sent: LastMoment,
    /// Until when the store may keep the lock without another command.
    kept_until: LastMoment,
    /// Number of renewals in flight.
    in_flight: AtomicU32,
    /// When a renewal was last found to have no answer. It may still arrive.
    troubled: LastMoment,
    /// The fences of the grant for later holders.
    pub(crate) fences: Option<FenceBlock>,
    /// The label of this holder, where the token has that of another one.
    pub(crate) label: Option<Token>,
}

/// An extension in flight. Dropping it leaves the extension without an answer.
pub(crate) struct Extension<'a>(Option<&'a InTurn>);

impl InTurn {
    pub(crate) fn new(began: Moment, sent: Moment, kept_until: Moment) -> Self {
        let (first, last) = (LastMoment::default(), LastMoment::default());
        first.note(sent);
        last.note(kept_until);
        let (in_flight, troubled) = (AtomicU32::new(0), LastMoment::default());
        let (sent, kept_until) = (first, last);
        Self { began, sent, kept_until, in_flight, troubled, fences: None, label: None }
    }

    /// A renewal is sent, after which the store may keep the lock until then.
    pub(crate) fn sends(&self, kept_until: Moment) {
        self.in_flight.fetch_add(1, Ordering::SeqCst);
        self.kept_until.note(kept_until);
    }

    /// The same for an extension, whose caller may be dropped.
    pub(crate) fn extends(&self, kept_until: Moment) -> Extension<'_> {
        self.sends(kept_until);
        Extension(Some(self))
    }

    /// A renewal that was sent at `sent` was answered with yes.
    pub(crate) fn confirmed(&self, sent: Moment, kept_until: Moment) {
        self.kept_until.note(kept_until);
        self.sent.note(sent);
        self.answered();
    }

    /// A renewal was answered.
    pub(crate) fn answered(&self) {
        self.in_flight.fetch_sub(1, Ordering::SeqCst);
    }

    /// A renewal has no answer.
    pub(crate) fn unanswered(&self, now: Moment) {
        // Before it counts as no longer in flight.
        self.troubled.note(now);
        self.answered();
    }

    /// Whether a renewal is in flight, or none was confirmed that was sent after the last one
    /// without an answer.
    pub(crate) fn is_suspect(&self) -> bool {
        self.in_flight.load(Ordering::SeqCst) > 0 || self.troubled.get() >= self.sent.get()
    }

    pub(crate) fn sent(&self) -> Moment {
        self.sent.get()
    }

    pub(crate) fn kept_until(&self) -> Moment {
        self.kept_until.get()
    }
}

impl Extension<'_> {
    /// It was answered.
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
    fn what_the_store_may_keep_is_known_when_a_renewal_is_sent() {
        let turn = InTurn::new(at(1), at(1), at(101));
        assert!(!turn.is_suspect());
        turn.sends(at(150));
        assert_eq!((turn.kept_until(), turn.is_suspect()), (at(150), true));
        turn.confirmed(at(50), at(160));
        assert_eq!((turn.kept_until(), turn.sent()), (at(160), at(50)));
        assert!(!turn.is_suspect());
    }

    #[test]
    fn only_a_yes_that_was_sent_after_the_last_trouble_ends_the_suspicion() {
        let turn = InTurn::new(at(1), at(1), at(101));
        turn.sends(at(150));
        turn.sends(at(155));
        turn.unanswered(at(60));
        turn.confirmed(at(55), at(165));
        assert!(turn.is_suspect(), "it was sent before");
        turn.sends(at(170));
        turn.confirmed(at(70), at(175));
        assert!(!turn.is_suspect());
        drop(turn.extends(at(180)));
        assert!(turn.is_suspect(), "nobody waits for its answer");
        turn.extends(at(180)).answered();
        assert_eq!(turn.in_flight.load(Ordering::Acquire), 1, "the holder notes the answer");
    }
}
