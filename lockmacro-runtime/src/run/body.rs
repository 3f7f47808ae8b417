//! The methods that run a body under a lock, and those that set what they return.

use crate::guard::LockGuard;
use crate::lock::Lock;
use crate::run::driver::{Run, Start};
use crate::run_policy::{MapErr, Recovering, Report, Returnable, RunPolicy, Skip};
use crate::value::error::LockError;
use crate::value::loss::Lost;

impl<P> Lock<P> {
    /// Acquires the lock, runs `body` as [`LockGuard::run`] does, and releases the lock. Without
    /// the lock the body is never polled.
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
    /// The errors of [`acquire`](Lock::acquire), and [`LockError::Lost`],
    /// in the body's return type. That is a [`LockOutcome`](crate::LockOutcome), unless the lock
    /// has another policy: [`skip_when_busy`](Lock::skip_when_busy) or
    /// [`map_err`](Lock::map_err).
    ///
    /// # Cancellation
    /// Dropping the future at any point drops the body and leaves no lock behind.
    ///
    /// # Panics
    /// The future of a lock that is skipped panics when the return type cannot carry an error, and
    /// there is no manager or no tokio runtime.
    pub fn run<B>(self, body: B) -> impl Future<Output = B::Output>
    where
        B: Future<Output: Returnable<P>>,
    {
        Run::new(Start::Lock(self.spec), self.policy, body)
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
    ///
    /// # Panics
    /// As the future of [`run`](Lock::run), and on the thread of a current-thread runtime if the
    /// return type cannot carry that error.
    pub fn run_blocking<R: Returnable<P>>(self, body: impl FnOnce() -> R) -> R {
        Start::Lock(self.spec).run_blocking(self.policy, body)
    }
}

impl<H> Lock<RunPolicy<Report, H>> {
    /// Makes [`run`](Lock::run) skip the body when somebody else holds the lock. The caller then
    /// gets the "nothing" of the return type, a [`SkipOutcome`](crate::SkipOutcome): `()`, `None`,
    /// `Ok(())` or `Ok(None)`.
    ///
    /// `run` then waits only if [`wait`](Lock::wait) is set; the manager's default wait does not
    /// apply. A job that another machine runs right now should be skipped, and not run once more
    /// after it. [`acquire`](Lock::acquire) waits as always. Call this before
    /// [`map_err`](Lock::map_err).
    ///
    /// ```
    /// # use lockmacro_runtime::{Lock, LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// # let locks = LockManager::isolated_memory();
    /// let order = Lock::new("order:42").manager(&locks);
    /// let _guard = order.clone().acquire().await?;
    /// assert_eq!(order.skip_when_busy().run(async { Some(7) }).await, None);
    /// # Ok(()) }
    /// ```
    pub fn skip_when_busy(self) -> Lock<RunPolicy<Skip, H>> {
        Lock { spec: self.spec, policy: RunPolicy { errors: Skip, recover: self.policy.recover } }
    }
}

impl<W, H> Lock<RunPolicy<W, H>> {
    /// Calls `recover` when the lock is lost while a body runs, to undo or to keep the body's work.
    ///
    /// The body runs to its end even when the lock is lost meanwhile. After the release, the
    /// function is called with the loss and the body's value, and the caller gets the function's
    /// value. When the lock is lost before the body has started, neither the body nor the function
    /// runs. When the future is dropped, the function is not called. [`on_lost`](Lock::on_lost) has
    /// no effect beside it.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use lockmacro_runtime::{Lock, LockManager, LockError, Lost};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// # let locks = LockManager::isolated_memory();
    /// fn cancel_booking(lost: Lost, booked: Result<u32, LockError>) -> Result<u32, LockError> {
    ///     // … undo the booking …
    ///     booked.and(Err(lost.into()))
    /// }
    ///
    /// let lock = Lock::new("stock:7").ttl(Duration::from_secs(5)).manager(&locks);
    /// let booked = lock.recovering(cancel_booking).run(async { Ok(3) }).await?;
    /// assert_eq!(booked, 3);
    /// # Ok(()) }
    /// ```
    pub fn recovering<R, F>(self, recover: F) -> Lock<RunPolicy<W, Recovering<F>>>
    where
        F: FnOnce(Lost, R) -> R,
    {
        let errors = self.policy.errors;
        let recover = Recovering(recover);
        Lock { spec: self.spec, policy: RunPolicy { errors, recover } }
    }

    /// Converts each [`LockError`] to the body's error type with `map`, for an error type that is
    /// not `From<LockError>`, such as one of another crate.
    ///
    /// ```
    /// # use std::io;
    /// # use lockmacro_runtime::{Lock, LockManager, LockError};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> io::Result<()> {
    /// # let locks = LockManager::isolated_memory();
    /// let size = Lock::new("disk:7")
    ///     .manager(&locks)
    ///     .map_err(io::Error::other)
    ///     .run(async { io::Result::Ok(512) })
    ///     .await?;
    /// assert_eq!(size, 512);
    /// # Ok(()) }
    /// ```
    pub fn map_err<E, M>(self, map: M) -> Lock<RunPolicy<MapErr<W, M>, H>>
    where
        M: FnOnce(LockError) -> E,
    {
        let RunPolicy { errors, recover } = self.policy;
        let errors = MapErr::new(map, errors);
        Lock { spec: self.spec, policy: RunPolicy { errors, recover } }
    }
}

impl<P> LockGuard<P> {
    /// Runs `body` while the lock is held, then releases the lock.
    ///
    /// The caller gets the body's value, whatever the release returns.
    /// [`Lock::on_lost`](crate::Lock::on_lost) sets what happens when the lock is lost meanwhile.
    /// By default the body is dropped at its next await, before the server can grant the lock to
    /// somebody else, and the caller gets [`LockError::Lost`] in its return
    /// type.
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
        B: Future<Output: Returnable<P>>,
    {
        Run::new(Start::Guard(self.lock), self.policy, body)
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
    pub fn run_blocking<R: Returnable<P>>(self, body: impl FnOnce() -> R) -> R {
        Start::Guard(self.lock).run_blocking(self.policy, body)
    }
}
