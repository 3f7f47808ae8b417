//! The methods that run a body under a lock.

use std::sync::Arc;

use futures_util::FutureExt as _;

use crate::engine::acquire::options::WaitMode;
use crate::guard::LockGuard;
use crate::lock::Lock;
use crate::outcome::{LockOutcome, SkipOutcome};
use crate::run::driver::{Run, Start};
use crate::run_policy::{RunPolicy, Skip};
use crate::value::error::LockError;

impl Lock {
    /// Acquires the lock, runs `body` as [`LockGuard::run`] does, and releases the lock. Returns
    /// the body's own `Result`. Without the lock the body is never polled.
    ///
    /// ```
    /// # use lockmacro_runtime::{Lock, LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// # let locks = LockManager::isolated_memory();
    /// let audited = Lock::new("order:42").manager(&locks).run(async { Ok::<_, LockError>(7) });
    /// assert_eq!(audited.await?, 7);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// The errors of [`acquire`](Lock::acquire), and [`LockError::Lost`], as the body's error type,
    /// which is `From<LockError>`. A body can also return a type of your own that is a
    /// [`LockOutcome`].
    ///
    /// # Cancellation
    /// Dropping the future at any point drops the body and leaves no lock behind.
    pub fn run<B>(&self, body: B) -> impl Future<Output = B::Output> + use<B>
    where
        B: Future<Output: LockOutcome>,
    {
        Run::new(self.start(WaitMode::AsSet), <RunPolicy>::default(), body)
    }

    /// Runs `body` as [`run`](Lock::run) does if the lock is free, and returns `Ok(None)` without
    /// running it if somebody else holds the lock.
    ///
    /// The server is asked once, whatever [`wait`](Lock::wait) says, so that a job that another
    /// machine runs right now is skipped, and not run once more after it.
    ///
    /// ```
    /// # use lockmacro_runtime::{Lock, LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// # let locks = LockManager::isolated_memory();
    /// let report = Lock::new("nightly-report").manager(&locks);
    /// assert_eq!(report.try_run(async { Ok::<_, LockError>("written") }).await?, Some("written"));
    /// let _guard = report.acquire().await?;
    /// assert_eq!(report.try_run(async { Ok::<_, LockError>("written") }).await?, None);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`run`](Lock::run), but for [`LockError::Busy`].
    ///
    /// # Cancellation
    /// As [`run`](Lock::run).
    pub fn try_run<B, T, E>(
        &self,
        body: B,
    ) -> impl Future<Output = Result<Option<T>, E>> + use<B, T, E>
    where
        B: Future<Output = Result<T, E>>,
        Result<T, E>: LockOutcome,
    {
        let body = body.map(Tried::finished);
        let run = Run::new(self.start(WaitMode::Never), <RunPolicy<Skip>>::default(), body);
        run.map(|tried| tried.0)
    }

    /// Runs a `body` that is not async as [`run`](Lock::run) does. Like
    /// [`LockGuard::run_blocking`], it cannot stop the body.
    ///
    /// ```
    /// # use lockmacro_runtime::{Lock, LockError, LockManager};
    /// # fn main() -> Result<(), LockError> {
    /// # let locks = LockManager::isolated_memory();
    /// let order = Lock::new("order:42").manager(&locks);
    /// assert_eq!(order.run_blocking(|| Ok::<_, LockError>(7))?, 7);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`run`](Lock::run), and [`LockError::NoRuntime`] on the thread of a current-thread
    /// runtime.
    pub fn run_blocking<R: LockOutcome>(&self, body: impl FnOnce() -> R) -> R {
        self.start(WaitMode::AsSet).run_blocking(<RunPolicy>::default(), body)
    }

    /// Runs a `body` that is not async as [`try_run`](Lock::try_run) does.
    ///
    /// ```
    /// # use lockmacro_runtime::{Lock, LockError, LockManager};
    /// # fn main() -> Result<(), LockError> {
    /// # let locks = LockManager::isolated_memory();
    /// let report = Lock::new("nightly-report").manager(&locks);
    /// let _guard = report.acquire_blocking()?;
    /// assert_eq!(report.try_run_blocking(|| Ok::<_, LockError>("written"))?, None);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`run_blocking`](Lock::run_blocking), but for [`LockError::Busy`].
    pub fn try_run_blocking<T, E>(
        &self,
        body: impl FnOnce() -> Result<T, E>,
    ) -> Result<Option<T>, E>
    where
        Result<T, E>: LockOutcome,
    {
        let policy = <RunPolicy<Skip>>::default();
        self.start(WaitMode::Never).run_blocking(policy, || Tried::finished(body())).0
    }

    fn start(&self, waits: WaitMode) -> Start {
        Start::Lock(Arc::clone(&self.spec), waits)
    }
}

/// What `try_run` returns. It is bounded by [`LockOutcome`] and not by `E: From<LockError>`, so that
/// the compiler says of a wrong error type what it says at `run`.
struct Tried<T, E>(Result<Option<T>, E>);

impl<T, E> Tried<T, E> {
    fn finished(value: Result<T, E>) -> Self {
        Self(value.map(Some))
    }
}

impl<T, E> SkipOutcome for Tried<T, E>
where
    Result<T, E>: LockOutcome,
{
    fn skipped(_: LockError) -> Self {
        Self(Ok(None))
    }

    fn from_lock_error(error: LockError) -> Self {
        Self::finished(LockOutcome::from_lock_error(error))
    }

    fn after_loss(self, lost: LockError) -> Self {
        match self.0 {
            Ok(Some(value)) => Self::finished(Ok(value).after_loss(lost)),
            unfinished => Self(unfinished),
        }
    }
}

impl LockGuard {
    /// Runs `body` while the lock is held, then releases the lock.
    ///
    /// The caller gets the body's value, whatever the release returns.
    /// [`Lock::on_lost`](crate::Lock::on_lost) sets what happens when the lock is lost meanwhile.
    /// By default the body is dropped at its next await, before the server can grant the lock to
    /// somebody else, and the caller gets [`LockError::Lost`] as the body's error.
    ///
    /// ```
    /// # use lockmacro_runtime::{Lock, LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// # let locks = LockManager::isolated_memory();
    /// let guard = Lock::new("order:42").manager(&locks).acquire().await?;
    /// assert_eq!(guard.run(async { Ok::<_, LockError>(7) }).await?, 7);
    /// # Ok(()) }
    /// ```
    ///
    /// # Cancellation
    /// Dropping the future drops the body and then releases the lock in the background.
    pub fn run<B>(self, body: B) -> impl Future<Output = B::Output>
    where
        B: Future<Output: LockOutcome>,
    {
        Run::new(Start::Guard(self.lock), <RunPolicy>::default(), body)
    }

    /// Runs a `body` that is not async as [`run`](LockGuard::run) does. Such a body cannot be
    /// stopped: when the lock is lost, the body finishes first.
    ///
    /// ```
    /// # use lockmacro_runtime::{Lock, LockError, LockManager};
    /// # fn main() -> Result<(), LockError> {
    /// # let locks = LockManager::isolated_memory();
    /// let guard = Lock::new("order:42").manager(&locks).acquire_blocking()?;
    /// assert_eq!(guard.run_blocking(|| Ok::<_, LockError>(7))?, 7);
    /// # Ok(()) }
    /// ```
    pub fn run_blocking<R: LockOutcome>(self, body: impl FnOnce() -> R) -> R {
        Start::Guard(self.lock).run_blocking(<RunPolicy>::default(), body)
    }
}
