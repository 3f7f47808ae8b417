//! A lock's life, from its grant or its take-up to its end.
//!
//! No I/O, no clock and no mutex. Every event takes the time as an argument and returns
//! [`LifeEffects`], which the owner carries out after it has unlocked the life.
//!
//! - **Held.** The body may rely on the lock until its [`Lease`] ends. A call in flight, or one that
//!   was never answered, may still change what the store has, so the lock is not passed on
//!   meanwhile: the next holder would have the same token.
//! - **Lost.** The lease has ended, or the store has given the lock to another token. The first
//!   event that finds this out tells the queue, so that those who wait go on.
//! - **Over.** The body has ended, or its guard was dropped. No event has an effect any more.
//!
//! Each life has one [`End`]: the lock is passed on, released, or lost.

use std::mem;
use std::time::Duration;

use crate::engine::queue::key_queue::Tenure;
use crate::protocol::lease::Lease;
use crate::sys::backoff::{Backoff, spread};
use crate::sys::time::Moment;
use crate::value::fence::FenceBlock;
use crate::value::loss::LossCause;

/// First pause before a confirmation without an answer is sent again. Each pause is twice as long
/// as the one before, up to eight times this.
const CONFIRM_AGAIN: Duration = Duration::from_millis(250);

/// For how long a caller may hold its lock, and where.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terms {
    pub(crate) ttl: Duration,
    /// Until when the lease is renewed; `None` if it is not.
    pub(crate) renewed_until: Option<Moment>,
    /// The store is several nodes, of which a majority decides.
    pub(crate) has_several_nodes: bool,
}

/// A held lock.
#[derive(Debug, Clone)]
pub(crate) struct Life<T> {
    terms: Terms,
    lease: Lease,
    /// What the process may pass on. Its end is that of the lease.
    tenure: Tenure<T>,
    stage: Stage,
    /// Number of calls in flight.
    in_flight: u32,
    /// When a call was last found to be without an answer. It may still be applied.
    unanswered_at: Option<Moment>,
    /// Number of confirmations in a row without an answer.
    unconfirmed: u32,
    /// It was reported that half of the lease has passed without a renewal.
    is_halved: bool,
    /// A transaction may check the fence, also after the lock has ended. The store refuses a late
    /// one by its next grant, and a lock that is passed on has none.
    is_checked: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Held,
    /// The loss was reported.
    Lost,
    Over,
}

/// A call to the store for a held lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SentCall {
    pub(crate) kind: CallKind,
    pub(crate) at: Moment,
    /// How long the store is asked to keep the lock from its receipt on.
    pub(crate) ttl: Duration,
    /// The rest of the lease.
    pub(crate) left: Duration,
}

/// What a call is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallKind {
    /// Lengthens the lease, or lifts one that was handed off or passed on to its full ttl.
    Renewal,
    /// Asks whether the store has the lock, and has it kept for the rest of the lease. A new server
    /// may have the key without its ttl.
    Confirmation,
    /// Lengthens the lease because the body asks for it.
    Extension,
    /// Must not arrive later than its answer, which tells whether the lock is held.
    #[cfg_attr(not(feature = "reuse"), expect(dead_code, reason = "values are kept so"))]
    Other,
}

/// What happens to a held lock. `jitter` (0 to 1) spreads what is due for many locks at once.
#[derive(Debug, Clone, Copy)]
pub(crate) enum LifeEvent {
    /// The body is about to go on, or asks how long it may.
    Time,
    /// The time of a renewal has come, or the server has changed, or may have.
    Due,
    /// The body asks for a lease of `ttl` from now on.
    Extends { ttl: Duration },
    /// The store has answered whether it has `held` the lock since the call.
    Answered { to: SentCall, held: bool, jitter: f64 },
    /// A renewal or a confirmation has failed, and is sent again.
    Fails { what: CallKind, jitter: f64 },
    /// The body has ended, or its guard was dropped. `stays`: the key has to stay for a while, so
    /// nobody else may have the lock.
    Ends { stays: bool },
}

/// What the owner has to do now, in the order of the fields.
#[derive(Debug)]
#[must_use]
pub(crate) struct LifeEffects<T> {
    /// The lock leaves its holder: tell the queue. Exactly one event of a life has this.
    pub(crate) end: Option<End<T>>,
    /// The body has ended: renew no more, and count the lock as released. Once in a life.
    pub(crate) is_over: bool,
    /// Make this call.
    pub(crate) send: Option<SentCall>,
    /// When [`LifeEvent::Due`] comes next.
    pub(crate) due: Option<Moment>,
    /// Report that half of the lease has passed without a renewal. This much is left.
    pub(crate) halved: Option<Duration>,
    /// Wake those that wait for a loss.
    pub(crate) wakes: bool,
    /// How long the body may rely on the lock, or why it may not.
    pub(crate) left: Result<Duration, LossCause>,
}

/// How a lock leaves its holder.
#[derive(Debug)]
pub(crate) struct End<T> {
    pub(crate) tenure: Tenure<T>,
    pub(crate) how: Ending,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// Pass it on within the turn; else release it.
    PassesOn,
    /// Release it.
    Releases,
    /// Report the loss. `stays`: what is left of the lock is released when the body ends, and not
    /// before.
    Lost { cause: LossCause, stays: bool },
}

impl<T> End<T> {
    /// Whether all of the lock is released, or passed on.
    pub(crate) fn frees(&self) -> bool {
        !matches!(self.how, Ending::Lost { stays: true, .. })
    }
}

impl<T: Clone> Life<T> {
    /// A lock that the store has granted for `granted`, in answer to a command that was sent at
    /// `sent`. `fences` are those that the holder leaves. Returns when it is due first.
    pub(crate) fn granted(
        token: T,
        sent: Moment,
        granted: Duration,
        fences: Option<FenceBlock>,
        terms: Terms,
        now: Moment,
        jitter: f64,
    ) -> (Self, Option<Moment>) {
        let lease = Lease::new(sent, granted, terms.ttl, terms.renewed_until);
        // A lock that was handed off is confirmed while the body runs.
        let is_handed_off = granted < terms.ttl;
        let due = if is_handed_off { Some(now) } else { lease.first_try(sent, jitter) };
        let tenure = Tenure {
            token,
            began: now,
            sent,
            ends: lease.ends(),
            kept_until: now.after(granted),
            fences,
        };
        (Self::new(terms, lease, tenure), due)
    }

    /// A lock that a waiter has taken up. Returns when it is due first.
    pub(crate) fn taken_up(
        tenure: Tenure<T>,
        terms: Terms,
        now: Moment,
        jitter: f64,
    ) -> (Self, Option<Moment>) {
        let lease = Lease::passed(now, tenure.ends, terms.ttl, terms.renewed_until);
        let due = lease.first_try(now, jitter);
        (Self::new(terms, lease, tenure), due)
    }

    fn new(terms: Terms, lease: Lease, tenure: Tenure<T>) -> Self {
        Self {
            terms,
            lease,
            tenure,
            stage: Stage::Held,
            in_flight: 0,
            unanswered_at: None,
            unconfirmed: 0,
            is_halved: false,
            is_checked: false,
        }
    }

    pub(crate) fn on(&mut self, event: LifeEvent, now: Moment) -> LifeEffects<T> {
        let mut effects = LifeEffects {
            end: None,
            is_over: false,
            send: None,
            due: None,
            halved: None,
            wakes: false,
            left: Err(LossCause::Released),
        };
        if let LifeEvent::Answered { to, held, jitter } = event {
            self.in_flight = self.in_flight.saturating_sub(1);
            effects.due = self.answered(to, held, jitter, now);
            effects.wakes = true;
        }
        if self.stage == Stage::Over {
            return effects;
        }
        effects.left = self.lease.remaining(now);
        if let Err(cause) = effects.left
            && self.stage == Stage::Held
        {
            self.stage = Stage::Lost;
            // A body on a blocked thread learns of the loss late. Until then the other nodes may
            // keep others out.
            let stays = cause == LossCause::Taken && self.terms.has_several_nodes;
            effects.end = Some(self.end(Ending::Lost { cause, stays }));
            effects.wakes = true;
        }
        match (event, effects.left) {
            (LifeEvent::Due, Ok(left)) => effects.send = Some(self.renew(now, left)),
            (LifeEvent::Extends { ttl }, Ok(left)) => {
                let ttl = self.lease.extension(ttl, now);
                effects.send = Some(self.sends(CallKind::Extension, ttl, left, now));
            }
            (LifeEvent::Fails { what: CallKind::Renewal, .. }, Ok(left)) => {
                effects.due = Some(self.lease.next_try(now));
                let is_half = left <= self.terms.ttl / 2;
                let is_news = is_half && !mem::replace(&mut self.is_halved, true);
                effects.halved = is_news.then_some(left);
            }
            (LifeEvent::Fails { jitter, .. }, Ok(_)) => {
                let pause = Backoff::new(CONFIRM_AGAIN, CONFIRM_AGAIN * 8);
                let pause = spread(pause.delay_after(self.unconfirmed), jitter);
                self.unconfirmed = self.unconfirmed.saturating_add(1);
                effects.due = Some(now.after(pause));
            }
            (LifeEvent::Ends { stays }, left) => {
                let passes = !stays && !self.is_suspect() && !self.is_checked;
                let how = if passes { Ending::PassesOn } else { Ending::Releases };
                if left.is_ok() {
                    effects.end = Some(self.end(how));
                }
                self.stage = Stage::Over;
                effects.is_over = true;
                effects.wakes = true;
            }
            (LifeEvent::Time | LifeEvent::Answered { .. }, _) => {}
            // Nothing more is done for a lock that is lost.
            (LifeEvent::Due | LifeEvent::Extends { .. } | LifeEvent::Fails { .. }, Err(_)) => {}
        }
        effects
    }

    /// A call is made that changes nothing of the lease.
    #[cfg(feature = "reuse")]
    pub(crate) fn calls(&mut self, now: Moment) -> SentCall {
        self.in_flight += 1;
        SentCall { kind: CallKind::Other, at: now, ttl: Duration::ZERO, left: Duration::ZERO }
    }

    /// A call has no answer: it has failed, or its future was dropped.
    pub(crate) fn unanswered(&mut self, now: Moment) {
        self.in_flight = self.in_flight.saturating_sub(1);
        self.unanswered_at = self.unanswered_at.max(Some(now));
    }

    /// A transaction gets the fence of the lock. That is too late once the lock may have been
    /// passed on: the store does not know of its next holder.
    pub(crate) fn note_fence_check(&mut self) -> Result<(), LossCause> {
        if self.is_over() {
            return Err(LossCause::Released);
        }
        self.is_checked = true;
        Ok(())
    }

    /// The body has ended.
    pub(crate) fn is_over(&self) -> bool {
        self.stage == Stage::Over
    }

    /// Before this moment the body may rely on the lock, whatever [`LifeEvent::Time`] would do.
    /// `None` once it has ended.
    pub(crate) fn relied_until(&self) -> Option<Moment> {
        match self.stage {
            Stage::Held => Some(self.lease.ends()),
            Stage::Lost => Some(Moment::at(Duration::ZERO)),
            Stage::Over => None,
        }
    }

    /// When the lease ends.
    pub(crate) fn ends(&self) -> Moment {
        self.lease.ends()
    }

    /// Until when the store may keep the lock without another command.
    pub(crate) fn kept_until(&self) -> Moment {
        self.tenure.kept_until
    }

    /// When the last command was sent that the store has answered with yes.
    pub(crate) fn sent(&self) -> Moment {
        self.tenure.sent
    }

    fn end(&self, how: Ending) -> End<T> {
        End { tenure: Tenure { ends: self.lease.ends(), ..self.tenure.clone() }, how }
    }

    /// Whether the ttl on the store is uncertain: a call is in flight, or none has succeeded that
    /// was sent after the last one without an answer.
    fn is_suspect(&self) -> bool {
        self.in_flight > 0 || self.unanswered_at >= Some(self.tenure.sent)
    }

    fn renew(&mut self, now: Moment, left: Duration) -> SentCall {
        if self.lease.wants_renewal() {
            let ttl = self.lease.allowed(self.terms.ttl, now);
            self.sends(CallKind::Renewal, ttl, left, now)
        } else {
            let ttl = self.lease.keeps(now).unwrap_or_default();
            self.sends(CallKind::Confirmation, ttl, left, now)
        }
    }

    fn sends(&mut self, kind: CallKind, ttl: Duration, left: Duration, now: Moment) -> SentCall {
        self.in_flight += 1;
        self.tenure.kept_until = self.tenure.kept_until.max(now.after(ttl));
        SentCall { kind, at: now, ttl, left }
    }

    /// Returns when to renew next.
    fn answered(&mut self, to: SentCall, held: bool, jitter: f64, now: Moment) -> Option<Moment> {
        let SentCall { kind, at: sent, .. } = to;
        if !held {
            // A lease that had ended before is reported as expired, not as taken.
            let _ = self.lease.remaining(now);
            self.lease.taken();
            return None;
        }
        // A confirmation does not lengthen the client's lease.
        let ttl = match kind {
            CallKind::Renewal | CallKind::Extension => to.ttl,
            CallKind::Confirmation => Duration::ZERO,
            // Says nothing of the ttl on the store.
            CallKind::Other => return None,
        };
        // The store may have applied the call at any time until now.
        let kept = now.after(ttl.max(self.tenure.kept_until.since(sent)));
        self.tenure.kept_until = self.tenure.kept_until.max(kept);
        self.tenure.sent = self.tenure.sent.max(sent);
        self.is_halved = false;
        self.unconfirmed = 0;
        if kind == CallKind::Extension {
            self.lease.extended(sent, ttl);
        }
        self.lease.renewed(sent, ttl, now).ok()?;
        self.lease.first_try(sent, jitter)
    }
}

/// Until when the store may keep a lock that is taken up for `ttl`, if that is longer than `ttl`
/// from now on: its cleanup has to try until then.
pub(crate) fn kept_beyond<T>(tenure: &Tenure<T>, ttl: Duration, now: Moment) -> Option<Moment> {
    (tenure.kept_until > now.after(ttl)).then_some(tenure.kept_until)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn at(seconds: u32) -> Moment {
        Moment::at(SECOND * seconds)
    }

    /// A lock that was granted for 100 s, and is renewed.
    fn life() -> Life<()> {
        let terms = Terms {
            ttl: SECOND * 100,
            renewed_until: Some(at(u32::MAX)),
            has_several_nodes: false,
        };
        Life::granted((), at(0), terms.ttl, None, terms, at(0), 0.5).0
    }

    fn answered(life: &mut Life<()>, to: SentCall, now: Moment) {
        let effects = life.on(LifeEvent::Answered { to, held: true, jitter: 0.5 }, now);
        assert!(effects.left.is_ok() && effects.wakes);
    }

    fn renew(life: &mut Life<()>, now: Moment) -> SentCall {
        life.on(LifeEvent::Due, now).send.expect("a renewal")
    }

    #[test]
    fn the_end_of_the_ttl_on_the_store_is_known_when_a_renewal_is_sent() {
        let mut life = life();
        let sent = renew(&mut life, at(30));
        assert_eq!(life.kept_until(), at(130));
        answered(&mut life, sent, at(31));
        assert_eq!((life.kept_until(), life.sent()), (at(131), at(30)), "it may have run late");
    }

    #[test]
    fn only_a_renewal_sent_after_the_last_unanswered_one_ends_the_suspicion() {
        let mut life = life();
        let early = renew(&mut life, at(1));
        renew(&mut life, at(2));
        life.unanswered(at(3));
        answered(&mut life, early, at(4));
        assert!(life.is_suspect(), "it was sent before");
        let late = renew(&mut life, at(5));
        assert!(life.is_suspect(), "it is in flight");
        answered(&mut life, late, at(6));
        assert!(!life.is_suspect());
    }

    #[test]
    fn the_pauses_between_unanswered_confirmations_grow() {
        let mut life = life();
        let mut pause = || {
            let event = LifeEvent::Fails { what: CallKind::Confirmation, jitter: 0.5 };
            life.on(event, at(1)).due.unwrap().since(at(1))
        };
        let pauses: Vec<_> = (0..5).map(|_| pause()).collect();
        assert_eq!(pauses, [1, 2, 4, 8, 8].map(|times| CONFIRM_AGAIN * times));
        let sent = SentCall { kind: CallKind::Confirmation, at: at(1), ttl: SECOND, left: SECOND };
        answered(&mut life, sent, at(1));
        let event = LifeEvent::Fails { what: CallKind::Confirmation, jitter: 0.5 };
        assert_eq!(life.on(event, at(1)).due, Some(at(1).after(CONFIRM_AGAIN)));
    }
}
