//! A body under a lock: polled while the lock is held, stopped or told when it is lost, and
//! followed by the release however it ends.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use crate::backend::Released;
use crate::error::LockError;
use crate::guard::LockGuard;
use crate::held::Held;
use crate::loss::{Lost, OnLost};
use crate::outcome::{LockOutcome, SkipOutcome};
use crate::recovering::Recovering;
use crate::scope::Scope;
use crate::telemetry;

impl LockGuard {
    /// Runs `body` while the lock is held, then gives the lock back.
    ///
    /// The body's value reaches the caller whatever the release says. What happens when the lock is
    /// lost meanwhile is for [`Lock::on_lost`](crate::Lock::on_lost) to say: by default the body is
    /// dropped at its next await, before the server can grant the lock to somebody else, and the
    /// caller gets [`LockError::Lost`] in its return type.
    ///
    /// # Cancellation
    /// Dropping the future drops the body and then releases the lock in the background.
    pub async fn run<F>(self, body: F) -> F::Output
    where
        F: Future,
        F::Output: LockOutcome,
    {
        self.attend(pin!(Some(body))).await.reported()
    }

    /// [`run`](LockGuard::run) for a body that is not async. It cannot be stopped: when the lock is
    /// lost, it finishes first.
    pub fn run_blocking<R: LockOutcome>(self, body: impl FnOnce() -> R) -> R {
        self.attend_blocking(body).reported()
    }

    /// [`run`](LockGuard::run) for the return types of `on_busy = skip`. Where they cannot carry an
    /// error, it is logged.
    pub async fn run_or_skip<F>(self, body: F) -> F::Output
    where
        F: Future,
        F::Output: SkipOutcome,
    {
        let lock = self.share();
        self.attend(pin!(Some(body))).await.skippable(lock.held())
    }

    /// [`run_or_skip`](LockGuard::run_or_skip) for a body that is not async.
    pub fn run_blocking_or_skip<R: SkipOutcome>(self, body: impl FnOnce() -> R) -> R {
        let lock = self.share();
        self.attend_blocking(body).skippable(lock.held())
    }

    /// Has `recover` called when the lock is lost while a body runs: see [`Recovering`].
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
    /// let guard = Lock::new("stock:7").ttl(Duration::from_secs(5)).manager(&locks).acquire().await?;
    /// let booked = guard.recovering(cancel_booking).run(async { Ok(3) }).await?;
    /// assert_eq!(booked, 3);
    /// # Ok(()) }
    /// ```
    pub fn recovering<R, H: FnOnce(Lost, R) -> R>(self, recover: H) -> Recovering<H> {
        Recovering::new(self, recover)
    }

    /// Runs `work` as code that is under this lock, in a task that the body spawned: there the same
    /// lock can be entered again, and [`current`](LockGuard::current) finds it. It neither keeps the
    /// lock nor is stopped with it, so wait for the task inside the body.
    ///
    /// ```
    /// # use lockmacro_runtime::{Lock, LockGuard, LockManager, LockError};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// # let locks = LockManager::memory();
    /// Lock::new("stock:7").manager(&locks).run(async {
    ///     let lock = LockGuard::current();
    ///     let task = tokio::spawn(async move {
    ///         assert!(LockGuard::current().is_none());
    ///         match lock {
    ///             Some(lock) => lock.scope(async { LockGuard::current().is_some() }).await,
    ///             None => false,
    ///         }
    ///     });
    ///     assert_eq!(task.await.ok(), Some(true));
    ///     Ok(())
    /// }).await
    /// # }
    /// ```
    pub async fn scope<F: Future>(&self, work: F) -> F::Output {
        let work = pin!(work);
        let inside = self.level().around(work);
        self.held().current().unless_here().around(inside).await
    }

    /// Runs the body that `place` holds. The place is emptied before the lock is given back, also
    /// when this future is dropped.
    pub(crate) async fn attend<F: Future>(self, place: Pin<&mut Option<F>>) -> Ended<F::Output> {
        let on_lost = self.on_lost();
        let mut place = Emptied(place);
        let value = {
            let level = self.level();
            let mut body = |cx: &mut Context<'_>| {
                // It is there until this has ended.
                let Some(body) = place.0.as_mut().as_pin_mut() else { return Poll::Pending };
                level.enter(|| body.poll(cx))
            };
            match on_lost {
                OnLost::Cancel => self.until_lost(&mut body).await,
                OnLost::Error | OnLost::Finish => match self.held().remaining().err() {
                    None => Ok(poll_fn(&mut body).await),
                    Some(lost) => Err(lost),
                },
            }
        };
        let lost = self.held().remaining().err();
        drop(place);
        self.give_back(lost.as_ref()).await;
        match value {
            Ok(value) => Ended::after(on_lost, value, lost),
            Err(lost) => Ended::Stopped(lost),
        }
    }

    pub(crate) fn attend_blocking<R>(self, body: impl FnOnce() -> R) -> Ended<R> {
        // The last moment at which the body can be kept from running.
        let value = self.held().remaining().map(|_| self.level().enter(body));
        let lost = self.held().remaining().err();
        if !self.is_joined() {
            self.log(self.held().release_blocking(), lost.as_ref());
        }
        match value {
            Ok(value) => Ended::after(self.on_lost(), value, lost),
            Err(lost) => Ended::Stopped(lost),
        }
    }

    /// Polls `body` until it is done or the lock is lost; from then on it gets no further poll. The
    /// lease is looked at before every poll, because a process that stood still is first of all
    /// polled.
    async fn until_lost<R>(
        &self,
        body: &mut impl FnMut(&mut Context<'_>) -> Poll<R>,
    ) -> Result<R, Lost> {
        let mut lost = None;
        poll_fn(|cx| {
            if let Err(lost) = self.held().remaining() {
                return Poll::Ready(Err(lost));
            }
            if let Poll::Ready(value) = body(cx) {
                return Poll::Ready(Ok(value));
            }
            // Boxed, for bodies that await: who waits for the lock has no use for it.
            let lost = lost.get_or_insert_with(|| Box::pin(self.held().lost()));
            lost.as_mut().poll(cx).map(Err)
        })
        .await
    }

    async fn give_back(&self, lost: Option<&Lost>) {
        if !self.is_joined() {
            self.log(self.held().release().await, lost);
        }
    }

    /// What a release says reaches no caller, so it is logged.
    fn log(&self, released: Result<Released, LockError>, lost: Option<&Lost>) {
        let claim = self.held().claim();
        let (key, labels) = (claim.listed(), &claim.labels);
        match released {
            _ if lost.is_some() => {}
            Ok(Released::Held | Released::Unconfirmed) => {}
            Ok(Released::NotHeld) => telemetry::released_late(labels, key),
            Err(error) => telemetry::release_unconfirmed(labels, key, &error),
        }
    }
}

/// How a body came to its end.
#[derive(Debug)]
pub(crate) enum Ended<R> {
    /// By itself, under the lock, or its value stands all the same.
    Done(R),
    /// By itself, when the lock was lost already.
    Late(R, Lost),
    /// It was dropped because the lock was lost.
    Stopped(Lost),
}

impl<R> Ended<R> {
    fn after(on_lost: OnLost, value: R, lost: Option<Lost>) -> Self {
        match lost {
            Some(lost) if on_lost != OnLost::Finish => Ended::Late(value, lost),
            _ => Ended::Done(value),
        }
    }

    pub(crate) fn reported(self) -> R
    where
        R: LockOutcome,
    {
        match self {
            Ended::Done(value) => value,
            Ended::Late(value, lost) => value.after_loss(lost.into()),
            Ended::Stopped(lost) => R::from_lock_error(lost.into()),
        }
    }

    pub(crate) fn skippable(self, held: &Held) -> R
    where
        R: SkipOutcome,
    {
        let (value, lost) = match self {
            Ended::Done(value) => return value,
            Ended::Late(value, lost) => (Some(value), LockError::from(lost)),
            Ended::Stopped(lost) => (None, lost.into()),
        };
        if !R::CARRIES_ERRORS {
            telemetry::unreported(&held.claim().labels.name, Some(held.claim().listed()), &lost);
        }
        match value {
            Some(value) => value.after_loss(lost),
            None => R::from_lock_error(lost),
        }
    }
}

impl Scope {
    /// Runs `work` inside, from its first poll to its last.
    async fn around<F: Future>(self, mut work: Pin<&mut F>) -> F::Output {
        poll_fn(|cx| self.enter(|| work.as_mut().poll(cx))).await
    }
}

/// A place for a body that is emptied when it goes out of scope.
struct Emptied<'a, F>(Pin<&'a mut Option<F>>);

impl<F> Drop for Emptied<'_, F> {
    fn drop(&mut self) {
        self.0.set(None);
    }
}
