//! A lock, a guard or a lock with reuse, and what its caller gets when it is busy or lost: for
//! expansions of the attribute, whose functions may return more than a `Result`.

use crate::engine::acquire::options::WaitMode;
use crate::guard::LockGuard;
use crate::lock::Lock;
use crate::run::driver::{Run, Start};
use crate::run_policy::{MapErr, Recovering, Report, Returnable, RunPolicy, Skip};
use crate::value::error::LockError;
use crate::value::loss::Lost;

/// A lock with a policy. It is made by the hidden methods of [`Lock`], [`LockGuard`] and
/// `ReusingLock`.
#[derive(Debug, Clone)]
#[must_use = "a lock does nothing until it is run"]
pub struct WithPolicy<S, W = Report, H = ()> {
    pub(crate) start: S,
    pub(crate) policy: RunPolicy<W, H>,
}

impl<S> WithPolicy<S> {
    pub(crate) fn new(start: S) -> Self {
        Self { start, policy: RunPolicy::default() }
    }
}

impl<S, H> WithPolicy<S, Report, H> {
    /// Skips the body when somebody else holds the lock. The caller then gets the "nothing" of the
    /// return type, a [`SkipOutcome`](crate::SkipOutcome). A lock that is not held yet is waited
    /// for only if its own `wait` says so.
    pub fn skip_when_busy(self) -> WithPolicy<S, Skip, H> {
        let policy = RunPolicy { errors: Skip, recover: self.policy.recover };
        WithPolicy { start: self.start, policy }
    }
}

impl<S, W, H> WithPolicy<S, W, H> {
    /// Calls `recover` with the loss and the body's value when the lock was lost while the body
    /// ran, which always runs to its end. The caller gets the function's value. It is not called
    /// when the lock is lost before the body has started, nor when the future is dropped.
    pub fn recovering<R, F>(self, recover: F) -> WithPolicy<S, W, Recovering<F>>
    where
        F: FnOnce(Lost, R) -> R,
    {
        let policy = RunPolicy { errors: self.policy.errors, recover: Recovering(recover) };
        WithPolicy { start: self.start, policy }
    }

    /// Converts each [`LockError`] to the body's error type, which is not `From<LockError>`.
    pub fn map_err<E, M>(self, map: M) -> WithPolicy<S, MapErr<W, M>, H>
    where
        M: FnOnce(LockError) -> E,
    {
        let RunPolicy { errors, recover } = self.policy;
        let policy = RunPolicy { errors: MapErr::new(map, errors), recover };
        WithPolicy { start: self.start, policy }
    }
}

impl<W, H> WithPolicy<Lock, W, H> {
    /// As [`Lock::run`].
    ///
    /// # Panics
    /// The future of a lock that is skipped panics when the return type cannot carry an error, and
    /// there is no manager or no tokio runtime.
    pub fn run<B>(self, body: B) -> impl Future<Output = B::Output>
    where
        B: Future<Output: Returnable<RunPolicy<W, H>>>,
    {
        Run::new(Start::Lock(self.start.spec, WaitMode::AsSet), self.policy, body)
    }

    /// As [`Lock::run_blocking`].
    ///
    /// # Panics
    /// As the future of [`run`](Self::run), and on the thread of a current-thread runtime if the
    /// return type cannot carry that error.
    pub fn run_blocking<R: Returnable<RunPolicy<W, H>>>(self, body: impl FnOnce() -> R) -> R {
        Start::Lock(self.start.spec, WaitMode::AsSet).run_blocking(self.policy, body)
    }
}

impl<W, H> WithPolicy<LockGuard, W, H> {
    /// As [`LockGuard::run`].
    pub fn run<B>(self, body: B) -> impl Future<Output = B::Output>
    where
        B: Future<Output: Returnable<RunPolicy<W, H>>>,
    {
        Run::new(Start::Guard(self.start.lock), self.policy, body)
    }

    /// As [`LockGuard::run_blocking`].
    pub fn run_blocking<R: Returnable<RunPolicy<W, H>>>(self, body: impl FnOnce() -> R) -> R {
        Start::Guard(self.start.lock).run_blocking(self.policy, body)
    }
}

/// The methods that begin a policy, for expansions.
macro_rules! with_policy {
    ($($start:ty),*) => {$(
        impl $start {
            #[doc(hidden)]
            pub fn skip_when_busy(self) -> WithPolicy<Self, Skip> {
                WithPolicy::new(self).skip_when_busy()
            }

            #[doc(hidden)]
            pub fn recovering<R, F>(self, recover: F) -> WithPolicy<Self, Report, Recovering<F>>
            where
                F: FnOnce(Lost, R) -> R,
            {
                WithPolicy::new(self).recovering(recover)
            }

            #[doc(hidden)]
            pub fn map_err<E, M>(self, map: M) -> WithPolicy<Self, MapErr<Report, M>>
            where
                M: FnOnce(LockError) -> E,
            {
                WithPolicy::new(self).map_err(map)
            }
        }
    )*};
}

#[cfg(feature = "reuse")]
pub(crate) use with_policy;

with_policy!(Lock, LockGuard);
