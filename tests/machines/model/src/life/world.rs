//! A process with a held lock, its server, and what happens to both.

use std::time::Duration;

use super::oracles::{Record, Truth};
use crate::engine::lease::life::{
    CallKind, End, Ending, Life, LifeEffects, LifeEvent, SentCall, Terms, kept_beyond,
};
use crate::engine::queue::key_queue::{Event as QueueEvent, Found, KeyQueue, Tenure, Ticket};
use crate::key_queue::server::{Token, Wish};
use crate::sys::time::Moment;

/// How long a message travels at most, and how long a small step of the clock is.
pub(super) const LAG: Duration = Duration::from_millis(100);

/// The extensions that a body asks for: shorter than what is left, and longer.
const SHORT: Duration = Duration::from_millis(200);
const LONG: Duration = Duration::from_secs(10);

/// No jitter.
const MIDDLE: f64 = 0.5;

/// A caller's lock.
#[derive(Debug, Clone, Copy)]
pub(super) struct Setup {
    /// The first holder's ttl, and for how long its lock is granted at first.
    pub(super) ttl: Duration,
    pub(super) granted: Duration,
    /// For how long the first holder renews its lease.
    pub(super) renews: Option<Duration>,
    /// The ttl of the caller that waits, and whether it renews its lease.
    pub(super) next: (Duration, Option<Duration>),
    pub(super) has_several_nodes: bool,
    /// The key stays for a while after its release.
    pub(super) stays: bool,
}

/// How often each thing may happen that need not happen, and how many of them in all.
#[derive(Debug, Clone, Copy)]
pub(super) struct Budget {
    pub(super) all: u8,
    pub(super) lags: u8,
    pub(super) unanswered: u8,
    pub(super) changes: u8,
    pub(super) steals: u8,
    pub(super) extensions: u8,
    pub(super) checks: u8,
    pub(super) calls: u8,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Step {
    /// To the next moment at which anything changes by itself.
    Wait,
    Lag,
    Look,
    Due,
    Arrives(usize),
    Answers(usize),
    Unanswered(usize),
    Extend(Duration),
    Check,
    Call,
    /// The server is replaced, by one that has the key or not.
    Change {
        forgets: bool,
    },
    Steal,
    End,
    TakeUp,
    QueueTime,
}

/// A call, and what the server has answered to it.
#[derive(Debug, Clone)]
pub(super) struct Call {
    pub(super) sent: SentCall,
    /// The number of its event.
    pub(super) number: u32,
    pub(super) held: Option<bool>,
    /// Nobody waits for the answer any more.
    pub(super) is_given_up: bool,
}

/// A holder.
#[derive(Debug, Clone)]
pub(super) struct Holder {
    ticket: Ticket,
    pub(super) life: Life<Token>,
    pub(super) due: Option<Moment>,
    pub(super) calls: Vec<Call>,
    /// Until when its cleanup tries, if that is longer than its ttl.
    pub(super) longest: Option<Moment>,
    pub(super) record: Record,
}

#[derive(Debug, Clone)]
pub(super) struct World {
    pub(super) setup: Setup,
    left: Budget,
    pub(super) now: Moment,
    queue: KeyQueue<Wish, ()>,
    next: Option<Ticket>,
    pub(super) holder: Holder,
    /// What the server has: the token of the process, until then.
    pub(super) key: Option<Moment>,
    /// When the process has heard of a change of the server.
    pub(super) changed: Option<Moment>,
    pub(super) truth: Truth,
    /// The lock is at the store again.
    is_over: bool,
}

impl World {
    pub(super) fn new(setup: Setup, left: Budget) -> Self {
        let token = Token { number: 1, ..Token::default() };
        let sent = Moment::at(Duration::from_secs(100));
        let now = sent.after(LAG);
        let mut queue = KeyQueue::default();
        let micros = |ttl: Duration| ttl.as_micros() as u64;
        let wish = Wish { token, ttl: micros(setup.ttl), fenced: false, waits: false };
        let _ = queue.arrive(wish, token, false, now.after(LAG));
        let ticket = queue.last();
        let _ = queue.granted_to(ticket);
        let wish = Wish { token, ttl: micros(setup.next.0), fenced: false, waits: true };
        let _ = queue.arrive(wish, token, false, now.after(LAG));
        let next = Some(queue.last());
        let renewed_until = setup.renews.map(|renews| sent.after(renews));
        let has_several_nodes = setup.has_several_nodes;
        let terms = Terms { ttl: setup.ttl, renewed_until, has_several_nodes };
        let (life, due) = Life::granted(token, sent, setup.granted, None, terms, now, MIDDLE);
        let record =
            Record::new(sent, setup.ttl, setup.granted, renewed_until, setup.granted < setup.ttl);
        let holder = Holder { ticket, life, due, calls: Vec::new(), longest: None, record };
        Self {
            setup,
            left,
            now,
            queue,
            next,
            holder,
            // As late as it can be.
            key: Some(now.after(setup.granted)),
            changed: None,
            truth: Truth::default(),
            is_over: false,
        }
    }

    pub(super) fn steps(&self) -> Vec<Step> {
        if self.is_over {
            return Vec::new();
        }
        let mut steps = Vec::new();
        let Holder { life, due, calls, .. } = &self.holder;
        // A message arrives in time, or never.
        let arrives = calls.iter().filter(|call| call.held.is_none() && !call.is_given_up);
        let until = arrives.map(|call| call.sent.at.after(LAG)).min();
        let may_wait = |next: Moment| until.is_none_or(|until| next <= until);
        if self.next_moment().is_some_and(may_wait) {
            steps.push(Step::Wait);
        }
        if self.queue.due().is_some_and(|due| due <= self.now) {
            steps.push(Step::QueueTime);
        }
        if self.queue.offered().is_some() {
            steps.push(Step::TakeUp);
        }
        if !life.is_over() {
            steps.push(Step::End);
            // The next renewal is planned after the answer to the last one.
            let is_running = |call: &Call| is_timed(call.sent.kind) && !call.is_given_up;
            if due.is_some_and(|due| due <= self.now) && !calls.iter().any(is_running) {
                steps.push(Step::Due);
            }
            if self.now >= life.ends() && !self.holder.record.is_told() {
                steps.push(Step::Look);
            }
        }
        for (nth, call) in calls.iter().enumerate() {
            match call.held {
                None => steps.push(Step::Arrives(nth)),
                Some(_) if !call.is_given_up && !life.is_over() => steps.push(Step::Answers(nth)),
                Some(_) => {}
            }
            if self.may(self.left.unanswered) && !call.is_given_up && !life.is_over() {
                steps.push(Step::Unanswered(nth));
            }
        }
        if self.left.lags > 0 && may_wait(self.now.after(LAG)) {
            steps.push(Step::Lag);
        }
        if self.may(self.left.changes) {
            steps.extend([true, false].map(|forgets| Step::Change { forgets }));
        }
        if self.may(self.left.steals) && self.key.is_some() {
            steps.push(Step::Steal);
        }
        if !life.is_over() && !self.holder.record.is_told() {
            if self.may(self.left.extensions) {
                steps.extend([SHORT, LONG].map(Step::Extend));
            }
            if self.may(self.left.checks) {
                steps.push(Step::Check);
            }
            if self.may(self.left.calls) {
                steps.push(Step::Call);
            }
        }
        steps
    }

    fn may(&self, left: u8) -> bool {
        self.left.all > 0 && left > 0
    }

    fn next_moment(&self) -> Option<Moment> {
        let Holder { life, due, .. } = &self.holder;
        let of_life = [Some(life.ends()), *due].map(|at| at.filter(|_| !life.is_over()));
        let all = of_life.into_iter().chain([self.key, self.queue.due()]).flatten();
        all.filter(|at| *at > self.now).min()
    }

    pub(super) fn take(&mut self, step: Step) -> Result<(), String> {
        let spent = match step {
            Step::Unanswered(_) => Some(&mut self.left.unanswered),
            Step::Change { .. } => Some(&mut self.left.changes),
            Step::Steal => Some(&mut self.left.steals),
            Step::Extend(_) => Some(&mut self.left.extensions),
            Step::Check => Some(&mut self.left.checks),
            Step::Call => Some(&mut self.left.calls),
            _ => None,
        };
        if let Some(spent) = spent {
            *spent -= 1;
            self.left.all -= 1;
        }
        match step {
            Step::Wait => self.now = self.next_moment().unwrap_or(self.now),
            Step::Lag => {
                self.left.lags -= 1;
                self.now = self.now.after(LAG);
            }
            Step::Look => self.on(LifeEvent::Time)?,
            Step::Due => {
                self.holder.due = None;
                self.on(LifeEvent::Due)?;
            }
            Step::Arrives(nth) => self.arrives(nth),
            Step::Answers(nth) => self.answers(nth)?,
            Step::Unanswered(nth) => self.unanswered(nth)?,
            Step::Extend(ttl) => self.on(LifeEvent::Extends { ttl })?,
            Step::Check => {
                let noted = self.holder.life.note_fence_check();
                noted.map_err(|cause| format!("check: {cause:?} before the end"))?;
                self.holder.record.is_checked = true;
            }
            Step::Call => {
                let sent = self.holder.life.calls(self.now);
                self.send(sent);
            }
            Step::Change { forgets } => {
                self.truth.trouble(self.now);
                self.truth.is_excused |= forgets;
                self.key = self.key.filter(|_| !forgets);
                self.changed = Some(self.now);
                // The table of timers has every lease confirmed.
                self.holder.due = Some(self.now);
            }
            Step::Steal => {
                self.key = None;
                self.truth.is_excused = true;
            }
            Step::End => self.on(LifeEvent::Ends { stays: self.setup.stays })?,
            Step::TakeUp => self.take_up()?,
            Step::QueueTime => {
                let _ = self.queue.on(QueueEvent::Time, self.now);
                self.is_over = self.queue.offered().is_none() && self.holder.life.is_over();
            }
        }
        // The server forgets a key whose ttl is over.
        self.key = self.key.filter(|until| *until > self.now);
        let is_late = |call: &Call| call.held.is_none() && call.sent.at.after(LAG) < self.now;
        self.holder.calls.retain(|call| !is_late(call));
        self.check()
    }

    fn send(&mut self, sent: SentCall) {
        let number = self.truth.next();
        self.holder.calls.push(Call { sent, number, held: None, is_given_up: false });
    }

    /// A call arrives at the server.
    fn arrives(&mut self, nth: usize) {
        let call = &mut self.holder.calls[nth];
        call.held = Some(self.key.is_some());
        if call.sent.kind != CallKind::Other {
            // The server never shortens a ttl.
            self.key = self.key.map(|until| until.max(self.now.after(call.sent.ttl)));
        }
        if call.is_given_up {
            self.holder.calls.remove(nth);
        }
    }

    fn answers(&mut self, nth: usize) -> Result<(), String> {
        let Call { sent, number, held, .. } = self.holder.calls.remove(nth);
        let held = held == Some(true);
        if held && sent.kind != CallKind::Other {
            self.truth.yes(number, sent.at);
            // Earlier calls do not arrive any more.
            self.holder.calls.retain(|call| call.number > number || !call.is_given_up);
        }
        self.holder.record.answered(&sent, held);
        let before = self.holder.life.ends();
        self.on(LifeEvent::Answered { to: sent, held, jitter: MIDDLE })?;
        self.check_answer(&sent, held, before)
    }

    fn unanswered(&mut self, nth: usize) -> Result<(), String> {
        let call = &mut self.holder.calls[nth];
        call.is_given_up = true;
        let what = call.sent.kind;
        if call.held.is_some() {
            self.holder.calls.remove(nth);
        }
        self.truth.trouble(self.now);
        self.truth.has_unanswered = true;
        self.holder.life.unanswered(self.now);
        if is_timed(what) {
            self.on(LifeEvent::Fails { what, jitter: MIDDLE })?;
        }
        Ok(())
    }

    /// What the owner of the life does.
    fn on(&mut self, event: LifeEvent) -> Result<(), String> {
        let was_over = self.holder.life.is_over();
        let effects = self.holder.life.on(event, self.now);
        self.check_effects(&event, &effects, was_over)?;
        let LifeEffects { end, is_over, send, due, .. } = effects;
        if let Some(sent) = send {
            if sent.kind == CallKind::Extension {
                self.holder.longest = self.holder.longest.max(Some(sent.at.after(sent.ttl)));
            }
            self.send(sent);
        }
        // The answer to an extension leaves the timer as it is.
        let is_for_timer = match event {
            LifeEvent::Answered { to, .. } => is_timed(to.kind),
            _ => true,
        };
        let dues = [due.filter(|_| is_for_timer), self.holder.due];
        self.holder.due = dues.into_iter().flatten().min();
        match end {
            Some(End { tenure, how }) => self.ends(tenure, how)?,
            // What a loss has left.
            None if is_over => self.check_cleanup()?,
            None => {}
        }
        self.is_over = self.holder.life.is_over() && self.queue.offered().is_none();
        Ok(())
    }

    /// The lock leaves its holder.
    fn ends(&mut self, tenure: Tenure<Token>, how: Ending) -> Result<(), String> {
        let passes = how == Ending::PassesOn;
        if passes {
            self.check_pass(&tenure)?;
        }
        let turn = if passes { Duration::MAX } else { Duration::ZERO };
        let by = self.holder.ticket;
        let changed = self.changed.filter(|_| passes);
        let _ = self.queue.on(QueueEvent::Ends { by, tenure, turn, changed }, self.now);
        if self.queue.offered().is_some() {
            return self.check_offer();
        }
        self.check_cleanup()?;
        if !matches!(how, Ending::Lost { stays: true, .. }) {
            self.key = None;
        }
        Ok(())
    }

    fn take_up(&mut self) -> Result<(), String> {
        let Some(ticket) = self.next else { return Ok(()) };
        let changed = self.changed;
        let (found, _) = self.queue.poll(ticket, |_| Some(()), || changed, self.now);
        let Found::Lock(tenure) = found else {
            self.is_over = self.queue.offered().is_none();
            return Ok(());
        };
        self.check_take_up()?;
        self.next = None;
        let (ttl, renews) = self.setup.next;
        let renewed_until = renews.map(|renews| self.now.after(renews));
        let longest = kept_beyond(&tenure, ttl, self.now);
        let has_several_nodes = self.setup.has_several_nodes;
        let terms = Terms { ttl, renewed_until, has_several_nodes };
        let granted = tenure.ends.since(self.now);
        let (life, due) = Life::taken_up(tenure, terms, self.now, MIDDLE);
        let record = Record::new(self.now, ttl, granted, renewed_until, false);
        record.check_plan(due, life.ends())?;
        let calls = std::mem::take(&mut self.holder.calls);
        let calls = calls.into_iter().filter(|call| call.is_given_up).collect();
        self.holder = Holder { ticket, life, due, calls, longest, record };
        Ok(())
    }

    /// Everything by which a state differs from others.
    pub(super) fn key(&self) -> String {
        format!("{self:?}")
    }
}

/// Whether the table of timers makes such a call.
pub(super) fn is_timed(kind: CallKind) -> bool {
    matches!(kind, CallKind::Renewal | CallKind::Confirmation)
}
