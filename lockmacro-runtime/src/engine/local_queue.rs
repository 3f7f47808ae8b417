//! The callers of one process for one key: their queue, and the caller that has the lock or asks
//! the store for it. No I/O; every time is an argument.
//!
//! All in one file, as every event may move the queue to each of its states.

use std::collections::VecDeque;
use std::mem;
use std::time::Duration;

use crate::engine::turn::{Tenure, Wants};
use crate::value::error::LockError;
use crate::value::limits::CONFIRM_WINDOW;
use crate::value::time::Moment;

/// Time in which a caller takes up a lock that was passed to it. It doubles with each lapse.
pub(crate) const TAKE_UP: Duration = Duration::from_millis(50);

/// Number of a caller, in the order of arrival.
pub(crate) type Ticket = u64;

/// The queue of a key. `T` is the token that a tenure goes with, `C` a caller, and `W` its waker.
#[derive(Debug)]
pub(crate) struct LocalQueue<T, C, W> {
    last: Ticket,
    waiters: VecDeque<Waiter<C, W>>,
    /// Number of undecided waiters that leave if the lock is busy.
    leaving_if_busy: usize,
    /// Number of waiters that want a fence.
    fenced: usize,
    state: State<T>,
    /// Number of callers whose own request is in flight, though the queue does not wait for it any
    /// more.
    lapsed: usize,
    /// Number of the last request for the queue.
    request: u64,
}

#[derive(Debug)]
struct Waiter<C, W> {
    ticket: Ticket,
    caller: C,
    /// The waiter is refused by the first answer that another holder has the lock.
    leaves_if_busy: bool,
    /// The waiter has not taken up a pass, and was not polled since.
    asleep: bool,
    lapses: u32,
    verdict: Option<Verdict>,
    waker: Option<W>,
}

/// Why a caller does not get the lock.
#[derive(Debug)]
pub(crate) enum Verdict {
    Busy,
    Failed(Box<LockError>),
}

#[derive(Debug)]
enum State<T> {
    /// No caller has the lock, or asks for it.
    Idle,
    /// A caller asks the store for itself.
    Asking {
        by: Ticket,
        since: Moment,
    },
    /// The request of this number asks the store for the first waiter.
    Requested {
        request: u64,
        answered: bool,
    },
    Held {
        by: Ticket,
    },
    /// The lock was passed to a caller that has not taken it up.
    Passed {
        to: Ticket,
        at: Moment,
        lapses: Moment,
        tenure: Tenure,
        token: T,
    },
}

/// The effects of an event, to be carried out after the queue's mutex is unlocked.
#[derive(Debug)]
#[must_use]
pub(crate) struct Effects<T, W> {
    pub(crate) wake: Vec<W>,
    /// A waker that is not used any more. Dropping it may run code of the caller.
    pub(crate) unused: Option<W>,
    /// Send a request of this number for the first caller.
    pub(crate) request: Option<u64>,
    /// Withdraw the present request.
    pub(crate) withdraw: bool,
    /// Release a lock whose tenure has ended. The request is sent first, so the key is not free in
    /// between.
    pub(crate) release: Option<T>,
}

/// The state in which a caller starts.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// The caller asks the store for itself.
    Asks(Ticket),
    /// The caller waits in the queue.
    Waits(Ticket),
    /// The caller is refused at once.
    Busy,
}

/// The state of a waiter when it is polled.
#[derive(Debug)]
pub(crate) enum Found<T> {
    Nothing,
    Refused(Verdict),
    /// The waiter has the lock.
    Lock(Tenure, T),
}

impl<T, W> Default for Effects<T, W> {
    fn default() -> Self {
        let (wake, unused, request, withdraw, release) = (Vec::new(), None, None, false, None);
        Self { wake, unused, request, withdraw, release }
    }
}

impl<T, C, W> Default for LocalQueue<T, C, W> {
    fn default() -> Self {
        let (last, leaving_if_busy, fenced, lapsed, request) = Default::default();
        let (waiters, state) = (VecDeque::new(), State::Idle);
        Self { last, waiters, leaving_if_busy, fenced, state, lapsed, request }
    }
}

impl<T, C: Wants, W> LocalQueue<T, C, W> {
    /// A caller arrives. A caller that does not wait is refused at once while another caller of
    /// this process has the lock, or waits for it.
    pub(crate) fn arrive(&mut self, waits: bool, now: Moment) -> Arrival {
        let ticket = self.last + 1;
        let known_busy = match &self.state {
            State::Idle => {
                self.last = ticket;
                self.state = State::Asking { by: ticket, since: now };
                return Arrival::Asks(ticket);
            }
            State::Asking { .. } => false,
            State::Requested { answered, .. } => *answered,
            State::Held { .. } | State::Passed { .. } => true,
        };
        if known_busy && !waits {
            return Arrival::Busy;
        }
        self.last = ticket;
        Arrival::Waits(ticket)
    }

    /// A caller that has [arrived](LocalQueue::arrive) waits. `leaves_if_busy`: the caller waits
    /// only for the answer to the request that is in flight.
    pub(crate) fn wait(&mut self, ticket: Ticket, caller: C, leaves_if_busy: bool) {
        self.insert(ticket, caller, leaves_if_busy);
        self.shorten_pass();
    }

    /// The caller that asked the store for itself has the lock. Returns whether the queue had
    /// waited for the answer; if not, the lock is no tenure of the queue.
    pub(crate) fn asker_granted(&mut self, ticket: Ticket) -> (bool, Effects<T, W>) {
        let mut effects = Effects::default();
        let is_ours = self.is_asked_by(ticket);
        if is_ours {
            self.state = State::Held { by: ticket };
            self.refuse_if_busy(&mut effects);
        } else {
            self.lapsed = self.lapsed.saturating_sub(1);
        }
        (is_ours, effects)
    }

    /// The caller that asked the store for itself found the lock busy. It waits in the queue if
    /// `caller` is given.
    pub(crate) fn asker_refused(&mut self, ticket: Ticket, caller: Option<C>) -> Effects<T, W> {
        let mut effects = Effects::default();
        let was_asked = self.is_asked_by(ticket);
        if was_asked {
            self.refuse_if_busy(&mut effects);
        }
        self.asker_leaves(ticket, caller, was_asked, &mut effects);
        effects
    }

    /// The request of the caller that asked the store for itself has failed. The caller waits in
    /// the queue if `caller` is given.
    pub(crate) fn asker_failed(&mut self, ticket: Ticket, caller: Option<C>) -> Effects<T, W> {
        let mut effects = Effects::default();
        self.asker_leaves(ticket, caller, false, &mut effects);
        effects
    }

    fn asker_leaves(
        &mut self,
        ticket: Ticket,
        caller: Option<C>,
        answered: bool,
        effects: &mut Effects<T, W>,
    ) {
        if let Some(caller) = caller {
            self.insert(ticket, caller, false);
        }
        let is_asked = self.is_asked_by(ticket);
        if !is_asked {
            self.lapsed = self.lapsed.saturating_sub(1);
        }
        if is_asked || matches!(self.state, State::Idle) {
            self.ask_next(answered, effects);
        }
    }

    /// A waiter is dropped, or its wait is over.
    pub(crate) fn leave(&mut self, ticket: Ticket, turn: Duration, now: Moment) -> Effects<T, W> {
        let mut effects = Effects::default();
        if let Ok(at) = self.find(ticket) {
            effects.unused = self.remove(at);
        }
        match self.state {
            State::Passed { to, .. } if to == ticket => self.pass_again(turn, now, &mut effects),
            // The waiter had the lock, and no guard was made of it.
            State::Held { by } if by == ticket => {
                self.ask_next(false, &mut effects);
            }
            _ => self.withdraw_for_nobody(&mut effects),
        }
        effects
    }

    /// A waiter is polled. `is_sound` returns whether a tenure may be relied on. `waker` makes a
    /// new waker if the last one would not wake this task.
    pub(crate) fn poll(
        &mut self,
        ticket: Ticket,
        is_sound: impl FnOnce(&Tenure) -> bool,
        waker: impl FnOnce(Option<&W>) -> Option<W>,
        now: Moment,
    ) -> (Found<T>, Effects<T, W>) {
        let mut effects = Effects::default();
        let Ok(at) = self.find(ticket) else { return (Found::Nothing, effects) };
        let was_asleep = mem::take(&mut self.waiters[at].asleep);
        if let Some(refused) = self.take_verdict(at, &mut effects) {
            return (refused, effects);
        }
        match mem::replace(&mut self.state, State::Idle) {
            State::Passed { to, tenure, token, .. } if to == ticket => {
                if tenure.serves(&self.waiters[at].caller, now) && is_sound(&tenure) {
                    self.state = State::Held { by: ticket };
                    effects.unused = self.remove(at);
                    return (Found::Lock(tenure, token), effects);
                }
                effects.release = Some(token);
                self.ask_next(false, &mut effects);
            }
            // All waiters were asleep, so the queue has released the lock or withdrawn its request.
            State::Idle => self.ask_next(false, &mut effects),
            other => self.state = other,
        }
        if was_asleep {
            self.shorten_pass();
        }
        let waiter = &mut self.waiters[at];
        if let Some(waker) = waker(waiter.waker.as_ref()) {
            effects.unused = waiter.waker.replace(waker);
        }
        (Found::Nothing, effects)
    }

    /// The holder ends. Passes the lock to the next caller if `tenure` is given and allows it;
    /// `token` makes the token that goes with the lock. Returns whether the lock was passed on. If
    /// it was not and another caller waits, the token is released along with the request for that
    /// caller.
    pub(crate) fn release(
        &mut self,
        by: Ticket,
        tenure: Option<Tenure>,
        token: impl FnOnce() -> Option<T>,
        turn: Duration,
        now: Moment,
    ) -> (bool, Effects<T, W>) {
        let mut effects = Effects::default();
        if self.holder() != Some(by) {
            return (false, effects);
        }
        if let Some(tenure) = tenure
            && let Some(next) = self.next()
            && tenure.passes_to(&self.waiters[next].caller, turn, now)
        {
            return match token() {
                Some(token) => {
                    self.pass(next, tenure, token, now, &mut effects);
                    (true, effects)
                }
                // The lock was released already.
                None => {
                    self.ask_next(false, &mut effects);
                    (false, effects)
                }
            };
        }
        self.ask_next(false, &mut effects);
        if effects.request.is_some() {
            effects.release = token();
        }
        (false, effects)
    }

    /// The holder has lost the lock, maybe before the grant was reported to the queue. Returns
    /// whether another caller waits.
    pub(crate) fn lost(&mut self, by: Ticket) -> (bool, Effects<T, W>) {
        let mut effects = Effects::default();
        let waits = self.next().is_some();
        if self.is_asked_by(by) {
            // Until this caller reports the end of its request.
            self.lapsed += 1;
            self.ask_next(false, &mut effects);
        } else if self.holder() == Some(by) {
            self.ask_next(false, &mut effects);
        }
        (waits, effects)
    }

    /// The request of the queue was granted.
    pub(crate) fn granted(
        &mut self,
        request: u64,
        tenure: Tenure,
        token: T,
        now: Moment,
    ) -> Effects<T, W> {
        let mut effects = Effects::default();
        if !self.is_requested(request) {
            effects.release = Some(token);
            return effects;
        }
        match self.next() {
            Some(next) if tenure.passes_to(&self.waiters[next].caller, Duration::ZERO, now) => {
                self.pass(next, tenure, token, now, &mut effects);
                self.refuse_if_busy(&mut effects);
            }
            _ => {
                effects.release = Some(token);
                self.ask_next(false, &mut effects);
            }
        }
        effects
    }

    /// The request of the queue was answered: another holder has the lock.
    pub(crate) fn found_busy(&mut self, request: u64) -> Effects<T, W> {
        let mut effects = Effects::default();
        if self.is_requested(request) {
            self.state = State::Requested { request, answered: true };
            self.refuse_if_busy(&mut effects);
        }
        effects
    }

    /// The request of the queue got no answer, and is repeated. Until then it is not known whether
    /// another holder has the lock.
    pub(crate) fn unanswered(&mut self, request: u64) {
        if self.is_requested(request) {
            self.state = State::Requested { request, answered: false };
        }
    }

    /// The request of the queue has failed. The error goes to the first caller, or to all callers.
    pub(crate) fn failed(&mut self, request: u64, error: &LockError, all: bool) -> Effects<T, W> {
        let mut effects = Effects::default();
        if self.is_requested(request) {
            while let Some(next) = self.next() {
                let verdict = Verdict::Failed(Box::new(error.clone()));
                self.decide(next, verdict, &mut effects);
                if !all {
                    break;
                }
            }
            self.ask_next(false, &mut effects);
        }
        effects
    }

    /// Ends a pass and a turn that were not taken up in time, and a caller's own request that is
    /// not polled. `unanswered` is the longest time for which such a request is waited for.
    pub(crate) fn lapse(
        &mut self,
        unanswered: Duration,
        turn: Duration,
        now: Moment,
    ) -> Effects<T, W> {
        let mut effects = Effects::default();
        match self.state {
            State::Asking { .. } if self.lapses(unanswered).is_some_and(|lapses| lapses <= now) => {
                // The caller reports the end of its request.
                self.lapsed += 1;
                self.ask_next(false, &mut effects);
            }
            State::Passed { to, at, lapses, .. } if lapses <= now => {
                self.sleeps(to);
                let end = at.after(CONFIRM_WINDOW);
                if self.next().is_some() || end <= now {
                    self.pass_again(turn, now, &mut effects);
                } else if let State::Passed { lapses, .. } = &mut self.state {
                    *lapses = end;
                }
            }
            _ => {}
        }
        effects
    }

    /// When [`lapse`](LocalQueue::lapse) has something to do, unless the queue changes before.
    pub(crate) fn lapses(&self, unanswered: Duration) -> Option<Moment> {
        match &self.state {
            // Without a next caller, no other caller is delayed.
            State::Asking { since, .. } => self.next().map(|_| since.after(unanswered)),
            State::Passed { lapses, .. } => Some(*lapses),
            State::Idle | State::Requested { .. } | State::Held { .. } => None,
        }
    }

    /// Wakes every waiter.
    pub(crate) fn alarm(&mut self) -> Effects<T, W> {
        let wake = self.waiters.iter_mut().filter_map(|waiter| waiter.waker.take()).collect();
        Effects { wake, ..Effects::default() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiters.is_empty() && self.lapsed == 0 && matches!(self.state, State::Idle)
    }

    pub(crate) fn has_waiters(&self) -> bool {
        !self.waiters.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.waiters.len()
    }

    /// Number of waiters before this one.
    pub(crate) fn rank(&self, ticket: Ticket) -> usize {
        self.find(ticket).unwrap_or_else(|rank| rank)
    }

    /// The holder, if there is one.
    pub(crate) fn holder(&self) -> Option<Ticket> {
        match self.state {
            State::Held { by } => Some(by),
            _ => None,
        }
    }

    /// Frees the memory of earlier waiters.
    pub(crate) fn shrink(&mut self) {
        self.waiters.shrink_to(4);
    }

    /// The tenure that was passed and not taken up.
    pub(crate) fn passed(&self) -> Option<(&Tenure, &T)> {
        match &self.state {
            State::Passed { tenure, token, .. } => Some((tenure, token)),
            _ => None,
        }
    }

    /// The caller for whom a request is sent, and whether any caller wants a fence.
    pub(crate) fn first(&self) -> Option<(&C, bool)> {
        let first = &self.waiters[self.next()?].caller;
        Some((first, self.fenced > 0))
    }

    /// The ttl of the present request, and whether it should ask for a fence.
    pub(crate) fn wish(&self) -> Option<(Duration, bool)> {
        let is_requested = matches!(self.state, State::Requested { .. });
        let (first, fenced) = self.first().filter(|_| is_requested)?;
        Some((first.ttl(), fenced))
    }

    /// Passes on a lock that its caller has not taken up, or ends the tenure.
    fn pass_again(&mut self, turn: Duration, now: Moment, effects: &mut Effects<T, W>) {
        if let State::Passed { tenure, token, .. } = mem::replace(&mut self.state, State::Idle) {
            match self.next() {
                Some(next) if tenure.passes_to(&self.waiters[next].caller, turn, now) => {
                    self.pass(next, tenure, token, now, effects);
                    self.refuse_if_busy(effects);
                }
                _ => {
                    effects.release = Some(token);
                    self.ask_next(false, effects);
                }
            }
        }
    }

    fn pass(
        &mut self,
        next: usize,
        tenure: Tenure,
        token: T,
        now: Moment,
        effects: &mut Effects<T, W>,
    ) {
        let waiter = &mut self.waiters[next];
        let (to, lapses) = (waiter.ticket, now.after(waiter.take_up()));
        effects.wake.extend(waiter.waker.take());
        self.state = State::Passed { to, at: now, lapses, tenure, token };
    }

    /// Has a request sent for the next caller, if there is one.
    fn ask_next(&mut self, answered: bool, effects: &mut Effects<T, W>) {
        self.state = State::Idle;
        if self.next().is_some() {
            self.request += 1;
            effects.request = Some(self.request);
            self.state = State::Requested { request: self.request, answered };
        }
    }

    /// Withdraws the request of the queue if there is no next caller.
    fn withdraw_for_nobody(&mut self, effects: &mut Effects<T, W>) {
        if matches!(self.state, State::Requested { .. }) && self.next().is_none() {
            effects.withdraw = true;
            self.state = State::Idle;
        }
    }

    /// A waiter has not taken up the lock that was passed to it.
    fn sleeps(&mut self, ticket: Ticket) {
        if let Ok(at) = self.find(ticket) {
            let sleeper = &mut self.waiters[at];
            sleeper.lapses += u32::from(!sleeper.asleep);
            sleeper.asleep = true;
        }
    }

    /// Refuses the callers that do not wait for a busy lock, except the caller to which the lock
    /// was passed.
    fn refuse_if_busy(&mut self, effects: &mut Effects<T, W>) {
        let passed_to = match self.state {
            State::Passed { to, .. } => Some(to),
            _ => None,
        };
        let is_refused = |waiter: &Waiter<C, W>| {
            waiter.leaves_if_busy && waiter.verdict.is_none() && Some(waiter.ticket) != passed_to
        };
        let mut at = 0;
        while self.leaving_if_busy > 0 && at < self.waiters.len() {
            if is_refused(&self.waiters[at]) {
                self.decide(at, Verdict::Busy, effects);
            }
            at += 1;
        }
    }

    /// Takes a waiter out that was refused.
    fn take_verdict(&mut self, at: usize, effects: &mut Effects<T, W>) -> Option<Found<T>> {
        let verdict = self.waiters[at].verdict.take()?;
        effects.unused = self.take(at).and_then(|waiter| waiter.waker);
        Some(Found::Refused(verdict))
    }

    fn decide(&mut self, at: usize, verdict: Verdict, effects: &mut Effects<T, W>) {
        let waiter = &mut self.waiters[at];
        self.leaving_if_busy -= usize::from(waiter.leaves_if_busy);
        waiter.verdict = Some(verdict);
        effects.wake.extend(waiter.waker.take());
    }

    /// The first waiter that is awake.
    fn next(&self) -> Option<usize> {
        self.waiters.iter().position(|waiter| !waiter.asleep && waiter.verdict.is_none())
    }

    fn insert(&mut self, ticket: Ticket, caller: C, leaves_if_busy: bool) {
        let (asleep, lapses, verdict, waker) = (false, 0, None, None);
        let waiter = Waiter { ticket, caller, leaves_if_busy, asleep, lapses, verdict, waker };
        let at = self.find(ticket).unwrap_or_else(|at| at);
        self.leaving_if_busy += usize::from(leaves_if_busy);
        self.fenced += usize::from(waiter.caller.is_fenced());
        self.waiters.insert(at, waiter);
    }

    fn remove(&mut self, at: usize) -> Option<W> {
        let waiter = self.take(at)?;
        if waiter.verdict.is_none() {
            self.leaving_if_busy -= usize::from(waiter.leaves_if_busy);
        }
        waiter.waker
    }

    fn take(&mut self, at: usize) -> Option<Waiter<C, W>> {
        let waiter = self.waiters.remove(at)?;
        self.fenced -= usize::from(waiter.caller.is_fenced());
        Some(waiter)
    }

    /// A waiter is awake. While all waiters slept, a pass had until the end of the confirm window.
    /// From now on it lapses after its usual time, so that the lock can be passed to the waiter
    /// that is awake.
    fn shorten_pass(&mut self) {
        if let State::Passed { to, at, lapses, .. } = &mut self.state {
            let (to, at) = (*to, *at);
            let own = self.waiters.iter().find(|waiter| waiter.ticket == to);
            *lapses = at.after(own.map_or(TAKE_UP, Waiter::take_up)).min(*lapses);
        }
    }

    fn find(&self, ticket: Ticket) -> Result<usize, usize> {
        self.waiters.binary_search_by_key(&ticket, |waiter| waiter.ticket)
    }

    fn is_asked_by(&self, ticket: Ticket) -> bool {
        matches!(self.state, State::Asking { by, .. } if by == ticket)
    }

    fn is_requested(&self, number: u64) -> bool {
        matches!(self.state, State::Requested { request, .. } if request == number)
    }
}

impl<C, W> Waiter<C, W> {
    /// The time in which this waiter has to take up a pass.
    fn take_up(&self) -> Duration {
        (TAKE_UP * 2_u32.saturating_pow(self.lapses.min(8))).min(CONFIRM_WINDOW)
    }
}

#[cfg(test)]
mod events;
#[cfg(test)]
mod model;
