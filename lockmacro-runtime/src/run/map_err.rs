//! A lock whose errors are converted by a function, for `map_err = path`.

use crate::engine::unreported::Errors;
use crate::guard::LockGuard;
use crate::lock::Lock;
use crate::outcome::SkipOutcome;
use crate::run::body::{Run, run_blocking};
use crate::run::driver::Start;
use crate::run::recovering::{Recovering, Under};
use crate::run::report::{AnyResult, Outcome};
use crate::value::error::LockError;
use crate::value::loss::Lost;

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
    pub fn map_err<E, M: FnOnce(LockError) -> E>(self, map: M) -> MapErr<Self, M> {
        MapErr { lock: self, map }
    }
}

impl LockGuard {
    /// Converts each [`LockError`] to the body's error type with `map`, as [`Lock::map_err`] does.
    pub fn map_err<E, M: FnOnce(LockError) -> E>(self, map: M) -> MapErr<Self, M> {
        MapErr { lock: self, map }
    }
}

/// A lock whose errors a function converts to the body's error type, from [`Lock::map_err`] or
/// [`LockGuard::map_err`].
#[derive(Debug)]
#[must_use = "a lock does nothing until it is run"]
pub struct MapErr<L, M> {
    lock: L,
    map: M,
}

impl<L, H> Recovering<L, H> {
    /// Converts each [`LockError`] that is not recovered from to the body's error type with `map`,
    /// as [`Lock::map_err`] does.
    pub fn map_err<E, M: FnOnce(LockError) -> E>(self, map: M) -> MapErr<Self, M> {
        MapErr { lock: self, map }
    }
}

/// The receiver of `map_err`: a lock, or a lock with a function that recovers from its loss.
pub trait UnderResult<R>: Sized {
    /// Returns what the body starts from, and the function that recovers from a loss.
    fn start(self) -> (Start, impl FnOnce(Outcome<R>) -> Outcome<R>);
}

impl<F, R> UnderResult<R> for Lock<F> {
    fn start(self) -> (Start, impl FnOnce(Outcome<R>) -> Outcome<R>) {
        (Under::start(self), |outcome| outcome)
    }
}

impl<R> UnderResult<R> for LockGuard {
    fn start(self) -> (Start, impl FnOnce(Outcome<R>) -> Outcome<R>) {
        (Under::start(self), |outcome| outcome)
    }
}

impl<R, L: Under, H: FnOnce(Lost, R) -> R> UnderResult<R> for Recovering<L, H> {
    fn start(self) -> (Start, impl FnOnce(Outcome<R>) -> Outcome<R>) {
        let recover = self.recover;
        (self.lock.start(), |outcome: Outcome<R>| outcome.recovered(recover))
    }
}

impl<L, M> MapErr<L, M> {
    /// Runs `body`, which returns a `Result`, as [`Lock::run`], [`LockGuard::run`] and
    /// [`Recovering::run`] do.
    ///
    /// # Cancellation
    /// As [`Lock::run`].
    pub fn run<B>(self, body: B) -> impl Future<Output = B::Output>
    where
        B: Future<Output: AnyResult>,
        L: UnderResult<B::Output>,
        M: FnOnce(LockError) -> <B::Output as AnyResult>::Error,
    {
        let (start, recover) = self.lock.start();
        Run::new(start, Errors::Carried, body, |ended| recover(ended).mapped(self.map))
    }

    /// Runs `body` as [`Lock::run_or_skip`] does, for `Result<(), E>` and `Result<Option<T>, E>`.
    ///
    /// # Cancellation
    /// As [`run`](MapErr::run).
    pub fn run_or_skip<B>(self, body: B) -> impl Future<Output = B::Output>
    where
        B: Future<Output: AnyResult>,
        L: UnderResult<B::Output>,
        M: FnOnce(LockError) -> <B::Output as AnyResult>::Error,
        Result<<B::Output as AnyResult>::Value, LockError>: SkipOutcome,
    {
        let (start, recover) = self.lock.start();
        let report = |ended: Outcome<_>| recover(ended).mapped_or_skipped(self.map);
        Run::new(start.or_skip(), Errors::Carried, body, report)
    }

    /// Runs a `body` that is not async as [`run`](MapErr::run) does.
    pub fn run_blocking<R: AnyResult>(self, body: impl FnOnce() -> R) -> R
    where
        L: UnderResult<R>,
        M: FnOnce(LockError) -> R::Error,
    {
        let (start, recover) = self.lock.start();
        run_blocking(start, Errors::Carried, body, |ended| recover(ended).mapped(self.map))
    }

    /// Runs a `body` that is not async as [`run_or_skip`](MapErr::run_or_skip) does.
    pub fn run_blocking_or_skip<R: AnyResult>(self, body: impl FnOnce() -> R) -> R
    where
        L: UnderResult<R>,
        M: FnOnce(LockError) -> R::Error,
        Result<R::Value, LockError>: SkipOutcome,
    {
        let (start, recover) = self.lock.start();
        let report = |ended: Outcome<_>| recover(ended).mapped_or_skipped(self.map);
        run_blocking(start.or_skip(), Errors::Carried, body, report)
    }
}
