//! A lock with a function that is called when the lock is lost, for `on_lost = path`.

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
    ///     // … undo the booking …
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

/// A lock that a body can run under: one to acquire, or one that is held.
pub trait Under {
    /// Returns what the body starts from.
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

/// A lock with a function that recovers from its loss, from [`Lock::recovering`] or
/// [`LockGuard::recovering`].
///
/// The body runs to its end even when the lock is lost meanwhile. After the release, the function
/// is called with the loss and the body's value, to undo or to keep the body's work. The caller
/// gets the function's value. When the lock is lost before the body has started, neither the body
/// nor the function runs, and the caller gets [`LockError::Lost`](crate::LockError::Lost).
#[derive(Debug)]
#[must_use = "a lock does nothing until it is run"]
pub struct Recovering<L, H> {
    pub(crate) lock: L,
    pub(crate) recover: H,
}

impl<L: Under, H> Recovering<L, H> {
    /// Runs `body` as [`Lock::run`] and [`LockGuard::run`] do, and calls the function after a loss.
    ///
    /// # Cancellation
    /// Dropping the future drops the body and then releases the lock in the background. The
    /// function is not called.
    pub fn run<B>(self, body: B) -> Run<B, Recovered<H, B::Output>>
    where
        B: Future,
        B::Output: LockOutcome,
        H: FnOnce(Lost, B::Output) -> B::Output,
    {
        let report = Recovered { recover: self.recover, report: Outcome::reported };
        Run::new(self.lock.start(), Errors::Carried, body, report)
    }

    /// Runs `body` as [`run`](Recovering::run) does, for the return types of `on_busy = skip`.
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

    /// Runs a `body` that is not async as [`run`](Recovering::run) does.
    pub fn run_blocking<R>(self, body: impl FnOnce() -> R) -> R
    where
        R: LockOutcome,
        H: FnOnce(Lost, R) -> R,
    {
        let report = Recovered { recover: self.recover, report: Outcome::reported };
        run_blocking(self.lock.start(), Errors::Carried, body, report)
    }

    /// Runs a `body` that is not async as [`run_or_skip`](Recovering::run_or_skip) does.
    pub fn run_blocking_or_skip<R>(self, body: impl FnOnce() -> R) -> R
    where
        R: SkipOutcome,
        H: FnOnce(Lost, R) -> R,
    {
        let report = Recovered { recover: self.recover, report: Outcome::skipped };
        run_blocking(self.lock.start().or_skip(), errors_recovered_of::<R>(), body, report)
    }
}
