//! A lock with functions of the caller: one that recovers from a loss, for `on_lost = path`, and one
//! that converts errors, for `map_err = path`.

use crate::guard::LockGuard;
use crate::lock::Lock;
use crate::outcome::{LockOutcome, SkipOutcome};
use crate::run::body::Call;
use crate::run::driver::{Run, Start};
use crate::run::report::{
    AnyResult, Conclusion, Recover, mapped, mapped_or_skipped, reported, skipped,
};
use crate::value::error::LockError;
use crate::value::loss::{Lost, OnLost};

impl<F> Lock<F> {
    /// Calls `recover` when the lock is lost while a body runs: see [`Recovering`].
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use lockmacro_runtime::{Lock, LockManager, LockError, Lost};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// # let locks = LockManager::memory();
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
        Recovering { start: Start::Lock(self.on_lost(OnLost::Error).spec), recover }
    }

    /// Converts each [`LockError`] to the body's error type with `map`, for an error type that is
    /// not `From<LockError>`, such as one of another crate.
    ///
    /// ```
    /// # use std::io;
    /// # use lockmacro_runtime::{Lock, LockManager, LockError};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> io::Result<()> {
    /// # let locks = LockManager::memory();
    /// let size = Lock::new("disk:7")
    ///     .manager(&locks)
    ///     .map_err(io::Error::other)
    ///     .run(async { io::Result::Ok(512) })
    ///     .await?;
    /// assert_eq!(size, 512);
    /// # Ok(()) }
    /// ```
    pub fn map_err<E, M: FnOnce(LockError) -> E>(self, map: M) -> MapErr<(), M> {
        MapErr { start: Start::Lock(self.spec), recover: (), map }
    }
}

impl LockGuard {
    /// Calls `recover` when the lock is lost while a body runs: see [`Recovering`].
    pub fn recovering<R, H: FnOnce(Lost, R) -> R>(self, recover: H) -> Recovering<H> {
        Recovering { start: Start::Guard(self.with(OnLost::Error)), recover }
    }

    /// Converts each [`LockError`] to the body's error type with `map`, as [`Lock::map_err`] does.
    pub fn map_err<E, M: FnOnce(LockError) -> E>(self, map: M) -> MapErr<(), M> {
        MapErr { start: Start::Guard(self), recover: (), map }
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
    start: Start,
    recover: H,
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
        Call::new(self.start, self.recover, (), reported).run(body)
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
        Call::new(self.start, self.recover, (), skipped).or_skip::<B::Output>().run(body)
    }

    /// Runs a `body` that is not async as [`run`](Recovering::run) does.
    pub fn run_blocking<R>(self, body: impl FnOnce() -> R) -> R
    where
        R: LockOutcome,
        H: FnOnce(Lost, R) -> R,
    {
        Call::new(self.start, self.recover, (), reported).run_blocking(body)
    }

    /// Runs a `body` that is not async as [`run_or_skip`](Recovering::run_or_skip) does.
    pub fn run_blocking_or_skip<R>(self, body: impl FnOnce() -> R) -> R
    where
        R: SkipOutcome,
        H: FnOnce(Lost, R) -> R,
    {
        Call::new(self.start, self.recover, (), skipped).or_skip::<R>().run_blocking(body)
    }

    /// Converts each [`LockError`] that is not recovered from to the body's error type with `map`,
    /// as [`Lock::map_err`] does.
    pub fn map_err<E, M: FnOnce(LockError) -> E>(self, map: M) -> MapErr<H, M> {
        MapErr { start: self.start, recover: self.recover, map }
    }
}

/// A lock whose errors a function converts to the body's error type, from [`Lock::map_err`] or
/// [`LockGuard::map_err`].
#[derive(Debug)]
#[must_use = "a lock does nothing until it is run"]
pub struct MapErr<H, M> {
    start: Start,
    recover: H,
    map: M,
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
        Call::new(self.start, self.recover, self.map, mapped).run(body)
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
        Call::new(self.start, self.recover, self.map, mapped_or_skipped)
            .or_skip::<Result<_, LockError>>()
            .run(body)
    }

    /// Runs a `body` that is not async as [`run`](MapErr::run) does.
    pub fn run_blocking<R: AnyResult>(self, body: impl FnOnce() -> R) -> R
    where
        H: Recover<R>,
        M: FnOnce(LockError) -> R::Error,
    {
        Call::new(self.start, self.recover, self.map, mapped).run_blocking(body)
    }

    /// Runs a `body` that is not async as [`run_or_skip`](MapErr::run_or_skip) does.
    pub fn run_blocking_or_skip<R: AnyResult>(self, body: impl FnOnce() -> R) -> R
    where
        H: Recover<R>,
        M: FnOnce(LockError) -> R::Error,
        Result<R::Value, LockError>: SkipOutcome,
    {
        Call::new(self.start, self.recover, self.map, mapped_or_skipped)
            .or_skip::<Result<_, LockError>>()
            .run_blocking(body)
    }
}
