//! A lock that is held.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::sleep;

use crate::error::LockError;
use crate::hold::Hold;
use crate::key::LockKey;
use crate::lease::{Lease, Moment};
use crate::outcome::{Failure, LockOutcome};

/// A lock that is held, until it is released, dropped, or its lease is over.
///
/// Dropping a guard anywhere, even while its runtime shuts down, has the lock released in the
/// background within milliseconds. [`release`](LockGuard::release) waits until that is done.
///
/// ```
/// # use std::time::Duration;
/// # use lockmacro_runtime::{Lock, LockManager, LockError};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
/// let locks = LockManager::memory();
/// let guard = Lock::new("order:42").ttl(Duration::from_secs(30)).manager(&locks).acquire().await?;
/// assert!(guard.is_held() && guard.remaining() > Duration::from_secs(29));
/// guard.release().await?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "the lock is given back as soon as its guard is dropped"]
pub struct LockGuard {
    hold: Hold,
    lease: Lease,
}

impl LockGuard {
    pub(crate) fn new((hold, lease): (Hold, Lease)) -> Self {
        Self { hold, lease }
    }

    /// The key that is held.
    pub fn key(&self) -> &LockKey {
        self.hold.key()
    }

    /// How long the lock may still be relied on; zero when the lease is over.
    ///
    /// It is counted from before the lock was asked for, less 1 % of the ttl and 2 ms, so that it
    /// ends before the server can grant the lock to somebody else.
    pub fn remaining(&self) -> Duration {
        self.lease.remaining(Moment::now())
    }

    /// Whether the lease still runs.
    pub fn is_held(&self) -> bool {
        !self.lease.is_over(Moment::now())
    }

    /// Gives the lock back, and waits for the server to say so.
    ///
    /// # Errors
    /// [`LockError::Lost`] when the lock was not held any more: its lease was over, or somebody
    /// took the key away. Any other error tells that the release could not be confirmed; it is
    /// tried on in the background until the lease is over.
    ///
    /// # Cancellation
    /// Dropping the future has the release finished in the background.
    pub async fn release(mut self) -> Result<(), LockError> {
        let held = self.hold.release().await?;
        self.confirm(held)
    }

    /// [`release`](LockGuard::release) for code that is not async. It blocks for a round trip to
    /// the server.
    ///
    /// # Errors
    /// As [`release`](LockGuard::release).
    pub fn release_blocking(mut self) -> Result<(), LockError> {
        let held = self.hold.release_blocking()?;
        self.confirm(held)
    }

    /// Runs `body` while the lock is held, then gives the lock back.
    ///
    /// The body's value reaches the caller whatever the release says. A body that outlives the
    /// lease is dropped at its next await, before the server can grant the lock to somebody else,
    /// and the caller gets [`LockError::Lost`] in its return type. A body that finishes by itself
    /// after the lease was over gives `Lost` in place of its value; its own error is kept.
    ///
    /// # Cancellation
    /// Dropping the future drops the body and then releases the lock in the background.
    pub async fn run<F>(self, body: F) -> F::Output
    where
        F: Future,
        F::Output: LockOutcome,
    {
        let body = pin!(Some(body));
        self.attend(body, Failure::reported()).await
    }

    /// [`run`](LockGuard::run) for a body that is not async. It cannot be stopped: when it finishes
    /// after its lease, the caller gets [`LockError::Lost`] in place of its value.
    pub fn run_blocking<R: LockOutcome>(self, body: impl FnOnce() -> R) -> R {
        self.attend_blocking(body, Failure::reported())
    }

    /// Runs the body that `place` holds. The place is emptied before the lock is given back, also
    /// when this future is dropped.
    pub(crate) async fn attend<F: Future>(
        mut self,
        place: Pin<&mut Option<F>>,
        failure: Failure<F::Output>,
    ) -> F::Output {
        let mut place = Emptied(place);
        let value = until_over(self.lease, place.0.as_mut()).await;
        let lost = value.is_none() || !self.is_held();
        drop(place);
        let released = self.hold.release().await;
        self.outcome(value, lost, released, failure)
    }

    pub(crate) fn attend_blocking<R>(mut self, body: impl FnOnce() -> R, failure: Failure<R>) -> R {
        let value = body();
        let lost = !self.is_held();
        let released = self.hold.release_blocking();
        self.outcome(Some(value), lost, released, failure)
    }

    /// What the caller gets. What a release says is logged, and reaches no caller.
    fn outcome<R>(
        self,
        value: Option<R>,
        lost: bool,
        released: Result<bool, LockError>,
        failure: Failure<R>,
    ) -> R {
        let key = self.key();
        match released {
            _ if lost => tracing::warn!(%key, "a lock was lost: its body outlived the lease"),
            Ok(true) => {}
            Ok(false) => tracing::warn!(%key, "a lock was taken away while its body was running"),
            Err(error) => tracing::warn!(%key, %error, "a lock is still being released"),
        }
        match value {
            Some(value) if !lost => value,
            Some(value) => failure.after(value, self.loss()),
            None => failure.instead(self.loss()),
        }
    }

    fn confirm(&self, held: bool) -> Result<(), LockError> {
        if held { Ok(()) } else { Err(self.loss()) }
    }

    fn loss(&self) -> LockError {
        LockError::Lost { key: self.key().clone() }
    }
}

/// Polls the body until it is done, or until its lease is over: then it gets no further poll. The
/// clock is asked at every poll, because the timer stands still while the machine sleeps.
async fn until_over<F: Future>(lease: Lease, mut place: Pin<&mut Option<F>>) -> Option<F::Output> {
    // A guard that a thread acquired may be used where no tokio timer is.
    let timer = Handle::try_current().ok().map(|_| sleep(lease.remaining(Moment::now())));
    let mut timer = pin!(timer);
    poll_fn(|cx| {
        if lease.is_over(Moment::now()) {
            return Poll::Ready(None);
        }
        let body = place.as_mut().as_pin_mut();
        if let Some(Poll::Ready(value)) = body.map(|body| body.poll(cx)) {
            return Poll::Ready(Some(value));
        }
        match timer.as_mut().as_pin_mut() {
            Some(timer) => timer.poll(cx).map(|()| None),
            None => Poll::Pending,
        }
    })
    .await
}

/// A place for a body that is emptied when it goes out of scope.
struct Emptied<'a, F>(Pin<&'a mut Option<F>>);

impl<F> Drop for Emptied<'_, F> {
    fn drop(&mut self) {
        self.0.set(None);
    }
}
