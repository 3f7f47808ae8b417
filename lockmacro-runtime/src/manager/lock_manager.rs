//! The manager: the source of all locks of a program.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::engine::core::Core;
use crate::engine::current;
use crate::engine::manager::Manager;
use crate::store::handle::Store;
use crate::store::memory::Memory;
use crate::value::error::LockError;

/// A connection to the store of locks. Clones are the same manager and cost next to nothing.
///
/// A program connects one when it starts, and installs it for all annotated functions:
///
/// ```
/// use std::time::Duration;
/// use lockmacro_runtime::{LockError, LockManager};
///
/// #[tokio::main]
/// async fn main() -> Result<(), LockError> {
///     let locks = LockManager::connect("memory://").await?; // or "redis://…"
///     locks.install()?;
///     // … the program …
///     locks.shutdown(Duration::from_secs(5)).await
/// }
/// ```
///
/// A manager opens at most two connections to a server: one is shared by all callers and made on
/// the runtime that needs it first; the other belongs to the background thread. In a cluster this
/// holds for each node. Acknowledgements by [replicas](crate::guide::redis#replicated) add up to 16
/// connections to each of the two.
#[derive(Clone)]
pub struct LockManager(pub(crate) Arc<Manager>);

impl LockManager {
    /// Checks that the servers answer and that the user has the rights that locks need, for a
    /// readiness probe or after a [`lazy`](crate::LockManagerBuilder::lazy) start.
    ///
    /// It takes two round trips. A server that is a replica is refused, unless sentinels or a
    /// cluster name the primary. Of a Redlock, a majority has to answer. A server that fails or
    /// does not answer is asked again until the manager's
    /// [timeout](crate::LockManagerBuilder::timeout) is over.
    ///
    /// ```
    /// # use lockmacro_runtime::LockManager;
    /// async fn readiness(locks: LockManager) -> u16 {
    ///     if locks.ready().await.is_ok() { 200 } else { 503 }
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`connect`](LockManager::connect); [`LockError::ShutDown`]; [`LockError::NoRuntime`]
    /// outside of tokio.
    ///
    /// # Cancellation
    /// Dropping the future has no effect.
    pub async fn ready(&self) -> Result<(), LockError> {
        self.0.core.ready().await
    }

    /// Makes this manager the one of every lock without a manager of its own, for the rest of the
    /// process.
    ///
    /// ```
    /// # use lockmacro_runtime::{Lock, LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// LockManager::connect("memory://").await?.install()?; // or "redis://…"
    /// let guard = Lock::new("order:42").acquire().await?; // of the installed manager
    /// # guard.release().await }
    /// ```
    ///
    /// # Errors
    /// [`LockError::InvalidSetting`] when another manager is installed. That one stays, because
    /// the locks of two managers may not exclude each other. Installing the same manager again
    /// succeeds.
    pub fn install(&self) -> Result<(), LockError> {
        self.0.install()
    }

    /// Returns the manager of a lock without one of its own: that of the innermost
    /// [scope](LockManager::scope) around the call, or else the installed one.
    ///
    /// ```
    /// # use lockmacro_runtime::{LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// assert!(matches!(LockManager::current(), Err(LockError::NotInstalled { .. })));
    /// let body = async { assert!(LockManager::current().is_ok()) };
    /// LockManager::isolated_memory().scope(body).await;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`LockError::NotInstalled`] when there is none.
    pub fn current() -> Result<Self, LockError> {
        current::manager().map(Self)
    }

    /// Closes the manager: no lock can be acquired any more. Waits until all held locks are
    /// released, up to `timeout`.
    ///
    /// Call it at the end of `main`, so that dropped locks are released before the process ends. If
    /// an abandoned request may still arrive at the server, the background thread stays for up to
    /// 7.5 s to release its lock.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use lockmacro_runtime::{Lock, LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// # let locks = LockManager::isolated_memory();
    /// let guard = Lock::new("order:42").manager(&locks).acquire().await?;
    /// drop(guard); // released in the background
    /// locks.shutdown(Duration::from_secs(5)).await?;
    /// let late = Lock::new("order:42").manager(&locks).acquire().await;
    /// assert_eq!(late.err(), Some(LockError::ShutDown { held: 0 }));
    /// # Ok(()) }
    /// ```
    ///
    /// On SIGTERM, take no more work first:
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use lockmacro_runtime::LockManager;
    /// use tokio::signal::unix::{SignalKind, signal};
    ///
    /// # async fn serve() {}
    /// # async fn run(locks: LockManager) -> Result<(), Box<dyn std::error::Error>> {
    /// let mut terminated = signal(SignalKind::terminate())?;
    /// tokio::select! {
    ///     () = serve() => {}
    ///     _ = terminated.recv() => {}
    /// }
    /// locks.shutdown(Duration::from_secs(20)).await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`LockError::ShutDown`] when locks are still held after `timeout`. They end with
    /// their bodies, or by their leases. [`LockError::NoRuntime`] outside of tokio; the manager is
    /// not closed then.
    ///
    /// # Cancellation
    /// Dropping the future leaves the manager closed. The bodies and releases that it waited for go
    /// on.
    pub async fn shutdown(&self, timeout: Duration) -> Result<(), LockError> {
        self.0.shut_down(timeout).await
    }

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
    /// let locks = LockManager::isolated_memory();
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
        current::around(Some(Arc::clone(&self.0)), work)
    }

    /// Runs `work` as [`scope`](LockManager::scope) does, in code that is not async. The scope
    /// covers this thread while `work` runs.
    ///
    /// ```
    /// # use lockmacro_runtime::{Lock, LockError, LockManager};
    /// # fn main() -> Result<(), LockError> {
    /// let locks = LockManager::isolated_memory();
    /// let guard = locks.scope_blocking(|| Lock::new("order:42").acquire_blocking())?;
    /// guard.release_blocking()
    /// # }
    /// ```
    pub fn scope_blocking<R>(&self, work: impl FnOnce() -> R) -> R {
        current::enter(Some(&self.0), work)
    }

    /// Makes a manager that grants every lock at once and excludes nobody, for a test or a tool
    /// that runs annotated functions where locks do not matter.
    ///
    /// Bodies run under guards as usual: locks are renewed, can be joined, and end with their ttl;
    /// fences grow. No lock is ever busy, so no call waits, is skipped or is deferred. A WARN is
    /// logged when the manager is made.
    ///
    /// ```
    /// # use lockmacro_runtime::{Lock, LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// let locks = LockManager::disabled();
    /// let lock = Lock::new("order:42").fenced().manager(&locks);
    /// let one = lock.acquire().await?;
    /// let other = lock.acquire().await?;
    /// assert!(one.is_held() && other.is_held() && one.fence() < other.fence());
    /// # one.release().await?;
    /// # other.release().await }
    /// ```
    pub fn disabled() -> Self {
        tracing::warn!("locks are disabled: this manager grants every lock and excludes nobody");
        Self::builder().with(Store::of(Memory::disabled()))
    }

    /// The state that all locks of this manager share.
    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.0.core
    }
}

impl fmt::Debug for LockManager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
