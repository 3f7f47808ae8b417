//! A lock whose loss is answered by undoing, as `on_lost = path` asks.

use crate::engine::unreported::Errors;
use crate::guard::LockGuard;
use crate::lock::Lock;
use crate::outcome::{LockOutcome, SkipOutcome};
use crate::run::body::{Run, run_blocking};
use crate::run::driver::Start;
use crate::run::report::{Outcome, Recovered, errors_recovered_of};
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
    ///     // … undo what `booked` says …
    ///     booked.and(Err(lost.into()))
    /// }
    ///
    /// let lock = Lock::new("stock:7").ttl(Duration::from_secs(5)).manager(&locks);
    /// let booked = lock.recovering(cancel_booking).run(async { Ok(3) }).await?;
    /// assert_eq!(booked, 3);
    /// # Ok(()) }
    /// ```
    pub fn recovering<R, H: FnOnce(Lost, R) -> R>(self, recover: H) -> Recovering<Self, H> {
        Recovering { lock: self.on_lost(OnLost::Error), recover }
    }
}

impl LockGuard {
    /// Calls `recover` when the lock is lost while a body runs: see [`Recovering`].
    pub fn recovering<R, H: FnOnce(Lost, R) -> R>(self, recover: H) -> Recovering<Self, H> {
        Recovering { lock: self.with(OnLost::Error), recover }
    }
}

/// What a body can be run under: a lock to acquire, or one that is held.
pub trait Under {
    /// What the body begins with.
    fn start(self) -> Start;
}

impl<F> Under for Lock<F> {
    fn start(self) -> Start {
        Start::Lock(self.spec)
    }
}

impl Under for LockGuard {
    fn start(self) -> Start {
        Start::Guard(self)
    }
}

/// A lock with a function for the case that it is lost, from [`Lock::recovering`] or
/// [`LockGuard::recovering`].
///
/// The body runs to its end even when the lock is lost meanwhile. Then, after the release, the
/// function is given the loss and the body's value, to undo or to keep what was done, and its value
/// is the caller's. Where the lock is lost before the body has begun, neither runs and the caller
/// gets [`LockError::Lost`](crate::LockError::Lost).
#[derive(Debug)]
#[must_use = "a lock does nothing until it is run"]
pub struct Recovering<L, H> {
    pub(crate) lock: L,
    pub(crate) recover: H,
}

impl<L: Under, H> Recovering<L, H> {
    /// Runs `body`; see [`Lock::run`] and [`LockGuard::run`].
    ///
    /// # Cancellation
    /// Dropping the future drops the body and then releases the lock in the background; nothing is
    /// recovered.
    pub fn run<B>(self, body: B) -> Run<B, Recovered<H, B::Output>>
    where
        B: Future,
        B::Output: LockOutcome,
        H: FnOnce(Lost, B::Output) -> B::Output,
    {
        let report = Recovered { recover: self.recover, report: Outcome::reported };
        Run::new(self.lock.start(), Errors::Carried, body, report)
    }

    /// [`run`](Recovering::run) for the return types of `on_busy = skip`.
    ///
    /// # Cancellation
    /// As [`run`](Recovering::run).
    ///
    /// # Panics
    /// As [`Lock::run_or_skip`].
    pub fn run_or_skip<B>(self, body: B) -> Run<B, Recovered<H, B::Output>>
    where
        B: Future,
        B::Output: SkipOutcome,
        H: FnOnce(Lost, B::Output) -> B::Output,
    {
        let report = Recovered { recover: self.recover, report: Outcome::skipped };
        let start = self.lock.start().or_skip();
        Run::new(start, errors_recovered_of::<B::Output>(), body, report)
    }

    /// [`run`](Recovering::run) for a body that is not async.
    pub fn run_blocking<R>(self, body: impl FnOnce() -> R) -> R
    where
        R: LockOutcome,
        H: FnOnce(Lost, R) -> R,
    {
        let report = Recovered { recover: self.recover, report: Outcome::reported };
        run_blocking(self.lock.start(), Errors::Carried, body, report)
    }

    /// [`run_or_skip`](Recovering::run_or_skip) for a body that is not async.
    pub fn run_blocking_or_skip<R>(self, body: impl FnOnce() -> R) -> R
    where
        R: SkipOutcome,
        H: FnOnce(Lost, R) -> R,
    {
        let report = Recovered { recover: self.recover, report: Outcome::skipped };
        run_blocking(self.lock.start().or_skip(), errors_recovered_of::<R>(), body, report)
    }
}
