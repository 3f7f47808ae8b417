//! A body under a lock: polled while the lock is held, stopped or told when it is lost, and
//! followed by the release however it ends.

use std::future::{pending, poll_fn};
use std::pin::{Pin, pin};
use std::task::Poll;

use crate::error::LockError;
use crate::guard::LockGuard;
use crate::loss::{Lost, OnLost};
use crate::outcome::{LockOutcome, SkipOutcome};
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

    /// [`run`](LockGuard::run) for the return types of `on_busy = skip`, which may be unable to
    /// carry an error: then it is logged.
    pub async fn run_or_skip<F>(self, body: F) -> F::Output
    where
        F: Future,
        F::Output: SkipOutcome,
    {
        self.attend(pin!(Some(body))).await.skippable()
    }

    /// [`run_or_skip`](LockGuard::run_or_skip) for a body that is not async.
    pub fn run_blocking_or_skip<R: SkipOutcome>(self, body: impl FnOnce() -> R) -> R {
        self.attend_blocking(body).skippable()
    }

    /// Runs `body` to its end even when the lock is lost meanwhile; then `recover` is given the
    /// loss and the body's value, to undo or to keep what was done.
    ///
    /// # Cancellation
    /// As [`run`](LockGuard::run).
    pub async fn run_recovering<F: Future>(
        self,
        body: F,
        recover: impl FnOnce(Lost, F::Output) -> F::Output,
    ) -> F::Output {
        let value = self.level().around(pin!(body)).await;
        let lost = self.held().remaining().err();
        self.give_back(lost.as_ref()).await;
        match lost {
            Some(lost) => recover(lost, value),
            None => value,
        }
    }

    /// [`run_recovering`](LockGuard::run_recovering) for a body that is not async.
    pub fn run_blocking_recovering<R>(
        self,
        body: impl FnOnce() -> R,
        recover: impl FnOnce(Lost, R) -> R,
    ) -> R {
        match self.finish_blocking(body) {
            (value, Some(lost)) => recover(lost, value),
            (value, None) => value,
        }
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
        self.level().around(pin!(work)).await
    }

    /// Runs the body that `place` holds. The place is emptied before the lock is given back, also
    /// when this future is dropped.
    pub(crate) async fn attend<F: Future>(self, place: Pin<&mut Option<F>>) -> Ended<F::Output> {
        let on_lost = self.on_lost();
        let mut place = Emptied(place);
        let value = {
            let body = self.level().around_some(place.0.as_mut());
            match on_lost {
                OnLost::Cancel => self.until_lost(body).await,
                OnLost::Error | OnLost::Finish => Ok(body.await),
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
        let on_lost = self.on_lost();
        let (value, lost) = self.finish_blocking(body);
        Ended::after(on_lost, value, lost)
    }

    fn finish_blocking<R>(self, body: impl FnOnce() -> R) -> (R, Option<Lost>) {
        let value = self.level().enter(body);
        let lost = self.held().remaining().err();
        if !self.is_joined() {
            self.log(self.held().release_blocking(), lost.as_ref());
        }
        (value, lost)
    }

    /// Polls `body` until it is done or the lock is lost; from then on it gets no further poll. The
    /// lease is looked at before every poll, because a process that stood still is first of all
    /// polled.
    async fn until_lost<F: Future>(&self, body: F) -> Result<F::Output, Lost> {
        let mut body = pin!(body);
        let mut lost = pin!(self.held().lost());
        poll_fn(|cx| {
            if let Err(lost) = self.held().remaining() {
                return Poll::Ready(Err(lost));
            }
            if let Poll::Ready(value) = body.as_mut().poll(cx) {
                return Poll::Ready(Ok(value));
            }
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
    fn log(&self, released: Result<bool, LockError>, lost: Option<&Lost>) {
        let (key, labels) = (self.key(), &self.held().claim().labels);
        match (released, lost) {
            (_, Some(lost)) => telemetry::lost(labels, lost),
            (Ok(true), None) => {}
            (Ok(false), None) => telemetry::released_late(labels, key),
            (Err(error), None) => telemetry::release_unconfirmed(labels, key, &error),
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

    pub(crate) fn skippable(self) -> R
    where
        R: SkipOutcome,
    {
        match self {
            Ended::Done(value) => value,
            Ended::Late(value, lost) => value.after_loss(lost.into()),
            Ended::Stopped(lost) => R::from_lock_error(lost.into()),
        }
    }
}

impl Scope {
    /// Runs `work` inside, from its first poll to its last.
    async fn around<F: Future>(self, mut work: Pin<&mut F>) -> F::Output {
        poll_fn(|cx| self.enter(|| work.as_mut().poll(cx))).await
    }

    /// The same for a place that may be emptied: then it never ends.
    async fn around_some<F: Future>(self, mut place: Pin<&mut Option<F>>) -> F::Output {
        match place.as_mut().as_pin_mut() {
            Some(work) => self.around(work).await,
            None => pending().await,
        }
    }
}

/// A place for a body that is emptied when it goes out of scope.
struct Emptied<'a, F>(Pin<&'a mut Option<F>>);

impl<F> Drop for Emptied<'_, F> {
    fn drop(&mut self) {
        self.0.set(None);
    }
}
