//! The line of a key: the callers of one process, and the requests that the line sends to the store
//! for them. Long, as all of its state is under one mutex.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::task::Waker;
use std::time::Duration;
use std::{fmt, mem};

use tokio::sync::{Notify, oneshot};

use crate::engine::acquisition::{Acquisition, Refusal};
use crate::engine::core::Core;
use crate::engine::line_holder::{Holder, shown};
use crate::engine::lines::KeyLine;
use crate::engine::local_queue::{Arrival, Effects, LocalQueue, Ticket};
use crate::engine::turn::Wants;
use crate::protocol::answer::{Queueing, Released};
use crate::protocol::other_holder::OtherHolder;
use crate::protocol::request::Request;
use crate::value::error::LockError;
use crate::value::key::LockKey;
use crate::value::limits::QUEUE_MAX;
use crate::value::sync::Mutex;
use crate::value::time::Moment;

/// Shortest time for which the request of a single caller may be in flight before a request is sent
/// for the next caller. The future of the first caller may not be polled.
const UNANSWERED_MIN: Duration = Duration::from_millis(100);

impl Wants for Arc<Request> {
    fn ttl(&self) -> Duration {
        self.ttl
    }

    fn is_fenced(&self) -> bool {
        self.fenced
    }
}

type Queue = LocalQueue<Acquisition, Arc<Request>, Waker>;

/// The line of one key.
pub(crate) struct Line {
    pub(crate) key: LockKey,
    pub(crate) core: Weak<Core>,
    pub(crate) state: Mutex<State>,
    /// The first waiter has changed, or a waiter wants a fence.
    pub(crate) rewished: Notify,
    /// Wakes the watch before its timer does.
    pub(crate) sooner: Notify,
    /// A request of the queue was answered.
    pub(crate) answered: Notify,
    /// A request of the queue was answered before, so the next one is sent at once.
    pub(crate) was_answered: AtomicBool,
}

pub(crate) struct State {
    pub(crate) queue: Queue,
    /// The line was removed from the table: a new caller needs another line.
    pub(crate) closed: bool,
    /// The last answer to the request of the queue.
    pub(crate) last: Option<Result<Contended, LockError>>,
    /// The ttl of the queue's request, and whether it should ask for a fence.
    pub(crate) wish: Option<(Duration, bool)>,
    /// Withdraws the request of the queue when it is dropped.
    pub(crate) withdraw: Option<oneshot::Sender<()>>,
    /// Sends the outcome of the release to the last holder.
    pub(crate) report: Option<Report>,
    pub(crate) holder: Option<Weak<dyn Holder>>,
    /// The token that a waiter has taken up, and until when the store may keep the lock. Shown to
    /// callers that arrive before the waiter is registered as the holder.
    pub(crate) taken_up: Option<(Arc<Request>, Moment)>,
    /// When a holder of this process last ended.
    pub(crate) holder_ended: Option<Moment>,
    /// When the watch looks at the line next; `None` when there is no watch.
    pub(crate) watched: Option<Moment>,
}

/// Another holder has the lock.
#[derive(Debug, Clone)]
pub(crate) struct Contended {
    pub(crate) owner: Option<String>,
    pub(crate) until: Option<Moment>,
    /// Number of processes before this one.
    pub(crate) ahead: u32,
}

/// A caller at a line.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    pub(crate) line: Arc<Line>,
    pub(crate) ticket: Ticket,
}

/// The first state of a caller at a line.
pub(crate) enum Arrived {
    /// The caller asks the store for itself.
    Asks(Place, Request),
    Waits(Place, Arc<Request>),
    Refused(Request, Refusal),
    /// The line was removed meanwhile.
    Closed(Request),
}

/// Receives the answer to a release.
pub(crate) type Report = oneshot::Sender<Result<Released, LockError>>;

/// The state of a lock after its holder has ended.
pub(crate) enum Ended {
    /// The next caller of this process has it.
    Passed,
    /// The lock is released along with the request for the next caller.
    Released(oneshot::Receiver<Result<Released, LockError>>),
    /// The lock is still the holder's, to be released.
    Kept,
}

/// A request of the queue, to be sent.
pub(crate) struct ToSend {
    /// The lock of the turn before, to be released once the request was sent.
    pub(crate) before: Option<Acquisition>,
    pub(crate) report: Option<Report>,
    pub(crate) number: u64,
    pub(crate) draft: Arc<Request>,
    pub(crate) fenced: bool,
    pub(crate) withdrawn: oneshot::Receiver<()>,
}

impl Line {
    fn new(key: LockKey, core: Weak<Core>) -> Arc<Self> {
        let state = State {
            queue: Queue::default(),
            closed: false,
            last: None,
            wish: None,
            withdraw: None,
            report: None,
            holder: None,
            taken_up: None,
            holder_ended: None,
            watched: None,
        };
        let state = Mutex::new(state);
        let (rewished, sooner, answered, was_answered) = Default::default();
        Arc::new(Self { key, core, state, rewished, sooner, answered, was_answered })
    }

    /// A caller arrives at the line of its request's key.
    pub(crate) fn of_caller(core: &Arc<Core>, mut request: Request) -> Arrived {
        loop {
            let new = || Self::new(request.key.clone(), Arc::downgrade(core));
            match core.lines().of(request.key.as_str(), new).arrive(request) {
                Arrived::Closed(again) => request = again,
                begun => return begun,
            }
        }
    }

    /// A caller arrives. A caller that asks the store for itself gets its request back.
    fn arrive(self: &Arc<Self>, request: Request) -> Arrived {
        // A holder that has lost the lock delays no other caller, even if it has never checked its
        // lease.
        if let Some(holder) = self.holder() {
            holder.lasts();
        }
        let mut held = None;
        self.with(|state| {
            let waits = request.until.is_some();
            let begun = if state.closed {
                Arrived::Closed(request)
            } else if waits && state.queue.len() >= QUEUE_MAX {
                Arrived::Refused(request, self.full())
            } else {
                let place = |ticket| Place { line: Arc::clone(self), ticket };
                match state.queue.arrive(waits, Moment::now()) {
                    Arrival::Asks(ticket) => Arrived::Asks(place(ticket), request),
                    Arrival::Waits(_) if state.queue.len() >= QUEUE_MAX => {
                        Arrived::Refused(request, self.full())
                    }
                    Arrival::Waits(ticket) => {
                        let draft = Arc::new(request);
                        state.queue.wait(ticket, Arc::clone(&draft), !waits);
                        Arrived::Waits(place(ticket), draft)
                    }
                    Arrival::Busy => {
                        let refusal = self.busy(state, Queueing::Outside, &mut held);
                        Arrived::Refused(request, refusal)
                    }
                }
            };
            (begun, Effects::default())
        })
    }

    /// Changes the line under its mutex, and then carries out the effects without the mutex.
    pub(crate) fn with<R>(
        self: &Arc<Self>,
        change: impl FnOnce(&mut State) -> (R, Effects<Acquisition, Waker>),
    ) -> R {
        // The holder is dropped without the mutex: the last one to drop it needs the line.
        let (result, mut effects, to_send, withdrawn, (watch, _held), empty) = {
            let mut state = self.state.lock();
            let (result, effects) = change(&mut state);
            let withdrawn = if effects.withdraw { state.withdraw.take() } else { None };
            let report = state.report.take();
            let to_send = effects.request.and_then(|number| state.next_request(number, report));
            let wish = state.queue.wish();
            if mem::replace(&mut state.wish, wish) != wish && to_send.is_none() {
                self.rewished.notify_one();
            }
            let empty = state.queue.is_empty() && !state.closed;
            if empty {
                state.forget();
                // The subscription may be gone when the line is used again.
                self.was_answered.store(false, Ordering::Relaxed);
            }
            (result, effects, to_send, withdrawn, self.watch(&mut state), empty)
        };
        drop(withdrawn);
        let acts = to_send.is_some() || watch;
        if let Some(core) = (acts || empty).then(|| self.core.upgrade()).flatten() {
            if let Some(mut to_send) = to_send {
                to_send.before = effects.release.take();
                self.send(&core, to_send);
            }
            if watch {
                self.start_watch(&core);
            }
            if empty {
                core.lines().unused(self.key.as_str(), self, || self.close());
            }
        }
        // Released in the background.
        drop(effects.release);
        // Last: the code of a waker may panic.
        effects.wake.into_iter().for_each(Waker::wake);
        result
    }

    /// The holder, if it is known.
    pub(crate) fn holder(&self) -> Option<Arc<dyn Holder>> {
        let state = self.state.lock();
        state.queue.holder().and(state.holder.as_ref()).and_then(Weak::upgrade)
    }

    /// Returns whether a watch has to be started, and the holder. A watch that would sleep too long
    /// is woken.
    fn watch(&self, state: &mut State) -> (bool, Option<Arc<dyn Holder>>) {
        if !state.queue.has_waiters() {
            return (false, None);
        }
        let held = state.queue.holder().and(state.holder.as_ref()).and_then(Weak::upgrade);
        let due = state.queue.lapses(self.unanswered());
        let due = due.or(held.as_ref().map(|held| held.ends()));
        let is_to_start = match (state.watched, due) {
            (None, Some(due)) => {
                let is_watched = self.is_watched(state);
                state.watched = is_watched.then_some(due);
                is_watched
            }
            (Some(watched), Some(due)) if due < watched => {
                state.watched = Some(due);
                self.sooner.notify_one();
                false
            }
            _ => false,
        };
        (is_to_start, held)
    }

    /// Whether an event may occur that only the watch notices. After a shutdown no caller waits for
    /// a lock, even if its future was not polled since.
    pub(crate) fn is_watched(&self, state: &State) -> bool {
        state.queue.has_waiters() && (state.queue.passed().is_some() || self.is_open())
    }

    /// Longest time for which the own request of a caller is waited for.
    pub(crate) fn unanswered(&self) -> Duration {
        let core = self.core.upgrade();
        core.map_or(UNANSWERED_MIN, |core| core.store().servers().answer_time().max(UNANSWERED_MIN))
    }

    /// The ttl of the queue's request, and whether it should ask for a fence.
    pub(crate) fn wish(&self) -> Option<(Duration, bool)> {
        self.state.lock().wish
    }

    /// The length of a turn, for a line with waiters.
    pub(crate) fn turn(&self, state: &State) -> Duration {
        let core = state.queue.has_waiters().then(|| self.core.upgrade()).flatten();
        core.map_or(Duration::ZERO, |core| core.turn(&self.key))
    }

    /// Whether the manager is not shut down.
    pub(crate) fn is_open(&self) -> bool {
        self.core.upgrade().is_some_and(|core| !core.shutdown().is_closed())
    }

    /// Closes the line if it is not used any more. Returns whether this call has closed it.
    fn close(&self) -> bool {
        let mut state = self.state.lock();
        let closes = state.queue.is_empty() && !state.closed;
        state.closed |= closes;
        closes
    }

    /// The holder, for a caller that is refused. It is kept in `held`, to be dropped without the
    /// mutex: the last one to drop it needs the line.
    pub(crate) fn busy(
        &self,
        state: &State,
        queue: Queueing,
        held: &mut Option<Arc<dyn Holder>>,
    ) -> Refusal {
        *held = state.holder.as_ref().and_then(Weak::upgrade);
        let (owner, until) = if state.queue.holder().is_some() {
            match (held, &state.taken_up) {
                (Some(held), _) => (held.shown(), Some(held.kept_until())),
                (None, Some((request, until))) => (shown(request), Some(*until)),
                (None, None) => (None, None),
            }
        } else if let Some((tenure, token)) = state.queue.passed() {
            (shown(token.request()), Some(tenure.kept_until))
        } else {
            match &state.last {
                Some(Ok(Contended { owner, until, .. })) => (owner.clone(), *until),
                Some(Err(_)) | None => (None, None),
            }
        };
        let left = until.map(|until| until.since(Moment::now()));
        let holder = OtherHolder { owner, left };
        Refusal::Contended { key: self.key.clone(), holder, queue }
    }

    fn full(&self) -> Refusal {
        let (key, holder) = (self.key.clone(), OtherHolder::default());
        Refusal::Contended { key, holder, queue: Queueing::Full }
    }
}

impl KeyLine for Line {
    fn alarm(self: Arc<Self>) {
        self.with(|state| ((), state.queue.alarm()));
    }

    #[cfg(feature = "test-util")]
    fn removed(&self) {
        self.state.lock().closed = true;
    }

    #[cfg(feature = "test-util")]
    fn forget_holder(self: Arc<Self>) {
        if let Some(holder) = self.holder() {
            holder.is_forgotten();
        }
        self.alarm();
    }
}

impl State {
    /// The request for the first caller.
    fn next_request(&mut self, number: u64, report: Option<Report>) -> Option<ToSend> {
        let (draft, fenced) = self.queue.first()?;
        let draft = Arc::clone(draft);
        let (withdraw, withdrawn) = oneshot::channel();
        self.withdraw = Some(withdraw);
        Some(ToSend { before: None, report, number, draft, fenced, withdrawn })
    }

    /// Forgets the last callers, when there are none any more.
    fn forget(&mut self) {
        (self.last, self.holder, self.taken_up) = Default::default();
        self.queue.shrink();
    }

    pub(crate) fn note(&mut self, holder: &OtherHolder, ahead: u32) {
        self.last = Some(Ok(Contended::of(holder, ahead)));
    }
}

impl Contended {
    pub(crate) fn of(holder: &OtherHolder, ahead: u32) -> Self {
        let until = holder.left.map(|left| Moment::now().after(left));
        Self { owner: holder.owner.clone(), until, ahead }
    }
}

impl fmt::Debug for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Line").field("key", &self.key).finish_non_exhaustive()
    }
}
