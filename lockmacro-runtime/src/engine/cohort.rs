//! A cohort: callers of one process that share a key, and ask for it with one token. All of them
//! came before the token was sent, so none overtakes an exclusive waiter by the others' place in
//! the queue. The last of them to end releases the token.

use std::mem;
use std::sync::Arc;
use std::task::Waker;

use tokio::sync::Notify;

use crate::engine::acquisition::{Acquisition, Refusal};
use crate::protocol::answer::{Grant, Queueing};
use crate::protocol::other_holder::OtherHolder;
use crate::protocol::request::Request;
use crate::value::error::LockError;
use crate::value::sync::Mutex;
use crate::value::time::Moment;

/// Callers that ask for a key together.
#[derive(Debug, Default)]
pub(crate) struct Cohort {
    state: Mutex<State>,
    /// A member has left, or has taken what was found.
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    members: Vec<Slot>,
    /// The request was sent, or is about to be.
    is_formed: bool,
    /// The last answer to the request, while it waits.
    last: Option<Result<Busy, LockError>>,
}

/// Another holder has the lock.
#[derive(Debug, Clone)]
struct Busy {
    holder: OtherHolder,
    /// Number of waiters ahead.
    rank: u32,
    told: Moment,
}

#[derive(Debug)]
enum Slot {
    Waits(Arc<Request>, Option<Waker>),
    Found(Box<Found>),
    /// The member has left, or has what was found.
    Over,
}

/// The outcome of a member's wait.
#[derive(Debug)]
pub(crate) enum Found {
    Granted(Acquisition, Grant),
    Refused(Refusal),
    /// The member has to ask for itself.
    Nothing,
}

impl Cohort {
    /// Takes a caller in, before the request is sent. Returns the caller's number.
    pub(crate) fn join(&self, draft: Arc<Request>) -> usize {
        let mut state = self.state.lock();
        state.members.push(Slot::Waits(draft, None));
        state.members.len() - 1
    }

    /// The request is about to be sent. Returns whether anybody waits for it.
    pub(crate) fn forms(&self) -> bool {
        self.state.lock().is_formed = true;
        self.waiting() > 0
    }

    /// Whether the request was sent, or is about to be.
    pub(crate) fn was_formed(&self) -> bool {
        self.state.lock().is_formed
    }

    /// Number of members that wait.
    pub(crate) fn waiting(&self) -> usize {
        let state = self.state.lock();
        state.members.iter().filter(|slot| matches!(slot, Slot::Waits(..))).count()
    }

    /// The drafts of the members that wait.
    pub(crate) fn drafts(&self) -> Vec<Arc<Request>> {
        self.state.lock().drafts()
    }

    /// The lock is not free: members that do not wait are refused, unless a release of their own
    /// process is in flight.
    pub(crate) fn contended(&self, holder: &OtherHolder, rank: u32, is_released: bool) {
        self.answer(|state| {
            let (holder, now) = (holder.clone(), Moment::now());
            let busy = Busy { holder, rank, told: now };
            state.last = Some(Ok(busy.clone()));
            state.find(|draft| match draft.until {
                None if is_released => None,
                Some(until) if now < until => None,
                _ => Some(Found::Refused(busy.refusal(draft))),
            })
        });
    }

    /// There was no answer, and the request is repeated.
    pub(crate) fn unanswered(&self, error: &LockError) {
        self.answer(|state| {
            state.last = Some(Err(error.clone()));
            let now = Moment::now();
            state.find(|draft| {
                let is_over = draft.until.is_some_and(|until| until <= now);
                is_over.then(|| Found::Refused(Refusal::Failed(error.clone())))
            })
        });
    }

    /// The refusal of a member whose time is over; `None` while there was no answer.
    pub(crate) fn over(&self, draft: &Request) -> Option<Refusal> {
        match self.state.lock().last.as_ref()? {
            Ok(busy) => Some(busy.refusal(draft)),
            Err(error) => Some(Refusal::Failed(error.clone())),
        }
    }

    /// The members have the lock.
    pub(crate) fn granted(&self, acquisition: &Acquisition, grant: &Grant) {
        self.answer(|state| {
            let kept_until = Moment::now().after(grant.ttl);
            let mut shares = acquisition.shared_by(&state.drafts(), kept_until).into_iter();
            let mut share = |share: Result<_, _>| match share {
                Ok(acquisition) => Found::Granted(acquisition, grant.without_fences()),
                Err(refusal) => Found::Refused(refusal),
            };
            state.find(|_| shares.next().map(&mut share))
        });
    }

    /// The members are refused.
    pub(crate) fn refused(&self, refusal: &Refusal) {
        self.answer(|state| {
            state.find(|draft| {
                Some(match refusal {
                    Refusal::Contended { holder, queue, .. } => {
                        let queue = if draft.until.is_some() { *queue } else { Queueing::Outside };
                        Found::Refused(contended(draft, holder.clone(), queue))
                    }
                    Refusal::Failed(error) => Found::Refused(Refusal::Failed(error.clone())),
                })
            })
        });
    }

    /// The request is over without an answer: each member asks for itself.
    pub(crate) fn failed(&self) {
        self.answer(|state| state.find(|_| Some(Found::Nothing)));
    }

    /// Members that have not been polled since the grant lose it, and ask for themselves.
    pub(crate) fn evict(&self) {
        let mut evicted = Vec::new();
        for slot in &mut self.state.lock().members {
            if let Slot::Found(found) = slot
                && matches!(**found, Found::Granted(..))
            {
                evicted.push(mem::replace(&mut **found, Found::Nothing));
            }
        }
        // Dropped without the mutex: the last of them releases the lock.
        drop(evicted);
    }

    /// Waits until no member waits, nor has anything to take.
    pub(crate) async fn all_over(&self) {
        loop {
            let changed = self.changed.notified();
            if self.state.lock().members.iter().all(Slot::needs_nothing) {
                return;
            }
            changed.await;
        }
    }

    /// Changes the state, and wakes the members without the mutex.
    fn answer(&self, change: impl FnOnce(&mut State) -> Vec<Waker>) {
        let wakers = change(&mut self.state.lock());
        self.changed.notify_one();
        Wakes(wakers).all();
    }

    /// Takes what was found for a member, or has its task woken when there is something.
    pub(crate) fn look(&self, nth: usize, waker: &Waker) -> Option<Found> {
        // A waker may run code when it is cloned or dropped, which is done without the mutex.
        let new = waker.clone();
        let (waits, _last) = match self.state.lock().members.get_mut(nth)? {
            Slot::Waits(_, registered) => (true, registered.replace(new)),
            Slot::Found(_) => (false, None),
            Slot::Over => (true, None),
        };
        if waits { None } else { self.leave(nth).map(|found| *found) }
    }

    /// A member leaves. What was found for it is to be dropped without the mutex.
    pub(crate) fn leave(&self, nth: usize) -> Option<Box<Found>> {
        let left = self.state.lock().members.get_mut(nth).map(|s| mem::replace(s, Slot::Over));
        self.changed.notify_one();
        match left {
            Some(Slot::Found(found)) => Some(found),
            Some(Slot::Waits(..) | Slot::Over) | None => None,
        }
    }
}

impl Slot {
    /// Whether neither the request is for this member, nor a part of the lock.
    fn needs_nothing(&self) -> bool {
        match self {
            Slot::Waits(..) => false,
            Slot::Found(found) => !matches!(**found, Found::Granted(..)),
            Slot::Over => true,
        }
    }
}

impl Busy {
    /// The refusal of a member.
    fn refusal(&self, draft: &Request) -> Refusal {
        let left = self.holder.left.map(|left| left.saturating_sub(self.told.elapsed()));
        let holder = OtherHolder { left, ..self.holder.clone() };
        let queue = draft.until.map_or(Queueing::Outside, |_| Queueing::Left(self.rank));
        contended(draft, holder, queue)
    }
}

/// Wakes members. The code of a waker may panic, and the others are woken nevertheless.
struct Wakes(Vec<Waker>);

impl Wakes {
    fn all(&mut self) {
        while let Some(waker) = self.0.pop() {
            waker.wake();
        }
    }
}

impl Drop for Wakes {
    fn drop(&mut self) {
        self.all();
    }
}

impl State {
    fn drafts(&self) -> Vec<Arc<Request>> {
        let draft = |slot: &Slot| match slot {
            Slot::Waits(draft, _) => Some(Arc::clone(draft)),
            Slot::Found(_) | Slot::Over => None,
        };
        self.members.iter().filter_map(draft).collect()
    }

    /// Answers the members that wait for which `found` returns something. Returns their wakers.
    fn find(&mut self, mut found: impl FnMut(&Request) -> Option<Found>) -> Vec<Waker> {
        let mut wakers = Vec::new();
        for slot in &mut self.members {
            if let Slot::Waits(draft, waker) = slot
                && let Some(found) = found(draft)
            {
                wakers.extend(waker.take());
                *slot = Slot::Found(Box::new(found));
            }
        }
        wakers
    }
}

fn contended(draft: &Request, holder: OtherHolder, queue: Queueing) -> Refusal {
    Refusal::Contended { key: draft.key.clone(), holder, queue }
}
