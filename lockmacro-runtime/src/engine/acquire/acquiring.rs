//! Acquiring: from a [`LockSpec`] to a held lock, or to the error that the caller gets. Tasks and
//! blocked threads poll the same future.

use std::ops::ControlFlow;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_util::future::BoxFuture;
use tokio::time::sleep;

use crate::engine::acquire::outcome::{Acquired, Errors, Wanted, unreported};
use crate::engine::acquire::own_request::{Answered, ask};
use crate::engine::acquire::spec::{LockSpec, Prepared};
use crate::engine::blocking::may_block;
use crate::engine::cleanup::acquisition::{Acquisition, PAUSE, Refusal};
use crate::engine::core::inside_runtime;
use crate::engine::manager::Manager;
use crate::engine::observer::refused;
use crate::engine::queue::shared_queue::in_queue::{Arrived, InQueue, Waited};
use crate::engine::queue::shared_queue::unanswered;
use crate::engine::queue::shared_queue::waiting::{Waiting, decided, released};
use crate::engine::telemetry::WaitingGauge;
use crate::protocol::answer::{Answer, Grant};
use crate::protocol::request::Request;
use crate::store::dispatch::Store;
use crate::value::error::LockError;
use crate::value::time::Moment;

/// Acquires a lock. Nothing happens before the first poll.
pub(crate) fn acquire(spec: Box<LockSpec>, fenced: bool, errors: Errors) -> Acquiring {
    Acquiring::Asking(Box::pin(async move {
        match begin(spec, fenced, errors, false) {
            ControlFlow::Continue(caller) => caller.asks(false).await,
            ControlFlow::Break(ended) => Step::Ends(ended),
        }
    }))
}

/// Acquires a lock, and blocks the thread until the answer.
pub(crate) fn acquire_blocking(
    spec: Box<LockSpec>,
    fenced: bool,
    errors: Errors,
) -> Result<Acquired, LockError> {
    let name = spec.name.clone();
    let caller = match begin(spec, fenced, errors, true) {
        ControlFlow::Continue(caller) => caller,
        ControlFlow::Break(ended) => return ended,
    };
    let manager = Arc::clone(&caller.manager);
    let acquired = manager.background.block_on(Acquiring::Asking(Box::pin(caller.asks(false))));
    acquired.inspect_err(|error| failed(&name, errors, error))?
}

/// The future of [`acquire`]. Every waiter carries one, so the state that only an asking caller
/// needs is in a box.
pub(crate) enum Acquiring {
    Asking(BoxFuture<'static, Step>),
    Waiting(Waiting, Caller),
    Over,
}

impl Future for Acquiring {
    type Output = Result<Acquired, LockError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            let step = match &mut *self {
                Acquiring::Asking(asks) => ready!(asks.as_mut().poll(cx)),
                Acquiring::Waiting(waiting, caller) => caller.after(ready!(waiting.poll(cx))),
                Acquiring::Over => return Poll::Pending,
            };
            *self = match step {
                Step::Waits(waiting, caller) => Acquiring::Waiting(waiting, caller),
                Step::AsksAgain(caller) => Acquiring::Asking(Box::pin(caller.asks(true))),
                Step::Ends(acquired) => {
                    *self = Acquiring::Over;
                    return Poll::Ready(acquired);
                }
            };
        }
    }
}

/// The next step of a caller.
pub(crate) enum Step {
    Ends(Result<Acquired, LockError>),
    Waits(Waiting, Caller),
    /// The caller arrives once more, with another token.
    AsksAgain(Caller),
}

/// Reports an error that occurs before a lock is asked for.
fn failed(name: &str, errors: Errors, error: &LockError) {
    refused(error);
    if errors != Errors::Carried {
        unreported(name, &[], error);
    }
}

/// A caller that has no lock yet. Small, as every waiter has one.
#[derive(Clone)]
pub(crate) struct Caller {
    manager: Arc<Manager>,
    /// The connection through which it asks.
    store: Arc<Store>,
    request: Arc<Request>,
    wanted: Wanted,
    has_queue: bool,
}

/// All that a caller does before it asks for the lock, and waits for anything. `blocks`: it blocks
/// its thread.
fn begin(
    spec: Box<LockSpec>,
    fenced: bool,
    errors: Errors,
    blocks: bool,
) -> ControlFlow<Result<Acquired, LockError>, Caller> {
    let name = spec.name.clone();
    let prepared = spec.prepare(fenced, errors).inspect_err(|error| failed(&name, errors, error));
    let (manager, mut request, wanted) = match prepared {
        Ok(Prepared::Joined(acquired)) => return ControlFlow::Break(Ok(acquired)),
        Ok(Prepared::ToAsk(manager, request, wanted)) => (manager, request, wanted),
        Err(error) => return ControlFlow::Break(Err(error)),
    };
    let excludes = !manager.store.excludes_nobody();
    // Those who share a key, or want several, have a token of their own at the store.
    let has_queue = excludes && request.several().is_empty() && request.key.mode().is_exclusive();
    // The first request does not wait, as a free lock needs no queue.
    request.only_if_free = has_queue && request.until.is_some();
    let may_wait = if blocks { may_block() } else { inside_runtime() };
    let checked = may_wait.and_then(|()| match excludes {
        true if manager.shutdown.is_closed() => Err(LockError::ShutDown),
        true => manager.store.servers().check_request(&request),
        false => Ok(()),
    });
    let drawn = checked.and_then(|()| request.token.another());
    let drawn = drawn.map(|token| request.token = token);
    let request = Arc::new(request);
    if let Err(error) = drawn {
        return ControlFlow::Break(wanted.refused(&manager, &request, Refusal::Failed(error)));
    }
    // The runtime of a blocked thread may be blocked with it.
    let store = match blocks {
        true => Arc::clone(&manager.background.store),
        false => Arc::clone(&manager.store),
    };
    ControlFlow::Continue(Caller { manager, store, request, wanted, has_queue })
}

impl Caller {
    /// Asks for the lock until the caller has it, is refused, or waits. An exclusive lock on one
    /// key has a queue, at which the caller arrives: with another token if it does so again.
    async fn asks(mut self, mut is_again: bool) -> Step {
        if !self.has_queue {
            return Step::Ends(self.acquire_outside().await);
        }
        let queue = self.manager.queue(&self.request.key);
        let mut next = (!is_again).then(|| queue.arrive(&self.request, false));
        loop {
            let arrived = match next {
                Some(arrived) => arrived,
                None => match self.request.with_new_token() {
                    Ok(request) => {
                        self.request = Arc::new(request);
                        queue.arrive(&self.request, true)
                    }
                    Err(error) => return Step::Ends(self.refused(Refusal::Failed(error))),
                },
            };
            next = match arrived {
                Arrived::Waits(caller) => return self.waits(caller),
                Arrived::Refused(refusal) => return Step::Ends(self.refused(refusal)),
                Arrived::Undecided => Some(decided(&queue, &self.request).await),
                Arrived::Asks(caller, is_behind) => {
                    let asked = ask(caller, &self.request, &self.store, is_again, is_behind);
                    let caller = match asked.await {
                        Answered::Refused(refusal) => return Step::Ends(self.refused(refusal)),
                        Answered::GoesOn(caller) => caller,
                        Answered::Granted(acquisition, grant, caller) => {
                            match self.wanted.granted(acquisition, grant, Some(&caller)) {
                                Ok(None) => caller,
                                Ok(Some(acquired)) => return Step::Ends(Ok(acquired)),
                                Err(error) => return Step::Ends(Err(error)),
                            }
                        }
                    };
                    // The queue has gone on with the token.
                    if self.request.until.is_some() {
                        return self.waits(caller);
                    }
                    is_again = true;
                    None
                }
            };
        }
    }

    fn waits(self, caller: InQueue) -> Step {
        Step::Waits(Waiting::new(caller, &self.request), self)
    }

    fn after(&self, waited: Waited) -> Step {
        match waited {
            Waited::Lock(lock) => Step::Ends(self.wanted.taken_up(lock, &self.request)),
            Waited::Refused(refusal) => Step::Ends(self.refused(refusal)),
            Waited::Gone => Step::AsksAgain(self.clone()),
        }
    }

    /// Acquires a lock that belongs to no queue, as it is shared or has several keys.
    async fn acquire_outside(&self) -> Result<Acquired, LockError> {
        let request = Arc::clone(&self.request);
        let guard = match self.manager.enter() {
            Ok(guard) => guard,
            Err(error) => return self.refused(Refusal::Failed(error)),
        };
        let mut own = Acquisition::new(guard, Arc::clone(&self.manager), request, None);
        match ask_outside(&self.manager, &mut own, &self.store).await {
            Ok(grant) => self.wanted.granted(own, grant, None)?.ok_or_else(unanswered),
            Err(refusal) => self.wanted.refused(&self.manager, own.request(), refusal),
        }
    }

    fn refused(&self, refusal: Refusal) -> Result<Acquired, LockError> {
        self.wanted.refused(&self.manager, &self.request, refusal)
    }
}

/// Asks until the lock is granted or refused. A lock that was lost before its caller had it is
/// asked for again: until the end of the wait, or once for a caller that does not wait.
async fn ask_outside(
    manager: &Manager,
    own: &mut Acquisition,
    store: &Arc<Store>,
) -> Result<Grant, Refusal> {
    let (mut releases, mut is_first) = (own.request().keys().len(), true);
    loop {
        let answer = {
            let _waiting = WaitingGauge::new(&**own.request());
            store.acquire(own.request(), &manager.shutdown).await
        };
        let goes_on = own.request().until.map_or(is_first, |until| Moment::now() < until);
        if matches!(answer, Ok(Answer::Lost(_))) && goes_on {
            // After an error, dropping the replaced acquisition releases it in the background.
            _ = own.release_at(store).await;
            sleep(PAUSE).await;
        } else {
            let answered = own.take_answer(answer);
            let Err(Refusal::Contended { key, .. }) = &answered else { return answered };
            // A release of this process, which no caller waits for, may have been in flight.
            let asks_again = own.request().until.is_none() && releases > 0;
            if !asks_again || !released(&manager.queue(key), own.request().asked).await {
                return answered;
            }
            releases -= 1;
        }
        own.renew_token().map_err(Refusal::Failed)?;
        is_first = false;
    }
}
