//! Where locks come from: a server, and how this process shows itself there.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::engine::core::Core;
use crate::engine::current::Current;
#[cfg(feature = "defer")]
use crate::jobs::deferrer::Deferrer;
use crate::value::error::LockError;

/// A connection to where locks are kept. Clones are the same manager and cost next to nothing.
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
/// A manager needs at most two connections to a server: one shared by all callers, made on the
/// runtime that first asks, and one of its background thread. Where the server refuses HELLO, each
/// has another one beside it from the first waiter on. In a cluster it is so for each node. With
/// [`replicated`](crate::LockManagerBuilder::replicated) each has up to 16 more.
#[derive(Clone)]
pub struct LockManager(pub(crate) Arc<Core>);

impl LockManager {
    /// Asks the servers whether they are there and let this manager do what locks need: for a
    /// readiness probe, and after a [`lazy`](crate::LockManagerBuilder::lazy) start. One round trip; of a
    /// Redlock a majority has to answer. A server in trouble is given the manager's
    /// [timeout](crate::LockManagerBuilder::timeout).
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
    /// Nothing is lost by dropping the future.
    pub async fn ready(&self) -> Result<(), LockError> {
        self.0.ready().await
    }

    /// Makes this the manager of every lock that is given none, for the rest of the process.
    ///
    /// # Errors
    /// [`LockError::AlreadyInstalled`] when another manager is: the first one stays, because the
    /// locks of two managers may not exclude each other. Installing the same one again is fine.
    pub fn install(&self) -> Result<(), LockError> {
        self.0.install()
    }

    /// The manager of a lock that names none: that of the innermost [scope](LockManager::scope)
    /// around the call, or else the installed one.
    ///
    /// # Errors
    /// [`LockError::NotInstalled`] when there is none.
    pub fn installed() -> Result<Self, LockError> {
        Current::manager_here().map(Self)
    }

    /// Ends the manager: no lock is given any more, and those that are out are waited for, up to
    /// `timeout`. Call it last thing in `main`, so that what was dropped is released before the
    /// process ends. Where a request was given up that may still arrive, the background thread
    /// stays to look once more, for up to 6 s.
    ///
    /// # Errors
    /// [`LockError::ShutdownTimeout`] when locks are still held then. They end with their bodies,
    /// or by their leases. [`LockError::NoRuntime`] outside of tokio, and then nothing is done.
    ///
    /// # Cancellation
    /// Dropping the future leaves the manager closed, and what it would have waited for goes on.
    pub async fn shutdown(&self, timeout: Duration) -> Result<(), LockError> {
        self.0.shut_down(timeout).await
    }

    /// Where deferred calls are kept: to store some, to look at them, and to have dead letters tried
    /// again.
    #[cfg(feature = "defer")]
    pub fn deferrer(&self) -> Arc<dyn Deferrer> {
        self.0.deferrer()
    }

    /// What its locks share.
    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.0
    }
}

impl fmt::Debug for LockManager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
