//! A body under a lock: one future that contains the body once, and a driver for everything else.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;

use crate::engine::unreported::Errors;
use crate::guard::LockGuard;
use crate::lock::Lock;
use crate::outcome::{LockOutcome, SkipOutcome};
use crate::run::driver::{Driver, Ended, Ending, Start};
use crate::run::report::{Conclude, Outcome, Report, errors_of};

impl<F> Lock<F> {
    /// Acquires the lock, runs `body` as [`LockGuard::run`] does, and releases the lock. Without
    /// the lock the body is never polled.
    ///
    /// ```
    /// # use lockmacro_runtime::{Lock, LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// # let locks = LockManager::memory();
    /// let audited = Lock::new("order:42").manager(&locks).run(async { Ok::<_, LockError>(7) });
    /// assert_eq!(audited.await?, 7);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// The errors of [`acquire`](Lock::acquire), and [`LockError::Lost`](crate::LockError::Lost),
    /// in the body's return type.
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

    /// Runs `body` as [`run`](Lock::run) does, but skips the body when somebody else holds the
    /// lock. The caller then gets the "nothing" of the return type: `()`, `None`, `Ok(())` or
    /// `Ok(None)`.
    ///
    /// It waits only if [`wait`](Lock::wait) is set; the manager's default wait does not apply. A
    /// job that another machine runs right now should be skipped, and not run once more after it.
    ///
    /// ```
    /// # use lockmacro_runtime::{Lock, LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// # let locks = LockManager::memory();
    /// let order = Lock::new("order:42").manager(&locks);
    /// let _guard = order.clone().acquire().await?;
    /// assert_eq!(order.run_or_skip(async { Some(7) }).await, None);
    /// # Ok(()) }
    /// ```
    ///
    /// # Panics
    /// Panics when the return type cannot carry an error, and there is no manager or no tokio
    /// runtime.
    pub fn run_or_skip<B>(self, body: B) -> Run<B, Report<B::Output>>
    where
        B: Future,
        B::Output: SkipOutcome,
    {
        let start = Start::Lock(self.spec).or_skip();
        Run::new(start, errors_of::<B::Output>(), body, Outcome::skipped as Report<_>)
    }

    /// Runs a `body` that is not async as [`run`](Lock::run) does. Like
    /// [`LockGuard::run_blocking`], it cannot stop the body.
    ///
    /// ```
    /// # use lockmacro_runtime::{Lock, LockError, LockManager};
    /// # fn main() -> Result<(), LockError> {
    /// # let locks = LockManager::memory();
    /// let order = Lock::new("order:42").manager(&locks);
    /// assert_eq!(order.run_blocking(|| Ok::<_, LockError>(7))?, 7);
    /// # Ok(()) }
    /// ```
    pub fn run_blocking<R: LockOutcome>(self, body: impl FnOnce() -> R) -> R {
        run_blocking(Start::Lock(self.spec), Errors::Carried, body, Outcome::reported as Report<_>)
    }

    /// Runs a `body` that is not async as [`run_or_skip`](Lock::run_or_skip) does.
    ///
    /// ```
    /// # use lockmacro_runtime::{Lock, LockError, LockManager};
    /// # fn main() -> Result<(), LockError> {
    /// # let locks = LockManager::memory();
    /// let order = Lock::new("order:42").manager(&locks);
    /// let _guard = order.clone().acquire_blocking()?;
    /// assert_eq!(order.run_blocking_or_skip(|| Some(7)), None);
    /// # Ok(()) }
    /// ```
    ///
    /// # Panics
    /// Panics when the return type cannot carry an error, and there is no manager, or the thread is
    /// that of a current-thread runtime: see
    /// [`LockError::BlockingInAsync`](crate::LockError::BlockingInAsync).
    pub fn run_blocking_or_skip<R: SkipOutcome>(self, body: impl FnOnce() -> R) -> R {
        let start = Start::Lock(self.spec).or_skip();
        run_blocking(start, errors_of::<R>(), body, Outcome::skipped as Report<_>)
    }
}

impl LockGuard {
    /// Runs `body` while the lock is held, then releases the lock.
    ///
    /// The caller gets the body's value, whatever the release returns.
    /// [`Lock::on_lost`](crate::Lock::on_lost) sets what happens when the lock is lost meanwhile.
    /// By default the body is dropped at its next await, before the server can grant the lock to
    /// somebody else, and the caller gets [`LockError::Lost`](crate::LockError::Lost) in its return
    /// type.
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

    /// Runs a `body` that is not async as [`run`](LockGuard::run) does. Such a body cannot be
    /// stopped: when the lock is lost, the body finishes first.
    pub fn run_blocking<R: LockOutcome>(self, body: impl FnOnce() -> R) -> R {
        run_blocking(Start::Guard(self), Errors::Carried, body, Outcome::reported as Report<_>)
    }

    /// Runs `body` as [`run`](LockGuard::run) does, for the return types of `on_busy = skip`. An
    /// error that the return type cannot carry is logged.
    pub fn run_or_skip<B>(self, body: B) -> Run<B, Report<B::Output>>
    where
        B: Future,
        B::Output: SkipOutcome,
    {
        Run::new(Start::Guard(self), errors_of::<B::Output>(), body, Outcome::skipped as Report<_>)
    }

    /// Runs a `body` that is not async as [`run_or_skip`](LockGuard::run_or_skip) does.
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

/// Not inlined, because functions of one return type share it.
#[inline(never)]
fn conclude<R>(ended: Ended, value: Option<R>, report: impl Conclude<R>) -> R {
    report.conclude(Outcome::new(ended, value))
}

pin_project! {
    /// A body, then its value, and the driver that decides when the body is polled.
    ///
    /// The future contains the body once. So nested locked functions grow by the size of each, and
    /// do not double. The fields are dropped in their order: the body before the lock.
    ///
    /// A poll after the value was returned stays pending and does not panic.
    ///
    /// It is not a struct around an enum, because the compiler limits how deep types may be nested.
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
            // This drops the body.
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

/// Releases the lock and reports the outcome. It does not depend on the body's type, so functions
/// of one return type share it.
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
