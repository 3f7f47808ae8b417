//! What has to hold in every state. None of it is asked of the life itself, but for what it tells
//! the body.

use std::time::Duration;

use super::world::{LAG, World, is_timed};
use crate::engine::lease::life::{CallKind, Ending, LifeEffects, LifeEvent, SentCall};
use crate::engine::queue::key_queue::Tenure;
use crate::key_queue::server::Token;
use crate::sys::time::Moment;
use crate::value::loss::LossCause;

/// The allowance of a lease for the drift of the clocks.
fn counted(ttl: Duration) -> Duration {
    ttl - ttl / 100 - Duration::from_millis(2)
}

/// What has become of the lock at the server.
#[derive(Debug, Clone, Default)]
pub(super) struct Truth {
    /// The number of the last call or trouble.
    last: u32,
    /// The last time that the server may have lost the lock, or that a call was found to be without
    /// an answer.
    trouble: Option<(u32, Moment)>,
    /// The last call that was answered with yes.
    yes: Option<(u32, Moment)>,
    /// A call was without an answer.
    pub(super) has_unanswered: bool,
    /// The key is gone for a reason that the process cannot know of.
    pub(super) is_excused: bool,
}

impl Truth {
    pub(super) fn next(&mut self) -> u32 {
        self.last += 1;
        self.last
    }

    pub(super) fn trouble(&mut self, now: Moment) {
        self.trouble = Some((self.next(), now));
    }

    pub(super) fn yes(&mut self, number: u32, sent: Moment) {
        self.yes = self.yes.max(Some((number, sent)));
    }

    /// The server has said yes to a call that was sent after the last trouble.
    fn is_vouched_for(&self) -> bool {
        self.trouble.is_none_or(|(number, _)| self.yes.is_some_and(|(yes, _)| number < yes))
    }

    /// The same, and the clock has gone on between the two.
    fn is_clearly_vouched_for(&self) -> bool {
        self.trouble.is_none_or(|(_, at)| self.yes.is_some_and(|(_, sent)| at < sent))
    }
}

/// What has become of a holder.
#[derive(Debug, Clone)]
pub(super) struct Record {
    ttl: Duration,
    /// When the lock of its ttl ends that it has asked for.
    own_end: Moment,
    /// Until when it renews its lease.
    renewed_until: Option<Moment>,
    /// The latest end that the body has asked for.
    extended: Option<Moment>,
    /// The lock was granted for less than its ttl, and that was not confirmed yet.
    is_partly_granted: bool,
    /// It lasts for its ttl from the confirmation on, and not from the grant.
    is_handed_off: bool,
    /// How the lock has left the holder.
    end: Option<Ending>,
    pub(super) is_checked: bool,
}

impl Record {
    pub(super) fn new(
        began: Moment,
        ttl: Duration,
        granted: Duration,
        renewed_until: Option<Moment>,
        is_handed_off: bool,
    ) -> Self {
        let own_end = began.after(counted(ttl));
        Self {
            ttl,
            own_end: renewed_until.map_or(own_end, |until| own_end.min(until)),
            renewed_until,
            extended: None,
            is_partly_granted: granted < counted(ttl),
            is_handed_off,
            end: None,
            is_checked: false,
        }
    }

    /// The body was told of a loss.
    pub(super) fn is_told(&self) -> bool {
        matches!(self.end, Some(Ending::Lost { .. }))
    }

    pub(super) fn answered(&mut self, sent: &SentCall, held: bool) {
        match sent.kind {
            CallKind::Renewal if held => {
                if self.is_handed_off && self.is_partly_granted && self.renewed_until.is_none() {
                    self.own_end = sent.at.after(counted(self.ttl));
                }
                self.is_partly_granted = false;
            }
            CallKind::Extension if held => {
                self.extended = self.extended.max(Some(sent.at.after(counted(sent.ttl))));
                self.is_partly_granted &= sent.ttl < self.ttl;
            }
            _ => {}
        }
    }

    /// Whether the lease may still be lengthened, or lifted to its ttl.
    fn wants_renewal(&self, ends: Moment) -> bool {
        self.is_partly_granted && ends < self.own_end
            || self.renewed_until.is_some_and(|until| ends < until)
    }

    /// A renewal is planned that comes in time.
    pub(super) fn check_plan(&self, due: Option<Moment>, ends: Moment) -> Result<(), String> {
        if self.wants_renewal(ends) && due.is_none_or(|due| due >= ends) {
            return Err(format!("plan: the lease ends at {ends:?}, and the next try is {due:?}"));
        }
        Ok(())
    }
}

fn unless(holds: bool, oracle: &str, what: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(format!("{oracle}: {what}")) }
}

impl World {
    /// What the body is told if it asks now.
    fn told(&self) -> Result<Duration, LossCause> {
        self.holder.life.clone().on(LifeEvent::Time, self.now).left
    }

    /// Holds after every step.
    pub(super) fn check(&self) -> Result<(), String> {
        let record = &self.holder.record;
        let is_over = self.holder.life.is_over();
        let until = self.holder.life.relied_until();
        unless(until.is_none() == is_over, "told", "over, and relied on, or the other way round")?;
        if is_over {
            let late = self.holder.life.clone().note_fence_check();
            unless(late.is_err(), "check", "the fence of a lock is checked that was passed on")?;
            let late = self.holder.life.clone().on(LifeEvent::Due, self.now).send;
            unless(late.is_none(), "quiet", "a lock that has ended is renewed")?;
            return unless(record.end.is_some(), "ends", "over, and no end was told");
        }
        let left = self.told();
        let is_relied_on = until.is_some_and(|until| self.now < until);
        unless(is_relied_on == left.is_ok(), "told", "a body relies on what it is not told")?;
        if record.end.is_some() {
            return unless(left.is_err(), "told", "a lock that has ended is relied on");
        }
        let Ok(left) = left else { return Ok(()) };
        let is_asking =
            self.holder.calls.iter().any(|call| is_timed(call.sent.kind) && !call.is_given_up);
        let wants_renewal = record.wants_renewal(self.holder.life.ends());
        let is_planned = is_asking || !wants_renewal || self.holder.due.is_some();
        unless(is_planned, "plan", "no renewal is planned, and none is under way")?;
        let until = self.now.after(left);
        let is_there = self.key.is_some_and(|key| until <= key);
        unless(is_there || self.truth.is_excused, "belief", "the lease outlasts the key")?;
        let longest = match record.renewed_until {
            Some(until) => Some(until),
            None => record.extended.max(Some(record.own_end)),
        };
        unless(Some(until) <= longest, "longest", "held for longer than was asked for")
    }

    /// Holds for the effects of every event.
    pub(super) fn check_effects(
        &mut self,
        event: &LifeEvent,
        effects: &LifeEffects<Token>,
        was_over: bool,
    ) -> Result<(), String> {
        let ends = matches!(event, LifeEvent::Ends { .. });
        unless(effects.is_over == (ends && !was_over), "ends", "over without its end")?;
        let asks = matches!(event, LifeEvent::Due | LifeEvent::Extends { .. }) && !was_over;
        let is_sent = !asks || effects.left.is_err() || effects.send.is_some();
        unless(is_sent, "plan", "a call that is due is not made")?;
        let record = &mut self.holder.record;
        let was_told = record.is_told();
        if was_over || record.end.is_some() {
            unless(effects.end.is_none(), "once", "a lock has ended twice")?;
            unless(effects.send.is_none(), "quiet", "a lock that has ended is renewed")?;
            unless(effects.due.is_none(), "quiet", "a lock that has ended is to be renewed")?;
        }
        if let Some(end) = &effects.end {
            record.end = Some(end.how);
        }
        let Some(end) = record.end else {
            return unless(effects.left.is_ok(), "told", "lost, and nobody is told");
        };
        match end {
            Ending::Lost { cause, stays } => {
                unless(effects.left.is_err() || ends, "told", "lost and relied on")?;
                let is_in_part = self.setup.has_several_nodes && cause == LossCause::Taken;
                unless(stays == is_in_part, "nodes", "what is left is released at the wrong time")?;
                let is_news = effects.end.is_some();
                unless(was_told || is_news, "once", "a loss without news")?;
                let is_woken = !is_news || effects.wakes;
                unless(is_woken, "told", "those that wait for a loss are not woken")
            }
            Ending::PassesOn => unless(!self.setup.stays, "stays", "passed on, and stays"),
            Ending::Releases => {
                let is_doubtful = !self.truth.is_clearly_vouched_for()
                    || self.holder.calls.iter().any(|call| !call.is_given_up)
                    || self.holder.record.is_checked
                    || self.setup.stays;
                unless(is_doubtful, "waits", "a lock in no doubt is not passed on")
            }
        }
    }

    /// The store has answered.
    pub(super) fn check_answer(
        &self,
        sent: &SentCall,
        held: bool,
        before: Moment,
    ) -> Result<(), String> {
        let holder = &self.holder;
        let (record, ends) = (&holder.record, holder.life.ends());
        unless(before <= ends, "shorter", "an answer has shortened the lease")?;
        if !held {
            return unless(record.is_told(), "told", "the lock is gone, and nobody is told");
        }
        if record.end.is_some() {
            return Ok(());
        }
        let is_late = sent.kind != CallKind::Other && before <= self.now;
        unless(!is_late, "told", "an answer after its end has brought a lease back")?;
        if sent.kind == CallKind::Renewal {
            let until = sent.at.after(counted(record.ttl));
            let until = match record.renewed_until {
                Some(limit) => until.min(limit),
                None => until.min(record.own_end),
            };
            unless(until <= ends, "shorter", "a renewal has not brought what it asks for")?;
        }
        if sent.kind == CallKind::Extension {
            let until = sent.at.after(counted(sent.ttl));
            let until = record.renewed_until.map_or(until, |limit| until.min(limit));
            unless(until <= ends, "shorter", "an extension has not brought what it asks for")?;
        }
        if is_timed(sent.kind) {
            record.check_plan(holder.due, ends)?;
        }
        Ok(())
    }

    /// The holder says that the lock may be passed on.
    pub(super) fn check_pass(&self, tenure: &Tenure<Token>) -> Result<(), String> {
        let in_flight = self.holder.calls.iter().any(|call| !call.is_given_up);
        unless(!in_flight, "doubt", "passed on with a call in flight")?;
        unless(!self.holder.record.is_checked, "doubt", "passed on with a fence that is checked")?;
        // A call without an answer is counted from when it was sent.
        let later = if self.truth.has_unanswered { LAG } else { Duration::ZERO };
        let kept_until = tenure.kept_until.after(later);
        let is_known = self.key.is_none_or(|until| until <= kept_until);
        unless(is_known, "killed", "the store keeps the key for longer than is known")
    }

    /// A waiter may take the lock up.
    pub(super) fn check_offer(&self) -> Result<(), String> {
        unless(self.truth.is_vouched_for(), "doubt", "passed on without a yes since the trouble")
    }

    /// A waiter takes the lock up.
    pub(super) fn check_take_up(&self) -> Result<(), String> {
        let is_vouched_for = self.truth.is_vouched_for();
        unless(is_vouched_for, "doubt", "taken up without a yes since the trouble")?;
        let is_there = self.key.is_some() || self.truth.is_excused;
        unless(is_there, "belief", "a lock was taken up that the store does not have")
    }

    /// The lock is released, until that is answered or the cleanup gives up.
    pub(super) fn check_cleanup(&self) -> Result<(), String> {
        let own = self.now.after(self.holder.record.ttl);
        let until = self.holder.longest.map_or(own, |longest| own.max(longest));
        // An extension is counted from before it was sent.
        let is_covered = self.key.is_none_or(|key| key <= until.after(LAG * 3));
        unless(is_covered, "cleanup", "the key outlasts the cleanup")
    }
}
