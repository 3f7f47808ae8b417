//! A manager for the locks of one task.

use crate::engine::current::Current;
use crate::manager::lock_manager::LockManager;

impl LockManager {
    /// Runs `work` with this manager for every lock without a manager of its own, in place of the
    /// [installed](LockManager::install) one. So tests of functions that use the installed manager
    /// can run side by side, each with its own locks.
    ///
    /// The scope covers the task that polls the future, tasks that run under a lock of that task by
    /// [`LockGuard::scope`](crate::LockGuard::scope), and the calls of a `defer::Worker` that runs
    /// in it. It does not cover a task from `tokio::spawn`: spawn `locks.scope(work)` there. Inside
    /// of another scope the inner one applies.
    ///
    /// # Cancellation
    /// Dropping the future drops `work` and ends the scope. So does a panic of `work`.
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
        Current::of(self.core()).around(work)
    }

    /// Runs `work` as [`scope`](LockManager::scope) does, in code that is not async. The scope
    /// covers this thread while `work` runs.
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
        Current::of(self.core()).enter(work)
    }
}
