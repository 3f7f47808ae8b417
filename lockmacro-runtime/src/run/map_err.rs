//! A lock whose errors are converted by a function, for `map_err = path`.

use crate::guard::LockGuard;
use crate::lock::Lock;
use crate::outcome::SkipOutcome;
use crate::run::body::Call;
use crate::run::driver::{Run, Start};
use crate::run::recovering::Recovering;
use crate::run::report::{AnyResult, Conclusion, Recover, mapped, mapped_or_skipped};
use crate::value::error::LockError;

impl<F> Lock<F> {
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
    /// Converts each [`LockError`] to the body's error type with `map`, as [`Lock::map_err`] does.
    pub fn map_err<E, M: FnOnce(LockError) -> E>(self, map: M) -> MapErr<(), M> {
        MapErr { start: Start::Guard(self), recover: (), map }
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

impl<H> Recovering<H> {
    /// Converts each [`LockError`] that is not recovered from to the body's error type with `map`,
    /// as [`Lock::map_err`] does.
    pub fn map_err<E, M: FnOnce(LockError) -> E>(self, map: M) -> MapErr<H, M> {
        MapErr { start: self.start, recover: self.recover, map }
    }
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
