//! The callers of one process for one key: their queue, and what the process has at the store.
//!
//! No I/O and no clock. Every event takes the time as an argument and returns [`Effects`], which
//! the owner carries out after it has unlocked the queue.
//!
//! - **One question.** A process asks for a key with one token at a time: in the future of a caller
//!   that finds the queue free, and from then on, with the same token, for all that wait.
//! - **A turn.** A lock that its holder ends goes to the next waiter without a command, for a
//!   bounded time (lock cohorting: Dice, Marathe, Shavit, PPoPP 2012). What the process has at the
//!   store meanwhile is a [`Tenure`]: one token, one lease, one block of fences.
//! - **A widening offer.** A lock that no caller has is offered to the first waiter that is awake.
//!   As long as nobody takes it up, twice as many waiters may. No waiter loses its place.
//!
//! A token is retired by its release: it is never asked for again. The next turn has another one.
//!
//! All in one file, as every event may move the queue to each of its states.

use std::collections::VecDeque;
use std::mem;
use std::ops::Range;
use std::time::Duration;

use crate::sys::time::Moment;
use crate::value::fence::FenceBlock;
use crate::value::limits::CONFIRM_WINDOW;

/// The number of a caller, in the order of arrival.
pub(crate) type Ticket = u64;

/// How long an offer stays as it is, before more waiters may take the lock up.
pub(crate) const TAKE_UP: Duration = Duration::from_millis(50);

/// Such times of a waiter that comes too late again and again, each twice as long, in a cycle.
const PATIENCE: u32 = 6;

/// A lock that nobody has taken up is then left to others for this many times as long.
const REST: u32 = 3;

/// What a caller in the queue asks for. It never changes.
pub(crate) trait QueuedAsk {
    /// That by which the store knows a holder, with what has become of it.
    type Token: Clone + PartialEq;

    fn ttl(&self) -> Duration;

    fn is_fenced(&self) -> bool;

    /// Whether the caller waits if the lock is busy.
    fn waits(&self) -> bool;

    /// A token that was never sent.
    fn another(&self) -> Self::Token;
}

/// The lease of one token, which a process has at the store and may pass on.
#[derive(Debug, Clone)]
pub(crate) struct Tenure<T> {
    pub(crate) token: T,
    /// When the turn began: with the grant.
    pub(crate) began: Moment,
    /// When the last command was sent that the store has answered with yes.
    pub(crate) sent: Moment,
    /// The end of the lease.
    pub(crate) ends: Moment,
    /// The latest moment to which the store may keep the lock without another command.
    pub(crate) kept_until: Moment,
    /// The fences of the grant that no holder has had.
    pub(crate) fences: Option<FenceBlock>,
}

impl<T> Tenure<T> {
    /// Whether the lock is worth taking up for this caller:
    ///
    /// - The lease covers half of the caller's ttl, or of the confirm window if that is shorter.
    /// - If the caller dies, the store keeps the lock no longer than the caller's ttl, or than the
    ///   confirm window if that is longer.
    /// - There is a fence for a caller that needs one.
    fn can_serve(&self, ask: &impl QueuedAsk, now: Moment) -> bool {
        self.lasts(ask, now)
            && self.kept_until.since(now) <= ask.ttl().max(CONFIRM_WINDOW)
            && (!ask.is_fenced() || self.fences.is_some())
    }

    /// Whether the store cannot have lost the lock when it changed last, or may have: it has said
    /// yes to a command that was sent later.
    fn has_survived(&self, changed: Option<Moment>) -> bool {
        changed.is_none_or(|changed| changed < self.sent)
    }

    /// Whether enough of the lease is left for this caller.
    fn lasts(&self, ask: &impl QueuedAsk, now: Moment) -> bool {
        self.ends.since(now) >= least_lease(ask)
    }
}

/// What the process has at the store, or does there.
#[derive(Debug, Clone)]
enum State<T> {
    /// Nothing. If there are waiters, they are asleep, or were until a rest began that is not over.
    Free,
    /// A caller's own request is in flight. Each poll of the caller moves `until` on. At `until`
    /// the queue goes on without it, for those behind it and for those who have come and do not
    /// wait (`is_wanted`). A caller that is alone has more time.
    /// `was_behind`: a release had no answer when the request was sent. `behind`: it has none yet,
    /// the first one if there are several.
    Asking {
        by: Ticket,
        token: T,
        until: Moment,
        is_wanted: bool,
        was_behind: bool,
        behind: Option<T>,
    },
    /// The queue's request is at the store. `contended`: by its answer another holder has the lock.
    Requested { token: T, contended: bool },
    /// The process has the lock, and none of its callers. The first `to` waiters may take it up,
    /// and more of them from `widens` on.
    Offered { tenure: Tenure<T>, since: Moment, to: usize, widens: Moment },
    /// A caller has the lock.
    Held(Ticket),
    /// The release of a token has no answer yet. `behind`: nor has that of an earlier one, the
    /// first if there are several.
    Releasing { token: T, behind: Option<T> },
}

#[derive(Debug, Clone)]
struct Waiter<A, W> {
    ticket: Ticket,
    ask: A,
    /// How often another waiter, or nobody, has taken what was offered to this one.
    missed: u32,
    waker: Option<W>,
}

/// The queue of a key. `A` is what a caller asks for, `W` the waker of a caller.
#[derive(Debug, Clone)]
pub(crate) struct KeyQueue<A: QueuedAsk, W> {
    last: Ticket,
    waiters: VecDeque<Waiter<A, W>>,
    /// Number of first waiters that are taken to be asleep: the lock was offered to each of them,
    /// and none was polled since.
    asleep: usize,
    /// Until when nothing is asked for waiters that have slept through an offer.
    rests_until: Moment,
    /// A waiter needs a fence, or one did since the queue was last without waiters.
    fenced: bool,
    state: State<A::Token>,
}

/// A step of a caller, the store or the clock that the queue has to know of.
#[derive(Debug, Clone)]
pub(crate) enum Event<T> {
    /// The caller's own request was not granted: another holder has the lock, or, if it is not
    /// contended, the token may be at the store. The queue goes on with it for the caller and those
    /// behind it.
    NotGrantedTo { ticket: Ticket, contended: bool },
    /// A caller is dropped, or its wait is over.
    Leaves(Ticket),
    /// The queue's request was granted. Too late, it means nothing: the token is being released.
    Granted(Tenure<T>),
    /// The queue's request waits: another holder has the lock, or, if it is not contended, nobody
    /// has answered.
    Answered { token: T, contended: bool },
    /// A release of the token was sent while it was asked for.
    Spent(T),
    /// The lock of the queue's request did not count. The first waiter that is awake is sent away,
    /// and the others ask with another token.
    Fails(T),
    /// The holder ends, or its lock is lost. The lock is passed on within the turn, which is zero
    /// for a lock that is lost, whose renewal is in doubt, or whose key has to stay; and only if
    /// the store has not `changed` meanwhile. Unless the effects say so, nothing is left to
    /// release.
    Ends { by: Ticket, tenure: Tenure<T>, turn: Duration, changed: Option<Moment> },
    /// The manager is shut down, or the store refuses the queue's request for good. All waiters are
    /// sent away, or only those that need a fence; a holder stays until it ends.
    Closes { for_fences: bool },
    /// The time has come that [`due`](KeyQueue::due) has told.
    Time,
}

/// What the owner of the queue has to do now, in the order of the fields.
#[derive(Debug, Clone)]
#[must_use]
pub(crate) struct Effects<T, W> {
    /// Ask the store for the lock with this token, for the confirm window, until it is granted or
    /// retired. Each request asks for fences if the queue [needs them](KeyQueue::is_fenced) then.
    pub(crate) ask: Option<T>,
    /// Retire this token: do not ask with it any more, and release it until it is
    /// [released](KeyQueue::released).
    pub(crate) release: Option<T>,
    pub(crate) wake: Vec<W>,
    /// A waker that is not needed any more. Its drop may run code of a caller.
    pub(crate) unused: Option<W>,
}

/// How a caller begins.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// The caller asks the store in its own future, with its own token. If it is behind a release
    /// of this process that had no answer then, and does not wait, and finds the lock contended, it
    /// arrives once more.
    Asks { by: Ticket, is_behind: bool },
    /// The caller waits in the queue.
    Waits(Ticket),
    /// The caller does not wait, and is refused: its process has the lock, or waits for it.
    Busy,
    /// The caller does not wait, and nobody knows yet whether the lock is free. The caller arrives
    /// again after the next [`Event`].
    Undecided,
}

/// The state of a waiter when it is polled.
#[derive(Debug, Clone)]
pub(crate) enum Found<T> {
    Nothing,
    /// The waiter has the lock. If it needs a fence, the first one of the tenure is its own.
    Lock(Tenure<T>),
    /// The caller is no waiter any more. It arrives again, unless all waiters were sent away.
    Gone,
}

impl<A: QueuedAsk, W> KeyQueue<A, W> {
    /// A caller arrives, maybe once more. If it asks the store itself, it does so with the token
    /// `own`, and the queue goes on without it at `until`.
    pub(crate) fn arrive(
        &mut self,
        ask: A,
        own: A::Token,
        is_again: bool,
        until: Moment,
    ) -> (Arrival, Effects<A::Token, W>) {
        let mut effects = Effects::default();
        let waits = ask.waits();
        // A caller that does not wait asks beside those that sleep.
        let before = if waits { 0 } else { self.asleep };
        let arrival = match &self.state {
            State::Free if self.waiters.len() == before => self.asks(ask, own, until, None),
            // Once only: in a process that acquires and releases all the time, such a caller would
            // never be answered.
            State::Releasing { token, behind } if self.waiters.len() == before && !is_again => {
                let first = behind.as_ref().unwrap_or(token).clone();
                self.asks(ask, own, until, Some(first))
            }
            State::Free | State::Releasing { .. } if waits => {
                let ticket = self.enter(ask);
                self.state = self.request(&mut effects);
                Arrival::Waits(ticket)
            }
            _ if waits => Arrival::Waits(self.enter(ask)),
            _ if self.is_contended() => Arrival::Busy,
            _ => {
                // The caller that asks has less time from now on, although nobody waits behind it.
                if let State::Asking { is_wanted, .. } = &mut self.state {
                    *is_wanted = true;
                }
                Arrival::Undecided
            }
        };
        (arrival, effects)
    }

    /// A waiter is polled. `changed`: when the store last changed, or may have. `waker` makes a new
    /// waker if the last one would not wake this task.
    pub(crate) fn poll(
        &mut self,
        ticket: Ticket,
        waker: impl FnOnce(Option<&W>) -> Option<W>,
        changed: impl FnOnce() -> Option<Moment>,
        now: Moment,
    ) -> (Found<A::Token>, Effects<A::Token, W>) {
        let mut effects = Effects::default();
        let Ok(at) = self.find(ticket) else { return (Found::Gone, effects) };
        let is_too_late = match &self.state {
            State::Offered { tenure, to, .. } if at < *to => {
                !tenure.lasts(&self.waiters[at].ask, now)
            }
            _ => false,
        };
        // One that comes too late for the lease is given more time as well: without it the next
        // offer would last as long, and be over again before this waiter comes.
        self.waiters[at].missed += u32::from(at < self.asleep || is_too_late);
        // Whoever is polled is awake, and those behind it may be.
        self.asleep = self.asleep.min(at);
        let ask = &self.waiters[at].ask;
        self.state = match mem::replace(&mut self.state, State::Free) {
            State::Offered { tenure, to, .. }
                if at < to && tenure.can_serve(ask, now) && tenure.has_survived(changed()) =>
            {
                effects.unused = self.remove(ticket);
                // The lock was offered to those before it, too.
                (self.asleep, self.rests_until) = (at, now);
                self.state = State::Held(ticket);
                return (Found::Lock(tenure), effects);
            }
            State::Offered { tenure, to, .. } if at < to => {
                // The next request is for this waiter, and not for those that slept before it.
                self.asleep = at;
                self.retire(tenure.token, None, &mut effects)
            }
            State::Free | State::Releasing { .. } if self.rests_until <= now => {
                self.request(&mut effects)
            }
            state => state,
        };
        let waiter = &mut self.waiters[at];
        if let Some(new) = waker(waiter.waker.as_ref()) {
            effects.unused = waiter.waker.replace(new);
        }
        (Found::Nothing, effects)
    }

    /// The caller's own request was granted. The caller has the lock if it is the
    /// [holder](KeyQueue::holder) then. If not, the queue has gone on with the token.
    pub(crate) fn granted_to(&mut self, ticket: Ticket) -> Effects<A::Token, W> {
        let mut effects = Effects::default();
        if self.is_asking(ticket) {
            effects.unused = self.remove(ticket);
            self.state = State::Held(ticket);
        }
        effects
    }

    /// The release of the token was answered, or the store cannot have the token any more.
    pub(crate) fn released(&mut self, token: &A::Token) {
        match &mut self.state {
            State::Releasing { token: last, behind } if last == token => {
                self.state = releasing(behind.take());
            }
            State::Releasing { behind, .. } | State::Asking { behind, .. } => {
                drop(behind.take_if(|first| first == token));
            }
            _ => {}
        }
    }

    /// Any other event.
    pub(crate) fn on(&mut self, event: Event<A::Token>, now: Moment) -> Effects<A::Token, W> {
        use {Event::*, State::*};
        let mut effects = Effects::default();
        let out = &mut effects;
        let is_due = self.due().is_some_and(|due| due <= now);
        match event {
            // First, as the next state depends on who is left.
            Leaves(ticket) => out.unused = self.remove(ticket),
            Closes { for_fences } => self.send_away(for_fences, out),
            _ => {}
        }
        self.state = match (mem::replace(&mut self.state, Free), event) {
            (
                Asking { by, token, was_behind, behind, .. },
                NotGrantedTo { ticket: of, contended },
            ) if by == of => {
                match self.go_on(token, contended, behind, out) {
                    // The holder may have been the token that was being released.
                    Requested { token, .. } if was_behind => Requested { token, contended: false },
                    state => state,
                }
            }
            (Asking { by, token, behind, .. }, Leaves(of)) if by == of => {
                self.go_on(token, false, behind, out)
            }
            (Asking { by, token, behind, .. }, Time) if is_due => {
                // It was not polled. It arrives again when it is, or sleeps before the others.
                match self.waiters.len() {
                    1 => out.wake.extend(self.remove(by)),
                    _ => self.asleep = self.find(by).map_or(self.asleep, |at| at + 1),
                }
                self.go_on(token, false, behind, out)
            }
            (Asking { token, .. } | Requested { token, .. }, Spent(of)) if token == of => {
                self.request(out)
            }
            (Requested { token, .. }, Fails(of)) if token == of => {
                let first = self.next();
                out.wake.extend(first.and_then(|first| self.remove(first)));
                self.request(out)
            }
            (Requested { token, .. }, Granted(tenure)) if token == tenure.token => {
                self.offer(tenure, now, out)
            }
            (Requested { token, .. }, Answered { token: of, contended }) if token == of => {
                Requested { token, contended }
            }
            (Requested { token, .. }, Leaves(_)) if self.waiters.is_empty() => {
                self.retire(token, None, out)
            }
            // None of those that may take it up is awake.
            (Offered { tenure, to, .. }, Leaves(_)) if to == self.asleep => {
                self.offer(tenure, now, out)
            }
            (Offered { tenure, since, to, .. }, Time) if is_due => {
                let more = self.waiters.len().min(2 * to);
                if more == to || tenure.ends <= now {
                    (self.asleep, self.rests_until) = (to, now.after(now.since(since) * REST));
                    self.retire(tenure.token, None, out)
                } else {
                    self.wake(to..more, out);
                    // A short lease has room for several steps as well.
                    let widens = now.after(TAKE_UP.min(tenure.ends.since(now) / 8));
                    Offered { tenure, since, to: more, widens }
                }
            }
            (Free, Time) if is_due => self.request(out),
            (Held(of), Ends { by, tenure, turn, changed }) if by == of => {
                // Since the grant, and not since the last holder: other processes wait for one turn
                // only, however many callers share it.
                if now < tenure.began.after(turn) && tenure.has_survived(changed) {
                    self.offer(tenure, now, out)
                } else {
                    self.retire(tenure.token, None, out)
                }
            }
            (Requested { token, .. }, Closes { .. }) => self.retire(token, None, out),
            (Offered { tenure, .. }, Closes { .. }) => self.retire(tenure.token, None, out),
            // Nothing is asked for, and nothing is offered.
            (state @ (Free | Asking { .. } | Held(_) | Releasing { .. }), Closes { .. }) => state,
            // One of several waiters has left, or nothing is due.
            (state, Leaves(_) | Time) => state,
            // Late: the caller has left, or the token was retired, before this was told.
            (state, NotGrantedTo { .. } | Granted(_) | Answered { .. } | Spent(_)) => state,
            (state, Fails(_) | Ends { .. }) => state,
        };
        effects
    }

    /// When [`Event::Time`] has something to do, unless another event comes before.
    pub(crate) fn due(&self) -> Option<Moment> {
        match &self.state {
            State::Asking { until, .. } => {
                let more =
                    if self.has_other_waiters() { Duration::ZERO } else { longest_patience() };
                Some(until.after(more))
            }
            State::Free if self.asleep < self.waiters.len() => Some(self.rests_until),
            State::Offered { tenure, widens, .. } => Some(tenure.ends.min(*widens)),
            _ => None,
        }
    }

    /// A caller that asks itself was polled, and has time until `next`.
    pub(crate) fn polled(&mut self, ticket: Ticket, next: Moment) {
        match &mut self.state {
            State::Asking { by, until, .. } if *by == ticket => *until = next,
            _ => {}
        }
    }

    /// Whether the caller's own request may still be sent.
    pub(crate) fn is_asking(&self, ticket: Ticket) -> bool {
        matches!(self.state, State::Asking { by, .. } if by == ticket)
    }

    /// Whether the queue's request asks for fences.
    pub(crate) fn is_fenced(&self) -> bool {
        self.fenced
    }

    /// The holder, if there is one in this process.
    pub(crate) fn holder(&self) -> Option<Ticket> {
        if let State::Held(by) = self.state { Some(by) } else { None }
    }

    /// The lock that no caller has taken up.
    pub(crate) fn offered(&self) -> Option<&Tenure<A::Token>> {
        if let State::Offered { tenure, .. } = &self.state { Some(tenure) } else { None }
    }

    /// Whether a release has no answer.
    pub(crate) fn is_releasing(&self) -> bool {
        matches!(self.state, State::Releasing { .. } | State::Asking { behind: Some(_), .. })
    }

    /// Whether another holder is known: this process, or another one by the last answer.
    fn is_contended(&self) -> bool {
        use State::{Held, Offered, Requested};
        matches!(self.state, Held(_) | Offered { .. } | Requested { contended: true, .. })
    }

    /// Whether the queue can be forgotten.
    pub(crate) fn is_unused(&self) -> bool {
        self.waiters.is_empty() && matches!(self.state, State::Free)
    }

    /// Whether there are callers other than one that asks itself.
    pub(crate) fn has_other_waiters(&self) -> bool {
        let last = self.waiters.back();
        last.is_some_and(|last| !self.is_asking(last.ticket))
            || matches!(self.state, State::Asking { is_wanted: true, .. })
    }

    /// Frees the memory of earlier waiters.
    pub(crate) fn shrink(&mut self) {
        self.waiters.shrink_to(4);
    }

    /// The first waiter that is awake.
    pub(crate) fn next(&self) -> Option<Ticket> {
        self.waiters.get(self.asleep).map(|waiter| waiter.ticket)
    }

    /// The ask of the first waiter.
    pub(crate) fn first(&self) -> Option<&A> {
        self.waiters.front().map(|waiter| &waiter.ask)
    }

    /// Number of waiters.
    pub(crate) fn count(&self) -> usize {
        self.waiters.len()
    }

    /// Number of waiters before this caller.
    pub(crate) fn rank(&self, ticket: Ticket) -> usize {
        self.find(ticket).unwrap_or_else(|rank| rank)
    }

    /// Number of the last caller.
    pub(crate) fn last(&self) -> Ticket {
        self.last
    }

    /// Offers a lock that no caller has to the first waiter that is awake.
    fn offer(
        &mut self,
        tenure: Tenure<A::Token>,
        now: Moment,
        out: &mut Effects<A::Token, W>,
    ) -> State<A::Token> {
        let to = self.asleep + 1;
        match self.waiters.get(self.asleep) {
            Some(next) if tenure.can_serve(&next.ask, now) => {
                // Later than this the waiter could not use the lock. Every other time half of that
                // is left for those behind it: they would wait for ever for one that never comes in
                // time, and one that just comes in time would never be served if it were less.
                let useful = tenure.ends.since(now).saturating_sub(least_lease(&next.ask));
                let useful = useful / (2 - next.missed % 2);
                let patience = TAKE_UP * 2_u32.pow(next.missed % PATIENCE);
                let widens = now.after(patience.min(useful));
                self.wake(self.asleep..to, out);
                State::Offered { tenure, since: now, to, widens }
            }
            _ => self.retire(tenure.token, None, out),
        }
    }

    /// Ends a tenure, or a request. The next request is sent first, so the key is not free between.
    /// `behind`: the first release that has no answer.
    fn retire(
        &mut self,
        token: A::Token,
        behind: Option<A::Token>,
        out: &mut Effects<A::Token, W>,
    ) -> State<A::Token> {
        out.release = Some(token.clone());
        match self.request(out) {
            State::Free => State::Releasing { token, behind },
            state => state,
        }
    }

    /// Asks with a new token, if anybody is awake to have the answer.
    fn request(&self, out: &mut Effects<A::Token, W>) -> State<A::Token> {
        let Some(first) = self.waiters.get(self.asleep) else { return State::Free };
        // Never the token of an earlier turn: its release may still arrive, and would free the next
        // grant.
        let token = first.ask.another();
        out.ask = Some(token.clone());
        State::Requested { token, contended: false }
    }

    /// The caller's own request becomes the queue's, if anybody is awake to have the answer.
    fn go_on(
        &mut self,
        token: A::Token,
        contended: bool,
        behind: Option<A::Token>,
        out: &mut Effects<A::Token, W>,
    ) -> State<A::Token> {
        if self.asleep < self.waiters.len() {
            out.ask = Some(token.clone());
            return State::Requested { token, contended };
        }
        if contended { releasing(behind) } else { self.retire(token, behind, out) }
    }

    fn asks(
        &mut self,
        ask: A,
        token: A::Token,
        until: Moment,
        behind: Option<A::Token>,
    ) -> Arrival {
        let was_behind = behind.is_some();
        let by = self.enter(ask);
        let is_wanted = false;
        self.state = State::Asking { by, token, until, is_wanted, was_behind, behind };
        Arrival::Asks { by, is_behind: was_behind }
    }

    fn enter(&mut self, ask: A) -> Ticket {
        self.last += 1;
        if ask.waits() {
            self.fenced |= ask.is_fenced();
            let ticket = self.last;
            let missed = 0;
            let waker = None;
            self.waiters.push_back(Waiter { ticket, ask, missed, waker });
        }
        self.last
    }

    fn remove(&mut self, ticket: Ticket) -> Option<W> {
        let at = self.find(ticket).ok()?;
        self.asleep -= usize::from(at < self.asleep);
        if let State::Offered { to, .. } = &mut self.state {
            *to -= usize::from(at < *to);
        }
        // Kept until the queue is empty: to find out who else needs a fence would mean to look at
        // everybody.
        self.fenced &= self.waiters.len() > 1;
        self.waiters.remove(at)?.waker
    }

    /// All waiters, or those that need a fence, are none any more.
    fn send_away(&mut self, for_fences: bool, out: &mut Effects<A::Token, W>) {
        let goes = |waiter: &Waiter<A, W>| !for_fences || waiter.ask.is_fenced();
        self.asleep -= self.waiters.iter().take(self.asleep).filter(|one| goes(one)).count();
        let leave = self.waiters.iter_mut().filter(|one| goes(one));
        out.wake.extend(leave.filter_map(|waiter| waiter.waker.take()));
        self.waiters.retain(|waiter| !goes(waiter));
        // Nobody who is left needs one.
        self.fenced = false;
    }

    fn wake(&mut self, which: Range<usize>, out: &mut Effects<A::Token, W>) {
        out.wake.extend(self.waiters.range_mut(which).filter_map(|waiter| waiter.waker.take()));
    }

    fn find(&self, ticket: Ticket) -> Result<usize, usize> {
        self.waiters.binary_search_by_key(&ticket, |waiter| waiter.ticket)
    }
}

/// The state while a release has no answer, if there is one.
fn releasing<T>(token: Option<T>) -> State<T> {
    token.map_or(State::Free, |token| State::Releasing { token, behind: None })
}

/// The shortest rest of a lease that is worth taking up.
fn least_lease(ask: &impl QueuedAsk) -> Duration {
    ask.ttl().min(CONFIRM_WINDOW) / 2
}

/// The longest time of a waiter that comes too late.
fn longest_patience() -> Duration {
    TAKE_UP * 2_u32.pow(PATIENCE - 1)
}

impl<A: QueuedAsk, W> Default for KeyQueue<A, W> {
    fn default() -> Self {
        let last = 0;
        let waiters = VecDeque::new();
        let asleep = 0;
        let fenced = false;
        let state = State::Free;
        let rests_until = Moment::at(Duration::ZERO);
        Self { last, waiters, asleep, rests_until, fenced, state }
    }
}

impl<T, W> Default for Effects<T, W> {
    fn default() -> Self {
        Self { ask: None, release: None, wake: Vec::new(), unused: None }
    }
}
