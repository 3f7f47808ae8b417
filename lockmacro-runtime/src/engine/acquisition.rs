//! A token from before its first byte is sent until it is known to be gone. Whatever happens in
//! between, dropping the hold has it released.

use crate::engine::telemetry::Waiting;
use crate::value::time::Moment;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use std::{mem, process, thread};

use tokio::time::sleep;

use crate::engine::blocking::blocked;
use crate::engine::core::{Core, inside_runtime};
use crate::engine::in_flight::InFlightGuard;
use crate::protocol::answer::{Answer, Asked, Failed, Grant, Queueing, Released};
use crate::protocol::request::Request;
use crate::store::dispatch::Store;
use crate::value::error::LockError;
use crate::value::key::LockKey;

/// Pause before a lock that was lost at once is asked for anew.
const PAUSE: Duration = Duration::from_millis(20);

#[derive(Debug)]
pub(crate) struct Acquisition {
    manager: Arc<Core>,
    request: Arc<Request>,
    /// Whether the manager counts it: not when nothing is left to release.
    is_counted: AtomicBool,
    /// Whose it is: a process that it forks has a copy of it, and must not release it.
    process: u32,
}

/// Why there is no lock.
#[derive(Debug)]
pub(crate) enum Refusal {
    Busy { key: LockKey, owner: Option<String>, left: Option<Duration>, queue: Queueing },
    Failed(LockError),
}

impl Acquisition {
    /// A hold of which nothing was sent yet.
    pub(crate) fn new(manager: Arc<Core>, request: Request) -> Self {
        let (is_counted, process) = (AtomicBool::new(false), process::id());
        Self { manager, request: Arc::new(request), is_counted, process }
    }

    /// Asks for the lock on the caller's runtime.
    pub(crate) fn acquire(self) -> Result<Acquire, (Self, Refusal)> {
        match self.enter() {
            Ok(()) => Ok(self.asking(true)),
            Err(refusal) => Err((self, refusal)),
        }
    }

    fn asking(self, is_first: bool) -> Acquire {
        let asked = self.manager.shared_backend().asked(&self.request, self.manager.shutdown());
        let _waiting = Waiting::of(&self.request);
        Acquire::Asking { asked, _waiting, acquisition: self, is_first }
    }

    /// Asks for the lock in the background and blocks until the answer is there.
    pub(crate) fn acquire_blocking(&mut self) -> Result<Grant, Refusal> {
        self.enter()?;
        let mut first = true;
        loop {
            let (shutdown, request) =
                (Arc::clone(self.manager.shutdown()), Arc::clone(&self.request));
            let job =
                move |store: Arc<Store>| async move { store.asked(&request, &shutdown).await };
            let answer = {
                let _waiting = Waiting::of(&self.request);
                self.manager.background().block_on(job).map_err(Refusal::Failed)?
            };
            if !self.begins_anew(&answer, mem::take(&mut first)) {
                return self.settle(answer);
            }
            _ = self.release_blocking();
            blocked(|| thread::sleep(PAUSE));
            self.anew()?;
        }
    }

    pub(crate) fn manager(&self) -> &Arc<Core> {
        &self.manager
    }

    pub(crate) fn request(&self) -> &Arc<Request> {
        &self.request
    }

    /// Gives the lock back and tells what was found. When that fails, dropping the hold tries on in
    /// the background.
    pub(crate) async fn release(&self) -> Result<Released, LockError> {
        if self.is_a_copy() {
            return Ok(Released::NotHeld);
        }
        let released = if inside_runtime().is_ok() {
            self.manager.store().release(&self.request).await
        } else {
            // A lock of a plain thread may be given back on an executor of another kind.
            let request = Arc::clone(&self.request);
            let ask = move |store: Arc<Store>| async move { store.release(&request).await };
            self.manager.background().call(ask).await.and_then(|released| released)
        };
        self.released(released)
    }

    /// The same for callers that block.
    pub(crate) fn release_blocking(&self) -> Result<Released, LockError> {
        if self.is_a_copy() {
            return Ok(Released::NotHeld);
        }
        let request = Arc::clone(&self.request);
        let ask = move |store: Arc<Store>| async move { store.release(&request).await };
        let released = self.manager.background().block_on(ask).and_then(|released| released);
        self.released(released)
    }

    /// Has the lock given back in the background, unless that was done already.
    pub(crate) fn abandon(&self) {
        let guard = self.leaves();
        if let Some(guard) = guard
            && !self.is_a_copy()
        {
            self.manager.background().clean_up(Arc::clone(&self.request), guard);
        }
    }

    /// Whether this process was forked by the one that has the lock.
    fn is_a_copy(&self) -> bool {
        self.process != process::id()
    }

    /// From here on the token may be sent, and dropping the hold has it released.
    fn enter(&self) -> Result<(), Refusal> {
        self.manager.count_in().map_err(Refusal::Failed)?;
        self.is_counted.store(true, Ordering::Release);
        Ok(())
    }

    /// Whether the lock is to be asked for anew, as it was lost before its caller was told: who waits
    /// does so while there is time, and who does not, once.
    fn begins_anew(&self, answer: &Result<Answer, Failed>, first: bool) -> bool {
        matches!(answer, Ok(Answer::Lost(_)))
            && self.request.until.map_or(first, |until| Moment::now() < until)
    }

    /// Gives back what is left of it, and becomes the next one.
    async fn begin_anew(mut self) -> (Self, Result<(), Refusal>) {
        // What cannot be given back now is when it is replaced.
        _ = self.release().await;
        sleep(PAUSE).await;
        let anew = self.anew();
        (self, anew)
    }

    /// The same by another token.
    fn anew(&mut self) -> Result<(), Refusal> {
        let request = self.request.anew().map_err(Refusal::Failed)?;
        *self = Self::new(self.manager.clone(), request);
        self.enter()
    }

    fn settle(&self, answer: Result<Answer, Failed>) -> Result<Grant, Refusal> {
        match answer {
            Ok(Answer::Granted(grant)) => {
                self.request.granted(grant.at);
                self.request.settle(!grant.resent);
                Ok(grant)
            }
            Ok(Answer::Busy { nth, owner, left, queue, resent }) => {
                self.request.settle(!resent);
                let key = self.request.keys().get(nth).unwrap_or(&self.request.key).clone();
                // Who gives up waiting is taken out of the line by dropping the hold.
                // Of a Redlock's several keys a node may have an earlier one, and has not said so.
                self.forget_unless(
                    !self.request.is_settled() || matches!(queue, Queueing::Left(_)),
                );
                Err(Refusal::Busy { key, owner, left, queue })
            }
            Ok(Answer::Lost(told)) => self.settle(*told),
            Err(Failed { error, written }) => {
                self.forget_unless(written);
                Err(Refusal::Failed(error))
            }
        }
    }

    fn released(&self, released: Result<Released, LockError>) -> Result<Released, LockError> {
        let found = released?;
        let in_flight = !self.request.is_settled();
        self.forget_unless(in_flight);
        Ok(found)
    }

    /// Nothing is left to release, unless a request of ours may still arrive at the server.
    fn forget_unless(&self, in_flight: bool) {
        if !in_flight {
            drop(self.leaves());
        }
    }

    /// What the manager counts it by, once.
    fn leaves(&self) -> Option<InFlightGuard> {
        self.is_counted.swap(false, Ordering::AcqRel).then(|| self.manager.guard())
    }
}

/// A hold that asks for its lock. Written by hand, as everybody who waits carries it: an `async fn`
/// keeps its arguments as well, and has no name by which it could be kept without a box.
pub(crate) enum Acquire {
    /// The fields are dropped in their order: the question before the hold that takes it back.
    Asking {
        asked: Asked<'static, Result<Answer, Failed>>,
        _waiting: Waiting<Arc<Request>>,
        acquisition: Acquisition,
        is_first: bool,
    },
    /// Boxed, as it is rare.
    BeginningAnew(Asked<'static, (Acquisition, Result<(), Refusal>)>),
    Over,
}

impl Acquire {
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<(Acquisition, Result<Grant, Refusal>)> {
        loop {
            *self = match self {
                Acquire::Asking { asked, .. } => {
                    let answer = ready!(asked.as_mut().poll(cx));
                    let Some((acquisition, is_first)) = self.asked() else {
                        return Poll::Pending;
                    };
                    if !acquisition.begins_anew(&answer, is_first) {
                        let settled = acquisition.settle(answer);
                        return Poll::Ready((acquisition, settled));
                    }
                    Acquire::BeginningAnew(Box::pin(acquisition.begin_anew()))
                }
                Acquire::BeginningAnew(anew) => match ready!(anew.as_mut().poll(cx)) {
                    (acquisition, Ok(())) => acquisition.asking(false),
                    (acquisition, Err(refusal)) => {
                        *self = Acquire::Over;
                        return Poll::Ready((acquisition, Err(refusal)));
                    }
                },
                Acquire::Over => return Poll::Pending,
            }
        }
    }

    /// The hold whose question was answered, which is counted no more.
    fn asked(&mut self) -> Option<(Acquisition, bool)> {
        match mem::replace(self, Acquire::Over) {
            Acquire::Asking { acquisition, is_first, .. } => Some((acquisition, is_first)),
            Acquire::BeginningAnew(_) | Acquire::Over => None,
        }
    }
}

impl Drop for Acquisition {
    fn drop(&mut self) {
        self.abandon();
    }
}
