//! Acquiring: from a [`LockSpec`] to a held lock, or to the error that the caller gets. Tasks and
//! blocked threads poll the same future.

use std::mem;
use std::ops::ControlFlow;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_util::future::BoxFuture;
use tokio::time::sleep;

use crate::engine::acquire::options::WaitMode;
use crate::engine::acquire::outcome::{Acquired, Errors, Wanted, unreported};
use crate::engine::acquire::own_request::{Answered, ask};
use crate::engine::acquire::spec::{LockSpec, Prepared};
use crate::engine::core::inside_runtime;
use crate::engine::manager::Manager;
use crate::engine::observer::observe;
use crate::engine::queue::shared_queue::in_queue::{Arrived, InQueue, Waited};
use crate::engine::queue::shared_queue::waiting::{Waiting, decided, released};
use crate::engine::queue::shared_queue::{SharedQueue, unanswered};
use crate::engine::telemetry::{self, WaitingGauge};
use crate::engine::thread::blocking::may_block;
use crate::engine::token::acquisition::{Acquisition, PAUSE, Refusal};
use crate::protocol::answer::{Answer, Grant};
use crate::protocol::request::Request;
use crate::store::handle::Store;
use crate::sys::metrics;
use crate::sys::random::secret;
use crate::sys::time::Moment;
use crate::value::error::LockError;

/// Acquires a lock. Nothing happens before the first poll.
pub(crate) fn acquire(spec: Arc<LockSpec>, waits: WaitMode, errors: Errors) -> Acquiring {
    Acquiring::New { spec, waits, errors }
}

/// Acquires a lock, and blocks the thread until the answer.
pub(crate) fn acquire_blocking(
    spec: &LockSpec,
    waits: WaitMode,
    errors: Errors,
) -> Result<Acquired, LockError> {
    let caller = match begin(spec, waits, errors, true) {
        ControlFlow::Continue(caller) => caller,
        ControlFlow::Break(ended) => return ended,
    };
    let acquired = caller
        .manager
        .core
        .background
        .block_on(Acquiring::Arriving { caller: caller.clone(), is_again: false });
    acquired.unwrap_or_else(|error| caller.refused(Refusal::Failed(error)))
}

/// The future of [`acquire`]. Every waiter carries one, so the state that only an asking caller
/// needs is in a box.
pub(crate) enum Acquiring {
    New {
        spec: Arc<LockSpec>,
        waits: WaitMode,
        errors: Errors,
    },
    /// The caller arrives, maybe again.
    Arriving {
        caller: Caller,
        is_again: bool,
    },
    Asking(BoxFuture<'static, Step>),
    Waiting(Waiting, Caller),
    Over,
}

/// The next state of a caller, or the outcome.
pub(crate) type Step = ControlFlow<Result<Acquired, LockError>, Acquiring>;

impl Future for Acquiring {
    type Output = Result<Acquired, LockError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            let step = match &mut *self {
                Acquiring::Asking(asks) => ready!(asks.as_mut().poll(cx)),
                Acquiring::Waiting(waiting, caller) => caller.after(ready!(waiting.poll(cx))),
                _ => match mem::replace(&mut *self, Acquiring::Over) {
                    Acquiring::New { spec, waits, errors } => begin(&spec, waits, errors, false)
                        .map_continue(|caller| Acquiring::Arriving { caller, is_again: false }),
                    Acquiring::Arriving { caller, is_again } => caller.arrive(is_again),
                    _ => panic!("the future of a lock was polled after it had ended"),
                },
            };
            *self = match step {
                ControlFlow::Continue(next) => next,
                ControlFlow::Break(ended) => {
                    // The state is dropped here, and leaves its queue before the caller goes on.
                    *self = Acquiring::Over;
                    return Poll::Ready(ended);
                }
            };
        }
    }
}

/// A caller that has no lock yet. Small, as every waiter has one.
#[derive(Clone)]
pub(crate) struct Caller {
    manager: Arc<Manager>,
    request: Arc<Request>,
    wanted: Wanted,
    has_queue: bool,
    blocks: bool,
}

/// All that a caller does before it asks for the lock, and waits for anything. `blocks`: it blocks
/// its thread.
fn begin(
    spec: &LockSpec,
    waits: WaitMode,
    errors: Errors,
    blocks: bool,
) -> ControlFlow<Result<Acquired, LockError>, Caller> {
    let (manager, mut request, wanted) = match spec.prepare(waits, errors) {
        Ok(Prepared::Joined(acquired)) => return ControlFlow::Break(Ok(acquired)),
        Ok(Prepared::ToAsk(manager, request, wanted)) => (manager, request, wanted),
        Err(error) => {
            observe(&error, false);
            metrics::refused(spec.name.clone(), error.kind());
            if errors != Errors::Carried {
                unreported(&spec.name, &[], &error);
            }
            return ControlFlow::Break(Err(error));
        }
    };
    let excludes = !manager.core.store.facts.is_never_busy;
    let has_queue = excludes && request.has_queue();
    // The first request does not wait, as a free lock needs no queue.
    request.only_if_free = has_queue && request.until.is_some();
    let may_wait = if blocks { may_block() } else { inside_runtime() };
    let checked = may_wait.and_then(|()| {
        if !excludes {
            Ok(())
        } else if manager.core.shutdown.is_closed() {
            Err(LockError::SHUT_DOWN)
        } else {
            manager.core.store.backend.check_request(&request)
        }
    });
    // Last, so that a caller who is refused costs the system no random bits.
    let drawn = checked
        .and_then(|()| secret().map_err(LockError::no_random))
        .map(|random| request.token.draw(random));
    let request = Arc::new(request);
    if let Err(error) = drawn {
        return ControlFlow::Break(wanted.refused(&manager.core, &request, Refusal::Failed(error)));
    }
    telemetry::asked_for(&request);
    ControlFlow::Continue(Caller { manager, request, wanted, has_queue, blocks })
}

impl Caller {
    /// Arrives at the queue of its key, if the lock has one, and with another token if it arrives
    /// again.
    fn arrive(mut self, is_again: bool) -> Step {
        if !self.has_queue {
            let outside = async move { Step::Break(self.acquire_outside().await) };
            return Step::Continue(Acquiring::Asking(Box::pin(outside)));
        }
        if is_again {
            // The queue may have gone on with the first token and have retired it.
            match secret().map_err(LockError::no_random) {
                Ok(random) => self.request = Arc::new(self.request.with_new_token(random)),
                Err(error) => return Step::Break(self.refused(Refusal::Failed(error))),
            }
        }
        let queue = self.manager.queue(&self.request.key);
        let arrived = queue.arrive(&self.request, is_again);
        self.arrived(queue, arrived, is_again)
    }

    fn arrived(self, queue: Arc<SharedQueue>, arrived: Arrived, is_again: bool) -> Step {
        let asks: BoxFuture<'_, _> = match arrived {
            Arrived::Waits(caller) => return self.wait(caller),
            Arrived::Refused(refusal) => return Step::Break(self.refused(refusal)),
            Arrived::Asks(caller, since) => Box::pin(self.ask(caller, is_again, since)),
            Arrived::Undecided => Box::pin(async move {
                let arrived = decided(&queue, &self.request).await;
                self.arrived(queue, arrived, is_again)
            }),
        };
        Step::Continue(Acquiring::Asking(asks))
    }

    /// The connection through which it asks. The runtime of a blocked thread may be blocked with
    /// it.
    fn store(&self) -> &Store {
        let core = &self.manager.core;
        if self.blocks { &core.background.store } else { &core.store }
    }

    /// Asks the store for the lock.
    async fn ask(self, caller: InQueue, is_again: bool, since: Option<Moment>) -> Step {
        let caller = match ask(caller, &self.request, self.store(), is_again, since).await {
            Answered::Refused(refusal) => return Step::Break(self.refused(refusal)),
            Answered::GoesOn(caller) => caller,
            Answered::Granted(acquisition, grant, caller) => {
                match self.wanted.granted(acquisition, grant, Some(&caller)).transpose() {
                    Some(acquired) => return Step::Break(self.or_refused(acquired)),
                    None => caller,
                }
            }
        };
        // The queue has gone on with the token.
        if self.request.until.is_some() {
            self.wait(caller)
        } else {
            Step::Continue(Acquiring::Arriving { caller: self, is_again: true })
        }
    }

    fn wait(self, caller: InQueue) -> Step {
        Step::Continue(Acquiring::Waiting(Waiting::new(caller, &self.request), self))
    }

    fn after(&self, waited: Waited) -> Step {
        match waited {
            Waited::Lock(lock) => {
                Step::Break(self.or_refused(self.wanted.taken_up(lock, &self.request)))
            }
            Waited::Refused(refusal) => Step::Break(self.refused(refusal)),
            Waited::Gone => {
                Step::Continue(Acquiring::Arriving { caller: self.clone(), is_again: true })
            }
        }
    }

    fn refused(&self, refusal: Refusal) -> Result<Acquired, LockError> {
        self.wanted.refused(&self.manager.core, &self.request, refusal)
    }

    /// A grant that could not be kept is a refusal.
    fn or_refused(&self, acquired: Result<Acquired, LockError>) -> Result<Acquired, LockError> {
        acquired.or_else(|error| self.refused(Refusal::Failed(error)))
    }

    /// Acquires a lock that belongs to no queue, as it is shared or has several keys.
    async fn acquire_outside(&self) -> Result<Acquired, LockError> {
        match self.ask_outside().await {
            Ok((own, grant)) => {
                let acquired = self.wanted.granted(own, grant, None);
                self.or_refused(acquired.and_then(|acquired| acquired.ok_or_else(unanswered)))
            }
            Err(refusal) => self.refused(refusal),
        }
    }

    /// Asks until the lock is granted or refused. After a stale grant it asks again:
    /// until the end of the wait, or once for a caller that does not wait.
    async fn ask_outside(&self) -> Result<(Acquisition, Grant), Refusal> {
        let Self { manager, request, .. } = self;
        let store = self.store();
        let until = request.until;
        let mut request = Arc::clone(request);
        let mut releases = request.keys().len();
        let mut is_first = true;
        loop {
            let outside = &manager.core.trailing_outside;
            // Before the request is sent: a release that begins later is not that of the holder it
            // finds.
            let trails = manager.core.trailing.count() > 0;
            let guard = manager.core.enter().map_err(Refusal::Failed)?;
            let mut own =
                Acquisition::new(guard, Arc::clone(&manager.core), Arc::clone(&request), None);
            let answer = {
                let _waiting = WaitingGauge::new(&*request);
                store.acquire(&request, &manager.core.shutdown).await
            };
            let goes_on = until.map_or(is_first, |until| Moment::now() < until);
            if matches!(answer, Ok(Answer::Stale(_))) && goes_on {
                // After an error, dropping the acquisition releases it in the background.
                _ = own.release_at(store).await;
                sleep(PAUSE).await;
            } else {
                let refusal = match own.take_answer(answer) {
                    Ok(grant) => return Ok((own, grant)),
                    Err(refusal) => refusal,
                };
                let Refusal::Contended { key, .. } = &refusal else { return Err(refusal) };
                // A release of this process, which no caller waits for, may have been in flight.
                let asks_again = until.is_none() && releases > 0;
                let longest = manager.core.answer_time() * 2;
                let has_ended = asks_again
                    && (released(&manager.queue(key), request.asked).await
                        || trails && outside.over(key, longest).await);
                if !has_ended {
                    return Err(refusal);
                }
                releases -= 1;
            }
            let random = secret().map_err(|error| Refusal::Failed(LockError::no_random(error)))?;
            request = Arc::new(request.with_new_token(random));
            is_first = false;
        }
    }
}
