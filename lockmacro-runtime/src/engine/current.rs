//! Which manager a lock has that names none: that of its task, before the installed one.

use std::future::poll_fn;
use std::pin::pin;

use tokio::task::{Id, try_id};

use crate::manager::core::LockManager;

tokio::task_local! {
    /// The innermost one, and the task that it is for. A task that is polled from within another
    /// one's poll, as in a `LocalSet`, is outside.
    static CURRENT: (LockManager, Option<Id>);
}

impl LockManager {
    /// Runs `work` with this manager for every lock that names none, before the
    /// [installed](LockManager::install) one: so tests of functions that use the installed manager
    /// run side by side, each with locks of its own.
    ///
    /// It is for the task that polls the future, and for what a body inside hands on by
    /// [`LockGuard::scope`](crate::LockGuard::scope) or gives a
    /// `defer::Worker` to run. What `tokio::spawn` starts is outside: spawn
    /// `locks.scope(work)`. Inside of another scope the inner one holds.
    ///
    /// # Cancellation
    /// Dropping the future drops `work`. Nothing is left of the scope then, nor after a panic.
    ///
    #[cfg_attr(feature = "macros", doc = "```")]
    #[cfg_attr(not(feature = "macros"), doc = "```ignore")]
    /// use lockmacro_runtime::{Lock, LockError, LockManager, distributed_lock};
    ///
    /// #[distributed_lock(key = "order:<id>", ttl = "300s")]
    /// async fn audit_order(id: u64) -> Result<u64, LockError> {
    ///     Ok(id)
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// let locks = LockManager::memory();
    /// locks.scope(async {
    ///     let held = Lock::new("order:42").acquire().await?;
    ///     assert!(audit_order(42).await.is_err_and(|error| error.is_busy()));
    ///     held.release().await?;
    ///     assert_eq!(audit_order(42).await, Ok(42));
    ///     Ok(())
    /// })
    /// .await
    /// # }
    /// ```
    pub fn scope<F: Future>(&self, work: F) -> impl Future<Output = F::Output> + use<F> {
        Current(Some(self.clone())).around(work)
    }

    /// [`scope`](LockManager::scope) for code that is not async: it is for this thread while `work`
    /// runs.
    ///
    /// ```
    /// # use lockmacro_runtime::{Lock, LockError, LockManager};
    /// # fn main() -> Result<(), LockError> {
    /// let locks = LockManager::memory();
    /// let guard = locks.scope_blocking(|| Lock::new("order:42").acquire_blocking())?;
    /// guard.release_blocking()
    /// # }
    /// ```
    pub fn scope_blocking<R>(&self, work: impl FnOnce() -> R) -> R {
        Current(Some(self.clone())).enter(work)
    }
}

/// The manager of the code that runs right now, if it is in a scope.
#[derive(Debug, Clone)]
pub(crate) struct Current(Option<LockManager>);

impl Current {
    pub(crate) fn here() -> Self {
        let current = CURRENT.try_with(Clone::clone).ok();
        Self(current.filter(|(_, task)| *task == try_id()).map(|(manager, _)| manager))
    }

    pub(crate) fn manager(self) -> Option<LockManager> {
        self.0
    }

    /// The one here, or else this one.
    pub(crate) fn unless_here(&self) -> Self {
        Self(Self::here().0.or_else(|| self.0.clone()))
    }

    /// Runs `work` with it, from its first poll to its last, in whichever task that is.
    pub(crate) async fn around<F: Future>(self, work: F) -> F::Output {
        let mut work = pin!(work);
        poll_fn(|cx| self.enter(|| work.as_mut().poll(cx))).await
    }

    pub(crate) fn enter<R>(&self, work: impl FnOnce() -> R) -> R {
        match &self.0 {
            Some(manager) => CURRENT.sync_scope((manager.clone(), try_id()), work),
            None => work(),
        }
    }
}
