//! A lock whose errors are converted by a function, for `map_err = path`.

use crate::engine::unreported::Errors;
use crate::guard::LockGuard;
use crate::lock::Lock;
use crate::outcome::SkipOutcome;
use crate::run::body::{Run, run_blocking};
use crate::run::driver::Start;
use crate::run::recovering::{Recovering, Under};
use crate::run::report::{AnyResult, Conclude, Outcome};
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
    /// The function that recovers from a loss, if there is one.
    type Recover;

    /// Returns what the body starts from, and the function.
    fn start(self) -> (Start, Self::Recover);

    /// Calls the function after a loss.
    fn recovered(recover: Self::Recover, outcome: Outcome<R>) -> Outcome<R>;
}

impl<F, R> UnderResult<R> for Lock<F> {
    type Recover = ();

    fn start(self) -> (Start, ()) {
        (Under::start(self), ())
    }

    fn recovered((): (), outcome: Outcome<R>) -> Outcome<R> {
        outcome
    }
}

impl<R> UnderResult<R> for LockGuard {
    type Recover = ();

    fn start(self) -> (Start, ()) {
        (Under::start(self), ())
    }

    fn recovered((): (), outcome: Outcome<R>) -> Outcome<R> {
        outcome
    }
}

impl<R, L: Under, H: FnOnce(Lost, R) -> R> UnderResult<R> for Recovering<L, H> {
    type Recover = H;

    fn start(self) -> (Start, H) {
        (self.lock.start(), self.recover)
    }

    fn recovered(recover: H, outcome: Outcome<R>) -> Outcome<R> {
        outcome.recovered(recover)
    }
}

/// A conclusion with converted errors. A named type, because an unnamed one is reported twice, and
/// is one level more in nested types, of which the compiler limits the number.
pub struct Mapped<L: UnderResult<R>, M, R> {
    recover: L::Recover,
    map: M,
    report: fn(Outcome<R>, M) -> R,
}

impl<R, L: UnderResult<R>, M> Conclude<R> for Mapped<L, M, R> {
    fn conclude(self, outcome: Outcome<R>) -> R {
        (self.report)(L::recovered(self.recover, outcome), self.map)
    }
}

impl<L, M> MapErr<L, M> {
    /// Runs `body`, which returns a `Result`, as [`Lock::run`], [`LockGuard::run`] and
    /// [`Recovering::run`] do.
    ///
    /// # Cancellation
    /// As [`Lock::run`].
    pub fn run<B>(self, body: B) -> Run<B, Mapped<L, M, B::Output>>
    where
        B: Future<Output: AnyResult>,
        L: UnderResult<B::Output>,
        M: FnOnce(LockError) -> <B::Output as AnyResult>::Error,
    {
        let (start, recover) = self.lock.start();
        let report = Mapped::<L, M, _> { recover, map: self.map, report: Outcome::mapped };
        Run::new(start, Errors::Carried, body, report)
    }

    /// Runs `body` as [`Lock::run_or_skip`] does, for `Result<(), E>` and `Result<Option<T>, E>`.
    ///
    /// # Cancellation
    /// As [`run`](MapErr::run).
    pub fn run_or_skip<B>(self, body: B) -> Run<B, Mapped<L, M, B::Output>>
    where
        B: Future<Output: AnyResult>,
        L: UnderResult<B::Output>,
        M: FnOnce(LockError) -> <B::Output as AnyResult>::Error,
        Result<<B::Output as AnyResult>::Value, LockError>: SkipOutcome,
    {
        let (start, recover) = self.lock.start();
        let report =
            Mapped::<L, M, _> { recover, map: self.map, report: Outcome::mapped_or_skipped };
        Run::new(start.or_skip(), Errors::Carried, body, report)
    }

    /// Runs a `body` that is not async as [`run`](MapErr::run) does.
    pub fn run_blocking<R: AnyResult>(self, body: impl FnOnce() -> R) -> R
    where
        L: UnderResult<R>,
        M: FnOnce(LockError) -> R::Error,
    {
        let (start, recover) = self.lock.start();
        let report = Mapped::<L, M, R> { recover, map: self.map, report: Outcome::mapped };
        run_blocking(start, Errors::Carried, body, report)
    }

    /// Runs a `body` that is not async as [`run_or_skip`](MapErr::run_or_skip) does.
    pub fn run_blocking_or_skip<R: AnyResult>(self, body: impl FnOnce() -> R) -> R
    where
        L: UnderResult<R>,
        M: FnOnce(LockError) -> R::Error,
        Result<R::Value, LockError>: SkipOutcome,
    {
        let (start, recover) = self.lock.start();
        let report =
            Mapped::<L, M, R> { recover, map: self.map, report: Outcome::mapped_or_skipped };
        run_blocking(start.or_skip(), Errors::Carried, body, report)
    }
}
