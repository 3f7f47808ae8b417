//! Acquires a lock, polls a body while the lock is held, and releases the lock: everything about a
//! locked body that does not depend on the body's type.

use std::future;
use std::mem;
use std::task::{Context, Poll, ready};

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Fuse};

use crate::engine::acquire::acquiring::{Acquiring, acquire, acquire_blocking};
use crate::engine::acquire::reentry::Scope;
use crate::engine::acquire::spec::LockSpec;
use crate::engine::acquire::unreported::{Errors, unreported};
use crate::guard::LockGuard;
use crate::value::error::LockError;
use crate::value::loss::{Lost, OnLost};

/// Polls a body once; `Ready` when it has finished.
pub(crate) type PollBody<'a> = dyn FnMut(&mut Context<'_>) -> Poll<()> + 'a;

/// How a body ended: `Ok` if it has finished, with the loss of its lock before that. An error if it
/// did not run, or was dropped.
pub(crate) type Ended = Result<Option<Lost>, LockError>;

/// Releases the lock after its body.
pub(crate) type Release = Fuse<BoxFuture<'static, Ended>>;

/// The start of a body.
#[derive(Debug)]
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
    pub(crate) fn block_on(self, errors: Errors, body: &mut dyn FnMut()) -> Ended {
        let guard = match self {
            Start::Lock(spec) => acquire_blocking(spec, false, errors)?.into(),
            Start::Guard(guard) => guard,
        };
        Running::new(guard, errors).block_on(body)
    }
}

/// Each state is boxed or small, because the future of every waiter and of every level of nested
/// locked functions contains all of them.
pub(crate) enum Driver {
    Acquiring(Acquiring, Errors),
    Running(Running),
    Over,
}

/// A body under its lock.
pub(crate) struct Running {
    /// Dropped before the guard, which releases the lock.
    lost: Option<BoxFuture<'static, Lost>>,
    scope: Scope,
    guard: LockGuard,
    errors: Errors,
    is_begun: bool,
}

impl Driver {
    /// Acquires the lock and polls the body while the lock is held. Returns the release of the lock
    /// when the body has finished or has to be dropped.
    pub(crate) fn poll_body(
        &mut self,
        cx: &mut Context<'_>,
        body: &mut PollBody<'_>,
    ) -> Poll<Release> {
        if let Driver::Acquiring(acquire, errors) = self {
            match ready!(acquire.poll_unpin(cx)) {
                Ok(acquired) => *self = Driver::Running(Running::new(acquired.into(), *errors)),
                Err(error) => return Poll::Ready(future::ready(Err(error)).boxed().fuse()),
            }
        }
        let Driver::Running(running) = self else { return Poll::Pending };
        let stopped = ready!(running.poll(cx, body)).err();
        match mem::replace(self, Driver::Over) {
            Driver::Running(running) => Poll::Ready(running.release(stopped).boxed().fuse()),
            Driver::Acquiring(..) | Driver::Over => Poll::Pending,
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
            async move { guard.lost().await }.boxed()
        });
        lost.as_mut().poll(cx).map(Err)
    }

    async fn release(mut self, stopped: Option<Lost>) -> Ended {
        let lost = self.guard.held().remaining().err();
        if let Some(held) = self.guard.take_for_background() {
            held.release_in_background().await;
        } else if !self.guard.is_joined() {
            let released = self.guard.held().release().await;
            self.guard.held().report_release(released, lost.as_ref());
        }
        self.ended(stopped, lost)
    }

    fn block_on(mut self, body: &mut dyn FnMut()) -> Ended {
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

    fn ended(&self, stopped: Option<Lost>, lost: Option<Lost>) -> Ended {
        let ended: Ended = match stopped {
            Some(lost) => Err(lost.into()),
            None => Ok(lost.filter(|_| self.guard.on_lost() != OnLost::Finish)),
        };
        let error = match (&ended, self.errors) {
            (Err(error), Errors::Reported | Errors::ReportedUnlessLate) => Some(error.clone()),
            (Ok(Some(lost)), Errors::Reported) => Some(lost.clone().into()),
            _ => None,
        };
        if let Some(error) = error {
            let request = self.guard.held().request();
            unreported(&request.name, request.keys(), &error);
        }
        ended
    }
}
