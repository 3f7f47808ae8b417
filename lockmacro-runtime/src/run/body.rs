//! The methods that run a body under a lock: plainly; with a function that recovers from a loss,
//! for `on_lost = path`; and with one that converts errors, for `map_err = path`. Long, because
//! they have examples.

use crate::engine::acquire::outcome::Errors;
use crate::guard::LockGuard;
use crate::lock::Lock;
use crate::outcome::{LockOutcome, SkipOutcome};
use crate::run::driver::{Run, Start};
use crate::run::report::{
    AnyResult, Conclusion, MakeValue, Recover, Report, mapped, mapped_or_skipped, reported, skipped,
};
use crate::value::error::LockError;
use crate::value::loss::{Lost, OnLost};

impl<F> Lock<F> {
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
    /// The errors of [`acquire`](Lock::acquire), and [`LockError::Lost`](crate::LockError::Lost),
    /// in the body's return type.
    ///
    /// # Cancellation
    /// Dropping the future at any point drops the body and leaves no lock behind.
    pub fn run<B: Future<Output: LockOutcome>>(self, body: B) -> Run<B, Report<B::Output>> {
        Call::new(Start::Lock(self.spec)).run(body, reported)
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
    /// # let locks = LockManager::isolated_memory();
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
        Call::new(Start::Lock(self.spec)).or_skip::<B::Output>(Errors::Reported).run(body, skipped)
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
    pub fn run_blocking<R: LockOutcome>(self, body: impl FnOnce() -> R) -> R {
        Call::new(Start::Lock(self.spec)).run_blocking(body, reported)
    }

    /// Runs a `body` that is not async as [`run_or_skip`](Lock::run_or_skip) does.
    ///
    /// ```
    /// # use lockmacro_runtime::{Lock, LockError, LockManager};
    /// # fn main() -> Result<(), LockError> {
    /// # let locks = LockManager::isolated_memory();
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
        Call::new(Start::Lock(self.spec)).or_skip::<R>(Errors::Reported).run_blocking(body, skipped)
    }

    /// Calls `recover` when the lock is lost while a body runs: see [`Recovering`].
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
    pub fn recovering<R, H: FnOnce(Lost, R) -> R>(self, recover: H) -> Recovering<H> {
        Recovering { call: Call::new(Start::Lock(self.spec)).recovering(recover) }
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
    pub fn map_err<E, M: FnOnce(LockError) -> E>(self, map: M) -> MapErr<(), M> {
        MapErr { call: Call::new(Start::Lock(self.spec)).mapping(map) }
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
        Call::new(Start::Guard(self.lock)).run(body, reported)
    }

    /// Runs a `body` that is not async as [`run`](LockGuard::run) does. Such a body cannot be
    /// stopped: when the lock is lost, the body finishes first.
    pub fn run_blocking<R: LockOutcome>(self, body: impl FnOnce() -> R) -> R {
        Call::new(Start::Guard(self.lock)).run_blocking(body, reported)
    }

    /// Runs `body` as [`run`](LockGuard::run) does, for the return types of `on_busy = skip`. An
    /// error that the return type cannot carry is logged.
    pub fn run_or_skip<B: Future<Output: SkipOutcome>>(self, body: B) -> Run<B, Report<B::Output>> {
        Call::new(Start::Guard(self.lock)).or_skip::<B::Output>(Errors::Reported).run(body, skipped)
    }

    /// Runs a `body` that is not async as [`run_or_skip`](LockGuard::run_or_skip) does.
    pub fn run_blocking_or_skip<R: SkipOutcome>(self, body: impl FnOnce() -> R) -> R {
        Call::new(Start::Guard(self.lock))
            .or_skip::<R>(Errors::Reported)
            .run_blocking(body, skipped)
    }

    /// Calls `recover` when the lock is lost while a body runs: see [`Recovering`].
    pub fn recovering<R, H: FnOnce(Lost, R) -> R>(self, recover: H) -> Recovering<H> {
        Recovering { call: Call::new(Start::Guard(self.lock)).recovering(recover) }
    }

    /// Converts each [`LockError`] to the body's error type with `map`, as [`Lock::map_err`] does.
    pub fn map_err<E, M: FnOnce(LockError) -> E>(self, map: M) -> MapErr<(), M> {
        MapErr { call: Call::new(Start::Guard(self.lock)).mapping(map) }
    }
}

/// A lock with a function that recovers from its loss, from [`Lock::recovering`] or
/// [`LockGuard::recovering`].
///
/// The body runs to its end even when the lock is lost meanwhile. After the release, the function
/// is called with the loss and the body's value, to undo or to keep the body's work. The caller
/// gets the function's value. When the lock is lost before the body has started, neither the body
/// nor the function runs, and the caller gets [`LockError::Lost`](crate::LockError::Lost).
#[derive(Debug)]
#[must_use = "a lock does nothing until it is run"]
pub struct Recovering<H> {
    call: Call<H, ()>,
}

impl<H> Recovering<H> {
    /// Runs `body` as [`Lock::run`] and [`LockGuard::run`] do, and calls the function after a loss.
    ///
    /// # Cancellation
    /// Dropping the future drops the body and then releases the lock in the background. The
    /// function is not called.
    pub fn run<B>(self, body: B) -> Run<B, Conclusion<H, (), B::Output>>
    where
        B: Future<Output: LockOutcome>,
        H: FnOnce(Lost, B::Output) -> B::Output,
    {
        self.call.run(body, reported)
    }

    /// Runs `body` as [`run`](Recovering::run) does, for the return types of `on_busy = skip`.
    ///
    /// # Cancellation
    /// As [`run`](Recovering::run).
    ///
    /// # Panics
    /// As [`Lock::run_or_skip`].
    pub fn run_or_skip<B>(self, body: B) -> Run<B, Conclusion<H, (), B::Output>>
    where
        B: Future<Output: SkipOutcome>,
        H: FnOnce(Lost, B::Output) -> B::Output,
    {
        self.call.or_skip::<B::Output>(Errors::ReportedUnlessLate).run(body, skipped)
    }

    /// Runs a `body` that is not async as [`run`](Recovering::run) does.
    pub fn run_blocking<R>(self, body: impl FnOnce() -> R) -> R
    where
        R: LockOutcome,
        H: FnOnce(Lost, R) -> R,
    {
        self.call.run_blocking(body, reported)
    }

    /// Runs a `body` that is not async as [`run_or_skip`](Recovering::run_or_skip) does.
    pub fn run_blocking_or_skip<R>(self, body: impl FnOnce() -> R) -> R
    where
        R: SkipOutcome,
        H: FnOnce(Lost, R) -> R,
    {
        self.call.or_skip::<R>(Errors::ReportedUnlessLate).run_blocking(body, skipped)
    }

    /// Converts each [`LockError`] that is not recovered from to the body's error type with `map`,
    /// as [`Lock::map_err`] does.
    pub fn map_err<E, M: FnOnce(LockError) -> E>(self, map: M) -> MapErr<H, M> {
        MapErr { call: self.call.mapping(map) }
    }
}

/// A lock whose errors a function converts to the body's error type, from [`Lock::map_err`] or
/// [`LockGuard::map_err`].
#[derive(Debug)]
#[must_use = "a lock does nothing until it is run"]
pub struct MapErr<H, M> {
    call: Call<H, M>,
}

impl<H, M> MapErr<H, M> {
    /// Runs `body`, which returns a `Result`, as [`Lock::run`], [`LockGuard::run`] and
    /// [`Recovering::run`] do.
    ///
    /// # Cancellation
    /// As [`Lock::run`].
    pub fn run<B>(self, body: B) -> Run<B, Conclusion<H, M, B::Output>>
    where
        B: Future<Output: AnyResult>,
        H: Recover<B::Output>,
        M: FnOnce(LockError) -> <B::Output as AnyResult>::Error,
    {
        self.call.run(body, mapped)
    }

    /// Runs `body` as [`Lock::run_or_skip`] does, for `Result<(), E>` and `Result<Option<T>, E>`.
    ///
    /// # Cancellation
    /// As [`run`](MapErr::run).
    pub fn run_or_skip<B>(self, body: B) -> Run<B, Conclusion<H, M, B::Output>>
    where
        B: Future<Output: AnyResult>,
        H: Recover<B::Output>,
        M: FnOnce(LockError) -> <B::Output as AnyResult>::Error,
        Result<<B::Output as AnyResult>::Value, LockError>: SkipOutcome,
    {
        self.call.or_skip::<Result<_, LockError>>(Errors::Carried).run(body, mapped_or_skipped)
    }

    /// Runs a `body` that is not async as [`run`](MapErr::run) does.
    pub fn run_blocking<R: AnyResult>(self, body: impl FnOnce() -> R) -> R
    where
        H: Recover<R>,
        M: FnOnce(LockError) -> R::Error,
    {
        self.call.run_blocking(body, mapped)
    }

    /// Runs a `body` that is not async as [`run_or_skip`](MapErr::run_or_skip) does.
    pub fn run_blocking_or_skip<R: AnyResult>(self, body: impl FnOnce() -> R) -> R
    where
        H: Recover<R>,
        M: FnOnce(LockError) -> R::Error,
        Result<R::Value, LockError>: SkipOutcome,
    {
        self.call
            .or_skip::<Result<_, LockError>>(Errors::Carried)
            .run_blocking(body, mapped_or_skipped)
    }
}

/// All that is known of the call of a body before the body: its start, and the functions of the
/// caller, each `()` for none.
#[derive(Debug)]
struct Call<H, M> {
    start: Start,
    /// Recovers from a loss.
    recover: H,
    /// Converts errors.
    map: M,
    errors: Errors,
}

impl Call<(), ()> {
    fn new(start: Start) -> Self {
        Self { start, recover: (), map: (), errors: Errors::Carried }
    }

    fn recovering<H>(mut self, recover: H) -> Call<H, ()> {
        match &mut self.start {
            Start::Lock(spec) => spec.policy.on_lost = Some(OnLost::Error),
            Start::Guard(guard) => guard.on_lost = OnLost::Error,
        }
        Call { start: self.start, recover, map: (), errors: self.errors }
    }
}

impl<H, M> Call<H, M> {
    fn mapping<N>(self, map: N) -> Call<H, N> {
        Call { start: self.start, recover: self.recover, map, errors: self.errors }
    }

    /// For a body that is skipped when the lock is busy: the manager's default wait does not apply.
    /// `errors` are reported if the return type `S` cannot carry them.
    fn or_skip<S: SkipOutcome>(mut self, errors: Errors) -> Self {
        if let Start::Lock(spec) = &mut self.start {
            spec.policy.wait.get_or_insert_default();
        }
        if !S::CARRIES_ERRORS {
            self.errors = errors;
        }
        self
    }

    fn run<B: Future>(
        self,
        body: B,
        failed: MakeValue<M, B::Output>,
    ) -> Run<B, Conclusion<H, M, B::Output>> {
        let driver = self.start.driver(self.errors);
        Run::Body { body, driver, conclusion: Conclusion::new(self.recover, self.map, failed) }
    }

    fn run_blocking<R>(self, body: impl FnOnce() -> R, failed: MakeValue<M, R>) -> R
    where
        H: Recover<R>,
    {
        let (mut body, mut value) = (Some(body), None);
        let run = &mut || value = body.take().map(|body| body());
        let ended = self.start.block_on(self.errors, run);
        Conclusion::new(self.recover, self.map, failed).conclude(ended, value)
    }
}
