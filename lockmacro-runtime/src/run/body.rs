//! The methods that run a body under a lock.

use crate::engine::acquire::unreported::Errors;
use crate::guard::LockGuard;
use crate::lock::Lock;
use crate::outcome::{LockOutcome, SkipOutcome};
use crate::run::driver::{Run, Start};
use crate::run::report::{Conclusion, MakeValue, Recover, Report, reported, skipped};

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
    pub fn run<B: Future<Output: LockOutcome>>(self, body: B) -> Run<B, Report<B::Output>> {
        Call::new(Start::Lock(self.spec), (), (), reported).run(body)
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
    pub fn run_or_skip<B: Future<Output: SkipOutcome>>(self, body: B) -> Run<B, Report<B::Output>> {
        Call::new(Start::Lock(self.spec), (), (), skipped).or_skip::<B::Output>().run(body)
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
        Call::new(Start::Lock(self.spec), (), (), reported).run_blocking(body)
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
        Call::new(Start::Lock(self.spec), (), (), skipped).or_skip::<R>().run_blocking(body)
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
    pub fn run<B: Future<Output: LockOutcome>>(self, body: B) -> Run<B, Report<B::Output>> {
        Call::new(Start::Guard(self), (), (), reported).run(body)
    }

    /// Runs a `body` that is not async as [`run`](LockGuard::run) does. Such a body cannot be
    /// stopped: when the lock is lost, the body finishes first.
    pub fn run_blocking<R: LockOutcome>(self, body: impl FnOnce() -> R) -> R {
        Call::new(Start::Guard(self), (), (), reported).run_blocking(body)
    }

    /// Runs `body` as [`run`](LockGuard::run) does, for the return types of `on_busy = skip`. An
    /// error that the return type cannot carry is logged.
    pub fn run_or_skip<B: Future<Output: SkipOutcome>>(self, body: B) -> Run<B, Report<B::Output>> {
        Call::new(Start::Guard(self), (), (), skipped).or_skip::<B::Output>().run(body)
    }

    /// Runs a `body` that is not async as [`run_or_skip`](LockGuard::run_or_skip) does.
    pub fn run_blocking_or_skip<R: SkipOutcome>(self, body: impl FnOnce() -> R) -> R {
        Call::new(Start::Guard(self), (), (), skipped).or_skip::<R>().run_blocking(body)
    }
}

/// All that is known of the call of a body before the body: its start, and its conclusion.
pub(crate) struct Call<H, M, R> {
    start: Start,
    errors: Errors,
    conclusion: Conclusion<H, M, R>,
}

impl<H: Recover<R>, M, R> Call<H, M, R> {
    pub(crate) fn new(start: Start, recover: H, map: M, failed: MakeValue<M, R>) -> Self {
        Self { start, errors: Errors::Carried, conclusion: Conclusion { recover, map, failed } }
    }

    /// For a body that is skipped when the lock is busy: the manager's default wait does not apply.
    pub(crate) fn or_skip<S: SkipOutcome>(mut self) -> Self {
        if let Start::Lock(spec) = &mut self.start {
            spec.wait.get_or_insert_default();
        }
        self.errors = match S::CARRIES_ERRORS {
            true => Errors::Carried,
            false if H::IS_GIVEN => Errors::ReportedUnlessLate,
            false => Errors::Reported,
        };
        self
    }

    pub(crate) fn run<B: Future<Output = R>>(self, body: B) -> Run<B, Conclusion<H, M, R>> {
        let (driver, conclusion) = (self.start.driver(self.errors), self.conclusion);
        Run::Body { body, driver, conclusion }
    }

    pub(crate) fn run_blocking(self, body: impl FnOnce() -> R) -> R {
        let (mut body, mut value) = (Some(body), None);
        let run = &mut || value = body.take().map(|body| body());
        let ended = self.start.block_on(self.errors, run);
        self.conclusion.conclude(ended, value)
    }
}
