//! One future that contains a body once, and a driver for everything that does not depend on the
//! body's type: it acquires the lock, polls the body while the lock is held, and releases the lock.

use std::future::ready;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{self, Context, Poll};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use pin_project_lite::pin_project;

use crate::engine::acquire::acquiring::{Acquiring, acquire, acquire_blocking};
use crate::engine::acquire::options::WaitMode;
use crate::engine::acquire::outcome::{Acquired, Errors, unreported};
use crate::engine::acquire::reentry::Scope;
use crate::engine::acquire::spec::LockSpec;
#[cfg(feature = "test-util")]
use crate::run::waits::polled;
use crate::run_policy::{BodyEnd, Returnable};
use crate::value::error::LockError;
use crate::value::loss::{Lost, OnLost};

/// Polls a body once; `Ready` when it has finished.
type PollBody<'a> = dyn FnMut(&mut Context<'_>) -> Poll<()> + 'a;

/// Whether a body has finished, or why it did not run or has to be dropped.
type Finished = Result<(), LockError>;

pin_project! {
    /// A body, and the driver that decides when the body is polled; then its value, and the
    /// release of the lock.
    ///
    /// The future contains the body once. So nested locked functions grow by the size of each, and
    /// do not double. The fields are dropped in their order: the body before the lock.
    ///
    /// A poll after the value was returned panics, as it does for the futures of std.
    ///
    /// It is not a struct around an enum, because the compiler limits how deep types may be nested.
    #[project = RunProjection]
    #[project_replace = RunOwned]
    #[must_use = "futures do nothing unless polled"]
    pub(crate) enum Run<B: Future, P> {
        Body { #[pin] body: B, driver: Driver, policy: P },
        Value { value: Option<B::Output>, release: BoxFuture<'static, BodyEnd>, policy: P },
        Over,
    }
}

impl<B: Future<Output: Returnable<P>>, P> Run<B, P> {
    /// Nothing is sent before the first poll.
    pub(crate) fn new(start: Start, policy: P, body: B) -> Self {
        Run::Body { body, driver: start.under::<B::Output, P>().driver(B::Output::ERRORS), policy }
    }
}

impl<B: Future<Output: Returnable<P>>, P> Future for Run<B, P> {
    type Output = B::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<B::Output> {
        if let RunProjection::Body { mut body, driver, .. } = self.as_mut().project() {
            let mut value = None;
            let finished = task::ready!(driver.poll_body(cx, &mut |cx| {
                value = Some(task::ready!(body.as_mut().poll(cx)));
                Poll::Ready(())
            }));
            // This drops the body, before its lock is released.
            let before = self.as_mut().project_replace(Run::Over);
            if let RunOwned::Body { driver, policy, .. } = before {
                self.set(Run::Value { value, release: driver.release(finished), policy });
            }
        }
        let RunProjection::Value { release, .. } = self.as_mut().project() else {
            panic!("the future of a lock's body was polled after it had ended");
        };
        let ended = task::ready!(release.poll_unpin(cx));
        let RunOwned::Value { value, policy, .. } = self.project_replace(Run::Over) else {
            unreachable!("it was in this state");
        };
        Poll::Ready(B::Output::conclude(policy, ended, value))
    }
}

/// The start of a body.
pub(crate) enum Start {
    /// A lock to acquire.
    Lock(Arc<LockSpec>, WaitMode),
    /// A lock that is held.
    Guard(Acquired),
}

impl Start {
    /// With what this policy needs, whatever was set after it.
    fn under<R: Returnable<P>, P>(mut self) -> Self {
        match &mut self {
            Start::Lock(spec, waits) => {
                if R::SKIPS && spec.options.wait.is_none() {
                    *waits = WaitMode::Never;
                }
                if R::RECOVERS {
                    Arc::make_mut(spec).options.on_lost = OnLost::Error;
                }
            }
            Start::Guard(guard) if R::RECOVERS => guard.on_lost = OnLost::Error,
            Start::Guard(_) => {}
        }
        self
    }

    fn driver(self, errors: Errors) -> Driver {
        match self {
            Start::Lock(spec, waits) => Driver::Acquiring(acquire(spec, waits, errors), errors),
            Start::Guard(guard) => Driver::RunningBody(RunningBody::new(guard, errors)),
        }
    }

    /// Runs a body that is not async, on the caller's thread.
    pub(crate) fn run_blocking<R: Returnable<P>, P>(
        self,
        policy: P,
        body: impl FnOnce() -> R,
    ) -> R {
        let mut body = Some(body);
        let mut value = None;
        let start = self.under::<R, P>();
        let ended = start.block_on(R::ERRORS, &mut || value = body.take().map(|body| body()));
        R::conclude(policy, ended, value)
    }

    fn block_on(self, errors: Errors, body: &mut dyn FnMut()) -> BodyEnd {
        let guard = match self {
            Start::Lock(spec, waits) => acquire_blocking(&spec, waits, errors)?,
            Start::Guard(guard) => guard,
        };
        RunningBody::new(guard, errors).block_on(body)
    }
}

/// Each state is boxed or small, because the future of every waiter and of every level of nested
/// locked functions contains all of them.
pub(crate) enum Driver {
    Acquiring(Acquiring, Errors),
    RunningBody(RunningBody),
}

/// A body under its lock.
pub(crate) struct RunningBody {
    /// Dropped before the guard, which releases the lock.
    lost: Option<BoxFuture<'static, Lost>>,
    scope: Scope,
    guard: Acquired,
    errors: Errors,
    is_begun: bool,
}

impl Driver {
    /// Acquires the lock and polls the body while the lock is held. Ready when the body has
    /// finished, or with an error when it has to be dropped.
    fn poll_body(&mut self, cx: &mut Context<'_>, body: &mut PollBody<'_>) -> Poll<Finished> {
        loop {
            match self {
                Driver::RunningBody(running) => return running.poll(cx, body),
                Driver::Acquiring(acquire, errors) => {
                    let acquired = task::ready!(Pin::new(acquire).poll(cx))?;
                    *self = Driver::RunningBody(RunningBody::new(acquired, *errors));
                }
            }
        }
    }

    /// Releases the lock, if it was acquired.
    fn release(self, finished: Finished) -> BoxFuture<'static, BodyEnd> {
        match self {
            Driver::RunningBody(running) => running.release(finished).boxed(),
            Driver::Acquiring(..) => ready(finished.map(|()| None)).boxed(),
        }
    }
}

impl RunningBody {
    pub(crate) fn new(guard: Acquired, errors: Errors) -> Self {
        let scope = Scope::inside(Arc::clone(&guard.held));
        Self { lost: None, scope, guard, errors, is_begun: false }
    }

    /// Polls the body until it has finished, or returns the loss that ended it.
    fn poll(&mut self, cx: &mut Context<'_>, body: &mut PollBody<'_>) -> Poll<Finished> {
        let stops = !self.is_begun || self.guard.on_lost == OnLost::Cancel;
        // The lease is checked before every poll: after a pause of the process this comes first.
        if stops {
            self.guard.held.check_lease()?;
        }
        let _begins = !mem::replace(&mut self.is_begun, true);
        #[cfg(feature = "test-util")]
        let body = &mut |cx: &mut Context<'_>| polled(_begins, cx, body);
        if self.scope.enter(|| body(cx)).is_ready() {
            return Poll::Ready(Ok(()));
        }
        if self.guard.on_lost != OnLost::Cancel {
            return Poll::Pending;
        }
        // Created only for a body that awaits.
        let lost = self.lost.get_or_insert_with(|| {
            let held = Arc::clone(&self.guard.held);
            async move { held.lost().await }.boxed()
        });
        lost.as_mut().poll(cx).map(|lost| Err(lost.into()))
    }

    pub(crate) async fn release(self, finished: Finished) -> BodyEnd {
        let Acquired { held, releases_in_background, joined, .. } = &self.guard;
        let lost = held.check_lease().err();
        if *releases_in_background && !joined {
            held.release_in_background().await;
        } else if !joined {
            held.report_release(held.release().await, lost.as_ref());
        }
        self.ended(finished, lost)
    }

    fn block_on(self, body: &mut dyn FnMut()) -> BodyEnd {
        let Acquired { held, releases_in_background, joined, .. } = &self.guard;
        // The last check before the body, which cannot be stopped later.
        let finished = held.check_lease().map(|_| self.scope.enter(body)).map_err(LockError::from);
        let lost = held.check_lease().err();
        // In the background it is released when the guard is dropped.
        if !joined && !releases_in_background {
            held.report_release(held.release_blocking(), lost.as_ref());
        }
        self.ended(finished, lost)
    }

    fn ended(&self, finished: Finished, lost: Option<Lost>) -> BodyEnd {
        let ended = finished.map(|()| lost.filter(|_| self.guard.on_lost != OnLost::Finish));
        let error = match (&ended, self.errors) {
            (Err(error), Errors::Reported | Errors::ReportedUnlessLate) => Some(error.clone()),
            (Ok(Some(lost)), Errors::Reported) => Some(lost.clone().into()),
            _ => None,
        };
        if let Some(error) = error {
            let request = &self.guard.held.request;
            unreported(&request.ask.name, request.ask.keys(), &error);
        }
        ended
    }
}
