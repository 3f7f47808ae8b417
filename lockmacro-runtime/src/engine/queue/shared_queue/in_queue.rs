//! A caller in its queue: how it arrives, waits and leaves, and how its turn ends.

use std::sync::{Arc, Weak};
use std::task::{Poll, Waker};
use std::time::Duration;

use tokio::sync::oneshot;

use super::{Contended, KeyTenure, LocalHolder, QueueState, SharedQueue};
use crate::engine::core::turn;
use crate::engine::queue::key_queue::{Arrival, Effects, Event, Found, Ticket};
use crate::engine::telemetry::Behind;
use crate::engine::token::acquisition::{Acquisition, Refusal};
use crate::engine::token::in_flight::TokenOwner as _;
use crate::protocol::answer::{Queueing, Released};
use crate::protocol::request::Request;
use crate::sys::time::Moment;
use crate::value::error::LockError;
use crate::value::holder;
use crate::value::limits::QUEUE_MAX;

/// Shortest time without a poll of a caller that asks itself before the queue goes on without it.
const UNPOLLED_MIN: Duration = Duration::from_millis(100);

/// A caller in the queue of its key.
#[derive(Debug, Clone)]
pub(crate) struct InQueue {
    pub(crate) queue: Arc<SharedQueue>,
    pub(super) ticket: Ticket,
}

/// How a caller begins.
pub(crate) enum Arrived {
    /// The caller asks the store itself, from this moment on; `None` while a release of its process
    /// is without an answer, which may be that of the holder that it finds.
    Asks(InQueue, Option<Moment>),
    Waits(InQueue),
    /// The caller arrives again after the next event.
    Undecided,
    Refused(Refusal),
}

/// A lock that a waiter has taken up. Dropping it ends the waiter's turn, unless a guard was made.
pub(crate) struct TakenUp {
    pub(crate) by: Option<InQueue>,
    pub(crate) tenure: KeyTenure,
    pub(crate) acquisition: Acquisition,
    pub(crate) behind: Behind,
}

/// How a wait ends.
pub(crate) enum Waited {
    Lock(TakenUp),
    Refused(Refusal),
    /// The caller is no waiter any more, and arrives again.
    Gone,
}

/// The state of a lock after its holder has ended.
pub(crate) enum HandedOver {
    /// A waiter of this process may take it up.
    Passed,
    /// The lock is released along with the request for the waiters.
    Released(oneshot::Receiver<Result<Released, LockError>>),
    /// The lock is still the holder's, to be released.
    Kept(Acquisition),
}

impl SharedQueue {
    /// When a caller that asks itself is polled again at the latest: its request has an answer by
    /// then, or is sent again.
    fn polled_until(&self, now: Moment) -> Moment {
        let answer = self.core.store.facts.answer_time();
        now.after((answer * 5 / 4).max(UNPOLLED_MIN))
    }

    /// A caller arrives, maybe again.
    pub(crate) fn arrive(self: &Arc<Self>, request: &Request, is_again: bool) -> Arrived {
        // A holder that has lost the lock delays no other caller, even if it has never checked its
        // lease.
        if let Some(holder) = self.holder() {
            holder.remaining_lease();
        }
        let mut held = None;
        let (arrived, _) = self.with(None, |state| {
            let waits = request.ask.until.is_some();
            // Under the mutex of the change: otherwise many callers could find the last place free
            // at once.
            if waits && state.queue.count() >= QUEUE_MAX {
                let full = self.busy(state, Queueing::Full, &mut held);
                return (Arrived::Refused(full), Effects::default());
            }
            let now = Moment::now();
            let until = self.polled_until(now);
            let (arrival, effects) =
                state.queue.arrive(Arc::clone(&request.ask), request.clone(), is_again, until);
            if matches!(arrival, Arrival::Asks { .. }) {
                // The last answer was to an earlier question, of callers that have left.
                state.last = None;
            }
            let at = |ticket| InQueue { queue: Arc::clone(self), ticket };
            let arrived = match arrival {
                Arrival::Asks { by, is_behind } => {
                    Arrived::Asks(at(by), (!is_behind).then_some(now))
                }
                Arrival::Waits(ticket) => Arrived::Waits(at(ticket)),
                Arrival::Busy => Arrived::Refused(self.busy(state, Queueing::Outside, &mut held)),
                Arrival::Undecided => Arrived::Undecided,
            };
            (arrived, effects)
        });
        arrived
    }
}

impl InQueue {
    /// The caller has the lock, as `holder`: it was granted, or the caller has taken it up. Returns
    /// false if the queue has gone on with the token.
    pub(crate) fn granted(&self, holder: Weak<dyn LocalHolder>) -> bool {
        let (is_ours, _) = self.queue.with(None, |state| {
            let effects = state.queue.granted_to(self.ticket);
            let is_ours = state.queue.holder() == Some(self.ticket);
            if is_ours {
                (state.holder, state.last) = (Some(holder), None);
            }
            (is_ours, effects)
        });
        self.queue.changed.notify_waiters();
        is_ours
    }

    /// The caller, which asks the store itself, was polled and has no answer.
    pub(crate) fn polled(&self) {
        self.queue.state.lock().queue.polled(self.ticket, self.queue.polled_until(Moment::now()));
    }

    /// The caller has asked the store itself, and was not granted the lock: another `holder` has
    /// it, or nothing is known. See [`Arrived::Asks`] for `since`.
    pub(crate) fn not_granted(
        &self,
        holder: Option<&holder::Holder>,
        since: Option<Moment>,
        acquisition: Acquisition,
    ) {
        // A Redlock was asked more than once: the last attempt is the one that was refused.
        let since = since.map(|since| acquisition.request().token.last_attempt().unwrap_or(since));
        self.stop_asking(Some(acquisition), |state| {
            if let Some(holder) = holder {
                state.last = Some(Ok(Contended::of(holder, 0)));
                state.contended_at = since.or(state.contended_at);
            }
            Event::NotGrantedTo { ticket: self.ticket, contended: holder.is_some() }
        });
    }

    /// The caller leaves. `acquisition`: that of a caller that asks itself.
    pub(crate) fn leave(&self, acquisition: Option<Acquisition>) {
        self.stop_asking(acquisition, |_| Event::Leaves(self.ticket));
    }

    /// An event after which the caller asks no more itself. Unless the queue goes on with the
    /// token, or did so before, the lock is released in the background.
    fn stop_asking(
        &self,
        acquisition: Option<Acquisition>,
        change: impl FnOnce(&mut QueueState) -> Event<Request>,
    ) {
        let mut is_ours = false;
        let left = self.queue.on(acquisition, |state| {
            is_ours = state.queue.is_asking(self.ticket);
            change(state)
        });
        if let Some(acquisition) = left.acquisition
            && !is_ours
        {
            acquisition.forget();
        }
    }

    /// Checks whether a waiter may take the lock up.
    pub(super) fn poll(&self, waker: &Waker) -> Poll<Waited> {
        let queue = &self.queue;
        let core = &self.queue.core;
        // Nobody takes a lock up during a shutdown, as if it were gone.
        let changed = || {
            if core.shutdown.is_closed() { Some(Moment::now()) } else { core.last_change() }
        };
        let waker = |last: Option<&Waker>| match last {
            Some(last) if last.will_wake(waker) => None,
            _ => Some(waker.clone()),
        };
        let (found, _) = queue.with(None, |state| {
            let (found, effects) = state.queue.poll(self.ticket, waker, changed, Moment::now());
            let found = match (found, &state.sent_away) {
                (Found::Nothing, _) => Poll::Pending,
                (Found::Lock(tenure), _) => match state.offered.take() {
                    Some(acquisition) => {
                        state.holder = None;
                        let by = Some(self.clone());
                        let behind = state.behind();
                        Poll::Ready(Waited::Lock(TakenUp { by, tenure, acquisition, behind }))
                    }
                    None => Poll::Pending,
                },
                (Found::Gone, Some((last, error))) if self.ticket <= *last => {
                    Poll::Ready(Waited::Refused(Refusal::Failed(error.clone())))
                }
                (Found::Gone, _) => Poll::Ready(Waited::Gone),
            };
            (found, effects)
        });
        found
    }

    /// The holder ends. The lock is passed on within the turn if it `may_pass`.
    pub(crate) fn end(
        &self,
        tenure: KeyTenure,
        may_pass: bool,
        acquisition: Acquisition,
    ) -> HandedOver {
        let queue = &self.queue;
        let core = &self.queue.core;
        let left = queue.on(Some(acquisition), |state| {
            // During a shutdown nobody takes it up: the lock has to be back at the store before the
            // process ends.
            let passes = may_pass && state.queue.count() > 0 && !core.shutdown.is_closed();
            let turn = if passes {
                turn(core.defaults.turn, core.store.backend.health(&tenure.token).round_trip)
            } else {
                Duration::ZERO
            };
            // Otherwise the queue has heard of its loss before, and has gone on.
            if state.queue.holder() == Some(self.ticket) {
                state.holder_ended = Some(Moment::now());
                state.note_ended(&tenure.token.ask, passes);
            }
            let changed = passes.then(|| core.last_change()).flatten();
            Event::Ends { by: self.ticket, tenure, turn, changed }
        });
        match (left.reported, left.acquisition) {
            (Some(reported), _) => HandedOver::Released(reported),
            (None, Some(acquisition)) => HandedOver::Kept(acquisition),
            (None, None) => HandedOver::Passed,
        }
    }

    /// The holder has lost the lock. Returns the acquisition unless the lock is released along with
    /// a request for the waiters.
    pub(crate) fn lost(
        &self,
        tenure: KeyTenure,
        acquisition: Option<Acquisition>,
    ) -> Option<Acquisition> {
        let token = tenure.token.clone();
        let left = self.queue.on(acquisition, |state| {
            state.holder = None;
            state.note_ended(&tenure.token.ask, false);
            Event::Ends { by: self.ticket, tenure, turn: Duration::ZERO, changed: None }
        });
        // No caller waits for a release, which comes with the end of the holder.
        Arc::clone(&self.queue).gone(&token);
        left.acquisition
    }
}

impl Drop for TakenUp {
    fn drop(&mut self) {
        if let Some(caller) = self.by.take() {
            // The acquisition releases the lock.
            caller.lost(self.tenure.clone(), None);
        }
    }
}
