//! A lock with a function that is called when the lock is lost, for `on_lost = path`.

use crate::guard::LockGuard;
use crate::lock::Lock;
use crate::outcome::{LockOutcome, SkipOutcome};
use crate::run::body::Call;
use crate::run::driver::{Run, Start};
use crate::run::report::{Conclusion, reported, skipped};
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
}

impl LockGuard {
    /// Calls `recover` when the lock is lost while a body runs: see [`Recovering`].
    pub fn recovering<R, H: FnOnce(Lost, R) -> R>(self, recover: H) -> Recovering<H> {
        Recovering { start: Start::Guard(self.with(OnLost::Error)), recover }
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
    pub(crate) start: Start,
    pub(crate) recover: H,
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
}
