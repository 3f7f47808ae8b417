//! Acquiring: from a [`LockSpec`] to a held lock, or to the error that the caller gets. Tasks and
//! blocked threads poll the same future.

use std::mem;
use std::ops::ControlFlow;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_util::future::BoxFuture;

use crate::engine::acquire::options::WaitMode;
use crate::engine::acquire::outcome::{Acquired, Errors, Wanted, unreported};
use crate::engine::acquire::outside::ask_outside;
use crate::engine::acquire::own_request::{Answered, ask};
use crate::engine::acquire::spec::{LockSpec, Prepared};
use crate::engine::core::inside_runtime;
use crate::engine::manager::Manager;
use crate::engine::observer::observe;
use crate::engine::queue::shared_queue::in_queue::{Arrived, InQueue, Waited};
use crate::engine::queue::shared_queue::waiting::{Waiting, decided};
use crate::engine::queue::shared_queue::{SharedQueue, unanswered};
use crate::engine::telemetry;
use crate::engine::thread::blocking::may_block;
use crate::engine::token::acquisition::{Refusal, drawn};
use crate::protocol::ask::Ask;
use crate::protocol::request::Request;
use crate::store::handle::Store;
use crate::sys::metrics;
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
    ask: Arc<Ask>,
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
    let (manager, ask, wanted) = match spec.prepare(waits, errors) {
        Ok(Prepared::Joined(acquired)) => return ControlFlow::Break(Ok(acquired)),
        Ok(Prepared::ToAsk(manager, ask, wanted)) => (manager, ask, wanted),
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
    let has_queue = excludes && ask.has_queue();
    let may_wait = if blocks { may_block() } else { inside_runtime() };
    let checked = may_wait.and_then(|()| {
        if !excludes {
            Ok(())
        } else if manager.core.shutdown.is_closed() {
            Err(LockError::SHUT_DOWN)
        } else {
            manager.core.store.backend.check_ask(&ask)
        }
    });
    if let Err(error) = checked {
        return ControlFlow::Break(wanted.refused(&manager.core, &ask, Refusal::Failed(error)));
    }
    telemetry::asked_for(&ask);
    ControlFlow::Continue(Caller { manager, ask, wanted, has_queue, blocks })
}

impl Caller {
    /// Arrives at the queue of its key, if the lock has one.
    fn arrive(self, is_again: bool) -> Step {
        if !self.has_queue {
            let outside = async move { Step::Break(self.acquire_outside().await) };
            return Step::Continue(Acquiring::Asking(Box::pin(outside)));
        }
        // With another token than before, which the queue may have retired. It is sent only if the
        // caller asks the store itself.
        let request = match drawn(&self.ask) {
            Ok(request) => request,
            Err(error) => return Step::Break(self.refused(Refusal::Failed(error))),
        };
        let queue = self.manager.queue(&self.ask.key);
        let arrived = queue.arrive(&request, is_again);
        self.arrived(request, queue, arrived, is_again)
    }

    fn arrived(
        self,
        request: Request,
        queue: Arc<SharedQueue>,
        arrived: Arrived,
        is_again: bool,
    ) -> Step {
        let asks: BoxFuture<'_, _> = match arrived {
            Arrived::Waits(caller) => return self.wait(caller),
            Arrived::Refused(refusal) => return Step::Break(self.refused(refusal)),
            Arrived::Asks(caller, since) => Box::pin(self.ask(request, caller, is_again, since)),
            Arrived::Undecided => Box::pin(async move {
                let arrived = decided(&queue, &request).await;
                self.arrived(request, queue, arrived, is_again)
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
    async fn ask(
        self,
        request: Request,
        caller: InQueue,
        is_again: bool,
        since: Option<Moment>,
    ) -> Step {
        let caller = match ask(caller, &request, self.store(), is_again, since).await {
            Answered::Refused(refusal) => return Step::Break(self.refused(refusal)),
            Answered::GoesOn(caller) => caller,
            Answered::Granted(acquisition, grant, caller) => {
                let granted = self.wanted.granted(acquisition, grant, Some(&caller), None);
                match granted.transpose() {
                    Some(acquired) => return Step::Break(self.or_refused(acquired)),
                    None => caller,
                }
            }
        };
        // The queue has gone on with the token.
        if self.ask.until.is_some() {
            self.wait(caller)
        } else {
            Step::Continue(Acquiring::Arriving { caller: self, is_again: true })
        }
    }

    fn wait(self, caller: InQueue) -> Step {
        Step::Continue(Acquiring::Waiting(Waiting::new(caller, &self.ask), self))
    }

    fn after(&self, waited: Waited) -> Step {
        match waited {
            Waited::Lock(lock) => {
                Step::Break(self.or_refused(self.wanted.taken_up(lock, &self.ask)))
            }
            Waited::Refused(refusal) => Step::Break(self.refused(refusal)),
            Waited::Gone => {
                Step::Continue(Acquiring::Arriving { caller: self.clone(), is_again: true })
            }
        }
    }

    fn refused(&self, refusal: Refusal) -> Result<Acquired, LockError> {
        self.wanted.refused(&self.manager.core, &self.ask, refusal)
    }

    /// A grant that could not be kept is a refusal.
    fn or_refused(&self, acquired: Result<Acquired, LockError>) -> Result<Acquired, LockError> {
        acquired.or_else(|error| self.refused(Refusal::Failed(error)))
    }

    /// Acquires a lock that belongs to no queue.
    async fn acquire_outside(&self) -> Result<Acquired, LockError> {
        let (own, grant, behind) = match ask_outside(&self.manager, self.store(), &self.ask).await {
            Ok(granted) => granted,
            Err(refusal) => return self.refused(refusal),
        };
        let acquired = self.wanted.granted(own, grant, None, behind).transpose();
        self.or_refused(acquired.unwrap_or_else(|| Err(unanswered())))
    }
}
