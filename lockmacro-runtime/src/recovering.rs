//! A lock whose loss is answered by undoing, as `on_lost = path` asks.

use std::pin::pin;

use crate::guard::LockGuard;
use crate::loss::{Lost, OnLost};
use crate::outcome::{LockOutcome, SkipOutcome};
use crate::run::Ended;

/// A held lock with a function for the case that it is lost, from
/// [`LockGuard::recovering`].
///
/// The body runs to its end even when the lock is lost meanwhile. Then, after the release, the
/// function is given the loss and the body's value, to undo or to keep what was done, and its value
/// is the caller's. Where the lock is lost before the body has begun, neither runs and the caller
/// gets [`LockError::Lost`](crate::LockError::Lost).
#[derive(Debug)]
#[must_use = "the lock is given back as soon as its guard is dropped"]
pub struct Recovering<H> {
    guard: LockGuard,
    recover: H,
}

impl<H> Recovering<H> {
    pub(crate) fn new(guard: LockGuard, recover: H) -> Self {
        Self { guard: guard.with(OnLost::Error), recover }
    }

    /// Runs `body`; see [`LockGuard::run`].
    ///
    /// # Cancellation
    /// Dropping the future drops the body and then releases the lock in the background; nothing is
    /// recovered.
    pub async fn run<F>(self, body: F) -> F::Output
    where
        F: Future,
        F::Output: LockOutcome,
        H: FnOnce(Lost, F::Output) -> F::Output,
    {
        self.guard.attend(pin!(Some(body))).await.recovered(self.recover).reported()
    }

    /// [`run`](Recovering::run) for the return types of `on_busy = skip`.
    ///
    /// # Cancellation
    /// As [`run`](Recovering::run).
    pub async fn run_or_skip<F>(self, body: F) -> F::Output
    where
        F: Future,
        F::Output: SkipOutcome,
        H: FnOnce(Lost, F::Output) -> F::Output,
    {
        let lock = self.guard.share();
        let ended = self.guard.attend(pin!(Some(body))).await;
        ended.recovered(self.recover).skippable(lock.held())
    }

    /// [`run`](Recovering::run) for a body that is not async.
    pub fn run_blocking<R>(self, body: impl FnOnce() -> R) -> R
    where
        R: LockOutcome,
        H: FnOnce(Lost, R) -> R,
    {
        self.guard.attend_blocking(body).recovered(self.recover).reported()
    }

    /// [`run_or_skip`](Recovering::run_or_skip) for a body that is not async.
    pub fn run_blocking_or_skip<R>(self, body: impl FnOnce() -> R) -> R
    where
        R: SkipOutcome,
        H: FnOnce(Lost, R) -> R,
    {
        let lock = self.guard.share();
        self.guard.attend_blocking(body).recovered(self.recover).skippable(lock.held())
    }
}

impl<R> Ended<R> {
    fn recovered(self, recover: impl FnOnce(Lost, R) -> R) -> Self {
        match self {
            Ended::Late(value, lost) => Ended::Done(recover(lost, value)),
            ended => ended,
        }
    }
}
