//! A body under a lock: one future that has the body once, and a driver for everything else.

use crate::run::driver::Ending;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;

use crate::engine::unreported::Errors;
use crate::guard::LockGuard;
use crate::lock::Lock;
use crate::outcome::{LockOutcome, SkipOutcome};
use crate::run::driver::{Driver, Ended, Start};
use crate::run::report::{Conclude, Outcome, Report, errors_of};

impl<F> Lock<F> {
    /// Runs `body` under the lock: acquires it, runs the body as [`LockGuard::run`] does, and
    /// releases the lock. Without the lock the body is not polled once.
    ///
    /// # Errors
    /// In the body's return type: those of [`acquire`](Lock::acquire), and
    /// [`LockError::Lost`](crate::LockError::Lost).
    ///
    /// # Cancellation
    /// Dropping the future at any point drops the body and leaves no lock behind.
    pub fn run<B>(self, body: B) -> Run<B, Report<B::Output>>
    where
        B: Future,
        B::Output: LockOutcome,
    {
        Run::new(Start::Lock(self.spec), Errors::Carried, body, Outcome::reported as Report<_>)
    }

    /// [`run`](Lock::run), but when somebody else holds the lock the body is left out and the
    /// return type's "nothing" is given: `()`, `None`, `Ok(())` or `Ok(None)`.
    ///
    /// It waits only where [`wait`](Lock::wait) says so, and not by the manager's default: a job
    /// that another machine does right now is to be left out, and not to be done once more after
    /// it.
    ///
    /// # Panics
    /// When the return type cannot carry an error, and there is no manager or no tokio runtime.
    pub fn run_or_skip<B>(self, body: B) -> Run<B, Report<B::Output>>
    where
        B: Future,
        B::Output: SkipOutcome,
    {
        let start = Start::Lock(self.spec).or_skip();
        Run::new(start, errors_of::<B::Output>(), body, Outcome::skipped as Report<_>)
    }

    /// [`run`](Lock::run) for a body that is not async, as
    /// [`LockGuard::run_blocking`] does it.
    pub fn run_blocking<R: LockOutcome>(self, body: impl FnOnce() -> R) -> R {
        run_blocking(Start::Lock(self.spec), Errors::Carried, body, Outcome::reported as Report<_>)
    }

    /// [`run_or_skip`](Lock::run_or_skip) for a body that is not async.
    ///
    /// # Panics
    /// When the return type cannot carry an error, and there is no manager, or the thread is that of
    /// a current-thread runtime, see [`LockError::BlockingInAsync`](crate::LockError::BlockingInAsync).
    pub fn run_blocking_or_skip<R: SkipOutcome>(self, body: impl FnOnce() -> R) -> R {
        let start = Start::Lock(self.spec).or_skip();
        run_blocking(start, errors_of::<R>(), body, Outcome::skipped as Report<_>)
    }
}

impl LockGuard {
    /// Runs `body` while the lock is held, then releases the lock.
    ///
    /// The body's value reaches the caller whatever the release says. What happens when the lock is
    /// lost meanwhile is for [`Lock::on_lost`](crate::Lock::on_lost) to say: by default the body is
    /// dropped at its next await, before the server can grant the lock to somebody else, and the
    /// caller gets [`LockError::Lost`](crate::LockError::Lost) in its return type.
    ///
    /// # Cancellation
    /// Dropping the future drops the body and then releases the lock in the background.
    pub fn run<B>(self, body: B) -> Run<B, Report<B::Output>>
    where
        B: Future,
        B::Output: LockOutcome,
    {
        Run::new(Start::Guard(self), Errors::Carried, body, Outcome::reported as Report<_>)
    }

    /// [`run`](LockGuard::run) for a body that is not async. It cannot be stopped: when the lock is
    /// lost, it finishes first.
    pub fn run_blocking<R: LockOutcome>(self, body: impl FnOnce() -> R) -> R {
        run_blocking(Start::Guard(self), Errors::Carried, body, Outcome::reported as Report<_>)
    }

    /// [`run`](LockGuard::run) for the return types of `on_busy = skip`. Where they cannot carry an
    /// error, it is logged.
    pub fn run_or_skip<B>(self, body: B) -> Run<B, Report<B::Output>>
    where
        B: Future,
        B::Output: SkipOutcome,
    {
        Run::new(Start::Guard(self), errors_of::<B::Output>(), body, Outcome::skipped as Report<_>)
    }

    /// [`run_or_skip`](LockGuard::run_or_skip) for a body that is not async.
    pub fn run_blocking_or_skip<R: SkipOutcome>(self, body: impl FnOnce() -> R) -> R {
        run_blocking(Start::Guard(self), errors_of::<R>(), body, Outcome::skipped as Report<_>)
    }
}

/// Runs a body that is not async, and reports its end.
pub(crate) fn run_blocking<R>(
    start: Start,
    errors: Errors,
    body: impl FnOnce() -> R,
    report: impl Conclude<R>,
) -> R {
    let (mut body, mut value) = (Some(body), None);
    let ended = start.block_on(errors, &mut || value = body.take().map(|body| body()));
    conclude(ended, value, report)
}

/// Not inlined, as functions of one return type share it.
#[inline(never)]
fn conclude<R>(ended: Ended, value: Option<R>, report: impl Conclude<R>) -> R {
    report.conclude(Outcome::new(ended, value))
}

pin_project! {
    /// A body, then its value, and the driver that decides when the body is polled.
    ///
    /// The body is here once, so locked functions that call each other grow by what each of them
    /// adds and do not double. The fields are dropped in their order: the body before the lock.
    ///
    /// Polled after it has given its value, it stays pending and does not panic.
    ///
    /// Not a struct around an enum: the compiler bounds how deep types may be nested.
    #[project = RunProjection]
    #[must_use = "futures do nothing unless polled"]
    pub enum Run<B: Future, X> {
        Body { #[pin] body: B, driver: Driver, report: Option<X> },
        Value { value: Option<B::Output>, ending: Ending, report: Option<X> },
    }
}

impl<B: Future, X> Run<B, X> {
    pub(crate) fn new(start: Start, errors: Errors, body: B, report: X) -> Self {
        Run::Body { body, driver: start.driver(errors), report: Some(report) }
    }
}

impl<B: Future, X: Conclude<B::Output>> Future for Run<B, X> {
    type Output = B::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<B::Output> {
        if let RunProjection::Body { mut body, driver, report } = self.as_mut().project() {
            let mut value = None;
            ready!(driver.poll_body(cx, &mut |cx| {
                value = Some(ready!(body.as_mut().poll(cx)));
                Poll::Ready(())
            }));
            let (ending, report) = (driver.take(), report.take());
            // Here the body is dropped.
            self.set(Run::Value { value, ending, report });
        }
        match self.project() {
            RunProjection::Value { value, ending, report } => {
                poll_release(ending, cx, value, report)
            }
            RunProjection::Body { .. } => Poll::Pending,
        }
    }
}

/// Releases the lock and reports. It does not depend on the body, so functions of one return type
/// share it.
fn poll_release<R, X: Conclude<R>>(
    ending: &mut Ending,
    cx: &mut Context<'_>,
    value: &mut Option<R>,
    report: &mut Option<X>,
) -> Poll<R> {
    let ended = ready!(ending.poll_release(cx));
    match report.take() {
        Some(report) => Poll::Ready(conclude(ended, value.take(), report)),
        None => Poll::Pending,
    }
}
