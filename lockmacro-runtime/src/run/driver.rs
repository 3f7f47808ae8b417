//! Acquires a lock, polls a body while the lock is held, and releases the lock: everything about a
//! locked body that does not depend on the body's type.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use crate::engine::acquire::acquire_blocking;
use crate::engine::acquire::{Acquiring, acquire};
use crate::engine::reentry::Scope;
use crate::engine::spec::LockSpec;
use crate::engine::unreported::{Errors, unreported};
use crate::guard::LockGuard;
use crate::run::report::Outcome;
use crate::value::loss::{Lost, OnLost};

/// Polls a body once; `Ready` when it has finished.
pub(crate) type PollBody<'a> = dyn FnMut(&mut Context<'_>) -> Poll<()> + 'a;

/// The start of a body.
pub enum Start {
    /// A lock to acquire.
    Lock(Box<LockSpec>),
    /// A lock that is held.
    Guard(LockGuard),
}

impl Start {
    /// For an async body. Nothing is sent before the first poll.
    pub(crate) fn driver(self, errors: Errors) -> Driver {
        match self {
            Start::Lock(spec) => Driver::Acquiring(acquire(spec, false, errors), errors),
            Start::Guard(guard) => Driver::Running(Running::new(guard, errors)),
        }
    }

    /// Runs a body that is not async, on the caller's thread.
    pub(crate) fn block_on(self, errors: Errors, body: &mut dyn FnMut()) -> Outcome<()> {
        let guard = match self {
            Start::Lock(spec) => match acquire_blocking(spec, false, errors) {
                Ok(acquired) => acquired.into(),
                Err(error) => return Outcome::Refused(error),
            },
            Start::Guard(guard) => guard,
        };
        Running::new(guard, errors).block_on(body)
    }
}

type Pending<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Each state is boxed or small, because the future of every waiter and of every level of nested
/// locked functions contains all of them.
pub(crate) enum Driver {
    Acquiring(Acquiring, Errors),
    Running(Running),
    Ending(Ending),
}

/// The rest of a driver when its body is dropped. It is smaller than a driver, because the body's
/// value is stored beside it.
pub(crate) enum Ending {
    Releasing(Pending<Outcome<()>>),
    /// Boxed, because an error is larger than all the rest.
    Ended(Option<Box<Outcome<()>>>),
}

/// A body under its lock.
pub(crate) struct Running {
    /// Dropped before the guard, which releases the lock.
    lost: Option<Pending<Lost>>,
    scope: Scope,
    guard: LockGuard,
    errors: Errors,
    is_begun: bool,
}

impl Driver {
    /// Acquires the lock and polls the body while the lock is held, until the body has finished or
    /// has to be dropped. The release comes next.
    pub(crate) fn poll_body(&mut self, cx: &mut Context<'_>, body: &mut PollBody<'_>) -> Poll<()> {
        loop {
            *self = match self {
                Driver::Acquiring(acquire, errors) => match ready!(Pin::new(acquire).poll(cx)) {
                    Ok(acquired) => Driver::Running(Running::new(acquired.into(), *errors)),
                    Err(error) => {
                        let refused = Box::new(Outcome::Refused(error));
                        Driver::Ending(Ending::Ended(Some(refused)))
                    }
                },
                Driver::Running(running) => {
                    let stopped = ready!(running.poll(cx, body)).err();
                    let over = Driver::Ending(Ending::Ended(None));
                    let Driver::Running(running) = std::mem::replace(self, over) else {
                        return Poll::Pending;
                    };
                    Driver::Ending(Ending::Releasing(Box::pin(running.release(stopped))))
                }
                Driver::Ending(_) => return Poll::Ready(()),
            }
        }
    }

    /// Takes the state after the last poll of the body. Leaves a driver that does nothing.
    pub(crate) fn take(&mut self) -> Ending {
        match std::mem::replace(self, Driver::Ending(Ending::Ended(None))) {
            Driver::Ending(ending) => ending,
            Driver::Acquiring(..) | Driver::Running(_) => Ending::Ended(None),
        }
    }
}

impl Ending {
    /// Releases the lock, when the body has finished or was dropped.
    pub(crate) fn poll_release(&mut self, cx: &mut Context<'_>) -> Poll<Outcome<()>> {
        match self {
            Ending::Releasing(release) => release.as_mut().poll(cx),
            Ending::Ended(ended) => match ended.take() {
                Some(ended) => Poll::Ready(*ended),
                None => Poll::Pending,
            },
        }
    }
}

impl Running {
    fn new(guard: LockGuard, errors: Errors) -> Self {
        let scope = guard.level();
        Self { lost: None, scope, guard, errors, is_begun: false }
    }

    /// Polls the body until it has finished, or returns the loss that ended it.
    fn poll(&mut self, cx: &mut Context<'_>, body: &mut PollBody<'_>) -> Poll<Result<(), Lost>> {
        let stops = !self.is_begun || self.guard.on_lost() == OnLost::Cancel;
        // The lease is checked before every poll: after a pause of the process this comes first.
        if stops && let Err(lost) = self.guard.held().remaining() {
            return Poll::Ready(Err(lost));
        }
        self.is_begun = true;
        if self.scope.enter(|| body(cx)).is_ready() {
            return Poll::Ready(Ok(()));
        }
        if self.guard.on_lost() != OnLost::Cancel {
            return Poll::Pending;
        }
        // Created only for a body that awaits.
        let lost = self.lost.get_or_insert_with(|| {
            let guard = self.guard.share();
            Box::pin(async move { guard.lost().await })
        });
        lost.as_mut().poll(cx).map(Err)
    }

    async fn release(mut self, stopped: Option<Lost>) -> Outcome<()> {
        let lost = self.guard.held().remaining().err();
        if let Some(held) = self.guard.take_for_background() {
            held.release_in_background().await;
        } else if !self.guard.is_joined() {
            let released = self.guard.held().release().await;
            self.guard.held().report_release(released, lost.as_ref());
        }
        self.ended(stopped, lost)
    }

    fn block_on(mut self, body: &mut dyn FnMut()) -> Outcome<()> {
        // The last check before the body, which cannot be stopped later.
        let stopped = self.guard.held().remaining().map(|_| self.scope.enter(body)).err();
        let lost = self.guard.held().remaining().err();
        if let Some(held) = self.guard.take_for_background() {
            held.abandon();
        } else if !self.guard.is_joined() {
            let held = self.guard.held();
            held.report_release(held.release_blocking(), lost.as_ref());
        }
        self.ended(stopped, lost)
    }

    fn ended(&self, stopped: Option<Lost>, lost: Option<Lost>) -> Outcome<()> {
        let outcome = match (stopped, lost) {
            (Some(lost), _) => Outcome::Refused(lost.into()),
            (None, Some(lost)) if self.guard.on_lost() != OnLost::Finish => Outcome::Late((), lost),
            _ => Outcome::Done(()),
        };
        let error = match (&outcome, self.errors) {
            (_, Errors::Carried) | (Outcome::Done(()), _) => None,
            (Outcome::Late(..), Errors::ReportedUnlessLate) => None,
            (Outcome::Late((), lost), Errors::Reported) => Some(lost.clone().into()),
            (Outcome::Refused(error), _) => Some(error.clone()),
        };
        if let Some(error) = error {
            let request = self.guard.held().request();
            unreported(&request.name, request.keys(), &error);
        }
        outcome
    }
}
