//! The key queue of a process and its owner: the only code that knows the queue, the store and the
//! wakers of callers at once. It locks the queue, feeds it one event, and carries out the effects
//! without the mutex.

use std::fmt;
use std::sync::{Arc, Weak};
use std::task::Waker;
use std::time::Duration;

use tokio::sync::{Notify, oneshot};

use crate::engine::core::Core;
use crate::engine::queue::key_queue::{self, Effects, Event, KeyQueue, QueuedAsk, Ticket};
use crate::engine::telemetry::Behind;
use crate::engine::thread::timers::Enrolled;
use crate::engine::token::acquisition::{Acquisition, Refusal};
use crate::engine::token::in_flight::{InFlightGuard, TokenOwner};
use crate::protocol::answer::{Queueing, Released};
use crate::protocol::ask::Ask;
use crate::protocol::request::Request;
use crate::protocol::token::TokenState;
use crate::reuse::Noted;
use crate::sys::random::secret;
use crate::sys::sync::Mutex;
use crate::sys::time::Moment;
use crate::value::error::{LockError, UnavailableReason};
use crate::value::holder::Holder;
use crate::value::key::LockKey;

pub(crate) mod in_queue;
mod request;
pub(crate) mod waiting;
mod watch;

/// A holder of this process, as its queue sees it.
pub(crate) trait LocalHolder: fmt::Debug + Send + Sync {
    /// For callers that find the lock busy.
    fn shown(&self) -> Holder;

    /// When its lease ends.
    fn ends(&self) -> Moment;

    /// Until when the store may keep the lock without another command.
    fn kept_until(&self) -> Moment;

    /// How long its lease lasts; `None` once it is lost. Reports a loss to the queue.
    fn remaining_lease(&self) -> Option<Duration>;
}

impl QueuedAsk for Arc<Ask> {
    type Token = Request;

    fn ttl(&self) -> Duration {
        self.ttl
    }

    fn is_fenced(&self) -> bool {
        self.fenced
    }

    fn waits(&self) -> bool {
        self.until.is_some()
    }

    fn another(&self) -> Request {
        // Without random bits it is not sent.
        let token = self.token(secret().unwrap_or_default());
        Request { ask: Self::clone(self), token: Arc::new(TokenState::of_queue(token)) }
    }
}

/// What the process has at the store, and may pass on.
pub(crate) type KeyTenure = key_queue::Tenure<Request>;

type Caused = Effects<Request, Waker>;

/// The queue of one key.
pub(crate) struct SharedQueue {
    pub(crate) key: LockKey,
    pub(crate) core: Arc<Core>,
    state: Mutex<QueueState>,
    /// The queue's request was answered.
    answered: Notify,
    /// There was an event.
    changed: Notify,
}

#[derive(Debug, Default)]
struct QueueState {
    queue: KeyQueue<Arc<Ask>, Waker>,
    /// The last answer to the queue's request.
    last: Option<Result<Contended, LockError>>,
    /// When the last own request of a caller was sent that was answered: another holder has the
    /// lock.
    contended_at: Option<Moment>,
    /// Callers up to this one were sent away with this error.
    sent_away: Option<(Ticket, LockError)>,
    /// The queue's request. Dropping the sender withdraws it.
    asked: Option<(Request, oneshot::Sender<()>)>,
    /// The token of the lock that is offered.
    offered: Option<Acquisition>,
    holder: Option<Weak<dyn LocalHolder>>,
    /// The last holder of this process that ended while others waited, and whether it passed its
    /// lock on: with the feature `metrics`.
    before: Option<(Arc<Ask>, bool)>,
    /// What is known of the last value of a holder.
    noted: Noted,
    /// When a holder of this process last ended.
    holder_ended: Option<Moment>,
    /// From when on a long wait is reported again.
    reports_from: Option<Moment>,
    /// Present while the queue is looked at, with the next time.
    watched: Option<(Enrolled, Moment)>,
}

impl QueueState {
    fn note_ended(&mut self, holder: &Arc<Ask>, passes: bool) {
        if cfg!(feature = "metrics") && self.queue.count() > 0 {
            self.before = Some((Arc::clone(holder), passes));
        }
    }

    /// The store has granted the lock: it was not passed on.
    fn note_granted(&mut self) {
        if let Some((_, passes)) = &mut self.before {
            *passes = false;
        }
    }

    /// Whom the waiter has waited for that takes the lock up.
    fn behind(&mut self) -> Behind {
        match (self.before.take(), &self.last) {
            (Some((before, true)), _) => Some(("passed", before.name.clone())),
            (_, Some(Ok(last))) => Some(("waited", last.holder.function())),
            (before, _) => before.map(|(before, _)| ("waited", before.name.clone())),
        }
    }
}

/// Another holder has the lock.
#[derive(Debug, Clone)]
struct Contended {
    holder: Holder,
    until: Option<Moment>,
    /// Number of processes before this one.
    ahead: u32,
}

impl Contended {
    fn of(holder: &Holder, ahead: u32) -> Self {
        let until = holder.free_within.map(|left| Moment::now().after(left));
        Self { holder: holder.clone(), until, ahead }
    }
}

/// A request of the queue, to be sent.
struct ToSend {
    question: Request,
    /// The token's acquisition, if it was sent before.
    acquisition: Option<Acquisition>,
    /// Counts the token from here on: a caller that has sent it no longer does.
    guard: InFlightGuard,
    before: Option<Before>,
    withdrawn: oneshot::Receiver<()>,
}

/// The lock of the turn before, to be released once the request was sent.
struct Before {
    acquisition: Acquisition,
    /// Receives the answer.
    report: Option<oneshot::Sender<Result<Released, LockError>>>,
}

/// The rest of an event, for the caller that has caused it.
struct Left {
    /// Its acquisition, unless the queue has it now.
    acquisition: Option<Acquisition>,
    /// Its acquisition is released along with a request.
    reported: Option<oneshot::Receiver<Result<Released, LockError>>>,
    /// The token to be released, if nobody has taken care of it.
    release: Option<Request>,
}

impl SharedQueue {
    pub(crate) fn new(key: LockKey, core: Arc<Core>) -> Arc<Self> {
        Arc::new(Self {
            key,
            core,
            state: Default::default(),
            answered: Default::default(),
            changed: Default::default(),
        })
    }

    /// Changes the queue under its mutex, and then carries out the effects without the mutex.
    /// `acquisition` is that of the caller, in case the queue goes on with its token.
    fn with<R>(
        self: &Arc<Self>,
        acquisition: Option<Acquisition>,
        change: impl FnOnce(&mut QueueState) -> (R, Caused),
    ) -> (R, Left) {
        let mut left = Left { acquisition, reported: None, release: None };
        // The holder is dropped without the mutex: the last one to drop it needs the queue.
        let (result, effects, to_send, mut retired, withdrawn, _held, starts) = {
            let mut state = self.state.lock();
            let (result, mut effects) = change(&mut state);
            left.release = effects.release.take();
            // The acquisition follows the tenure: that of an offer which has ended is released, and
            // the queue keeps that of a lock which is offered from now on.
            let is_offered = state.queue.offered().is_some();
            let mut retired = if is_offered { None } else { state.offered.take() };
            if is_offered && state.offered.is_none() {
                state.offered = left.acquisition.take();
            }
            let release = left.release.as_ref();
            // The task of a request that is withdrawn releases its token, so nobody else has to.
            let mut withdrawn = state.asked.take_if(|(asked, _)| release == Some(asked));
            if retired.is_some() || withdrawn.is_some() {
                left.release = None;
            }
            let to_send = effects.ask.take().map(|question| {
                let (withdraw, withdrawal) = oneshot::channel();
                let earlier = state.asked.replace((question.clone(), withdraw));
                withdrawn = withdrawn.take().or(earlier);
                // Counted before the caller stops counting its token: a shutdown must not see zero
                // in between.
                let guard = self.core.in_flight.join();
                left.request_for(question, retired.take(), withdrawal, guard)
            });
            if state.queue.is_unused() {
                // The last callers are forgotten, as there are none any more.
                state.last = Default::default();
                state.holder = Default::default();
                state.before = Default::default();
                state.reports_from = None;
                state.noted = Default::default();
                state.queue.shrink();
            }
            let (held, starts) = self.watch(&mut state);
            (result, effects, to_send, retired, withdrawn, held, starts)
        };
        // In the order of the fields of `Effects`.
        // A request that nobody waits for any more ends before the next one is sent.
        drop(withdrawn);
        if let Some(to_send) = to_send {
            // On the same connection before the release of the turn before: so the lock is handed
            // off by the store, and no other process finds the key free in between.
            self.send(to_send);
        }
        // Released in the background, and before the waiters are woken, who may ask again.
        drop(retired.take());
        effects.wake.into_iter().for_each(Waker::wake);
        if starts {
            self.start_watch();
        }
        // Its drop may panic: the others are awake by then.
        drop(effects.unused);
        (result, left)
    }

    /// An event, other than the arrival or the poll of a caller. Wakes the undecided callers.
    fn on(
        self: &Arc<Self>,
        acquisition: Option<Acquisition>,
        change: impl FnOnce(&mut QueueState) -> Event<Request>,
    ) -> Left {
        let (_, left) = self.with(acquisition, |state| {
            let event = change(state);
            ((), state.queue.on(event, Moment::now()))
        });
        self.changed.notify_waiters();
        left
    }

    /// The holder, if it is known.
    pub(crate) fn holder(&self) -> Option<Arc<dyn LocalHolder>> {
        let state = self.state.lock();
        state.queue.holder().and(state.holder.as_ref()).and_then(Weak::upgrade)
    }

    /// The queue's request was granted. A grant that comes too late is released.
    fn granted(self: &Arc<Self>, tenure: KeyTenure, acquisition: Acquisition) {
        // Dropped unless the lock is offered now.
        self.on(Some(acquisition), |state| {
            state.asked.take_if(|(asked, _)| *asked == tenure.token);
            state.note_granted();
            Event::Granted(tenure)
        });
    }

    /// The queue's request waits: another holder has the lock, with this number of processes before
    /// this one.
    fn contended(self: &Arc<Self>, asked: &Request, holder: &Holder, ahead: u32) {
        self.on(None, |state| {
            state.last = Some(Ok(Contended::of(holder, ahead)));
            Event::Answered { token: asked.clone(), contended: true }
        });
        self.report_long_wait();
        // Unlike `notify_waiters` it is kept for a release that begins to wait for it later.
        self.answered.notify_one();
    }

    /// It is not known whether another holder has the lock: there was no answer, or `holder` may
    /// not have it.
    fn unanswered_by(self: &Arc<Self>, asked: &Request, last: Result<&Holder, LockError>) {
        self.on(None, |state| {
            state.last = Some(last.map(|holder| Contended::of(holder, 0)));
            Event::Answered { token: asked.clone(), contended: false }
        });
    }

    /// A release of the token was sent while it was asked for.
    fn spent(self: &Arc<Self>, asked: Request) {
        self.on(None, |state| {
            state.asked.take_if(|(question, _)| *question == asked);
            Event::Spent(asked)
        });
    }

    /// The manager is shut down: all waiters are sent away.
    pub(crate) fn close(self: &Arc<Self>) {
        self.on(None, |state| {
            // Callers that arrive later are refused before they reach the queue.
            state.sent_away = Some((state.queue.last(), LockError::SHUT_DOWN));
            Event::Closes { for_fences: false }
        });
    }

    /// The store refuses the queue's request for good. All waiters are sent away, or those that
    /// need the fence that there is not, or the first one if too few replicas had its lock.
    fn refused(self: &Arc<Self>, asked: &Request, error: LockError) {
        let for_fences = error.is_of_fences();
        self.on(None, |state| {
            // An answer to an earlier question says nothing to those who wait now.
            if state.asked.as_ref().is_none_or(|(question, _)| question != asked) {
                return Event::Time;
            }
            if error.is_of_replicas() {
                state.asked = None;
                // The others ask with another token, whose grant may be acknowledged.
                state.sent_away = state.queue.next().map(|first| (first, error));
                return Event::Fails(asked.clone());
            }
            state.sent_away = Some((state.queue.last(), error));
            Event::Closes { for_fences }
        });
    }

    /// Looks at what is known of the last value, or changes it.
    #[cfg(feature = "reuse")]
    pub(crate) fn with_noted<R>(&self, look: impl FnOnce(&mut Noted) -> R) -> R {
        look(&mut self.state.lock().noted)
    }

    /// Once no release is in flight: whether one may have been since `since`.
    fn released_since(&self, since: Moment) -> Option<bool> {
        let state = self.state.lock();
        // A release is answered within this time.
        let longest = self.core.answer_time() * 2;
        let was = state.holder_ended.is_some_and(|ended| since <= ended.after(longest));
        (!state.queue.is_releasing()).then_some(was)
    }

    /// The refusal of a caller that does not wait, if another holder has the lock by the answer to
    /// a request that was sent since `since`.
    fn busy_since(&self, since: Moment) -> Option<Refusal> {
        let mut held = None;
        let state = self.state.lock();
        // The answer to an earlier request may be about a holder that had left when the caller
        // came.
        let is_busy = state.contended_at.is_some_and(|at| since <= at);
        is_busy.then(|| self.busy(&state, Queueing::Outside, &mut held))
    }

    /// The refusal of a caller whose time is over, and that came at `since`. `Err` while nothing is
    /// known of the lock.
    fn over(&self, waits: Option<Ticket>, since: Moment) -> Result<Refusal, Refusal> {
        let mut held = None;
        let state = self.state.lock();
        // Then the last answer of the store is about an earlier holder.
        let is_ours = state.queue.holder().is_some() || state.queue.offered().is_some();
        let last = state.last.as_ref().filter(|_| !is_ours);
        if let Some(Err(error)) = last {
            return Ok(Refusal::Failed(error.clone()));
        }
        let ahead = last.map_or(0, |last| last.as_ref().map_or(0, |contended| contended.ahead));
        let queue = waits.map_or(Queueing::Outside, |ticket| {
            let rank = u32::try_from(state.queue.rank(ticket)).unwrap_or(u32::MAX);
            Queueing::Behind(rank.saturating_add(ahead))
        });
        let refusal = self.busy(&state, queue, &mut held);
        match state.holder_ended {
            _ if is_ours || last.is_some() => Ok(refusal),
            // A caller that came before a holder of its process ended has waited for a busy lock.
            Some(ended) if since <= ended => Err(refusal),
            _ => Err(Refusal::Failed(unanswered())),
        }
    }

    /// The holder, for a caller that is refused. It is kept in `held`, to be dropped without the
    /// mutex: the last one to drop it needs the queue.
    fn busy(
        &self,
        state: &QueueState,
        queue: Queueing,
        held: &mut Option<Arc<dyn LocalHolder>>,
    ) -> Refusal {
        *held = state.holder.as_ref().and_then(Weak::upgrade);
        let (mut holder, until) = if state.queue.holder().is_some() {
            // A holder is known a moment after it has the lock.
            held.as_ref().map(|held| (held.shown(), Some(held.kept_until()))).unwrap_or_default()
        } else if let Some(tenure) = state.queue.offered() {
            (tenure.token.ask.holder(), Some(tenure.kept_until))
        } else {
            match &state.last {
                Some(Ok(Contended { holder, until, .. })) => (holder.clone(), *until),
                Some(Err(_)) | None => Default::default(),
            }
        };
        holder.free_within = until.map(|until| until.since(Moment::now()));
        Refusal::Contended { key: self.key.clone(), holder: Box::new(holder), queue }
    }
}

impl TokenOwner for SharedQueue {
    fn gone(self: Arc<Self>, request: &Request) {
        self.with(None, |state| {
            state.queue.released(request);
            ((), Effects::default())
        });
        self.changed.notify_waiters();
    }
}

impl Left {
    /// The request for `question`. `retired` is the token of an offer that has ended.
    fn request_for(
        &mut self,
        question: Request,
        retired: Option<Acquisition>,
        withdrawn: oneshot::Receiver<()>,
        guard: InFlightGuard,
    ) -> ToSend {
        let acquisition = self.acquisition.take_if(|own| *own.request() == question);
        let retired = retired.map(|acquisition| Before { acquisition, report: None });
        let before = retired.or_else(|| {
            let acquisition = self.acquisition.take_if(|_| self.release.is_some())?;
            let (report, reported) = oneshot::channel();
            (self.reported, self.release) = (Some(reported), None);
            Some(Before { acquisition, report: Some(report) })
        });
        ToSend { question, acquisition, guard, before, withdrawn }
    }
}

/// The error of a caller that has had no answer.
pub(crate) fn unanswered() -> LockError {
    let detail = "no answer while the caller waited";
    LockError::because(UnavailableReason::Timeout, detail)
}

impl fmt::Debug for SharedQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedQueue").field("key", &self.key).finish_non_exhaustive()
    }
}
