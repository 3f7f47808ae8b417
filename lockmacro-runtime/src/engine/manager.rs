//! A manager: what its locks share, and the key queues of its callers.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::engine::core::{Core, inside_runtime};
use crate::engine::queue::shared_queue::SharedQueue;
use crate::engine::queue::table::Queues;
use crate::value::error::LockError;
use crate::value::key::LockKey;

/// The manager of locks that name none.
static INSTALLED: OnceLock<Arc<Manager>> = OnceLock::new();

/// A manager of locks.
pub(crate) struct Manager {
    pub(crate) core: Arc<Core>,
    queues: Arc<Queues>,
}

impl Manager {
    pub(crate) fn new(core: Arc<Core>) -> Arc<Self> {
        Arc::new(Self { core, queues: Arc::default() })
    }

    /// The manager that was installed.
    ///
    /// # Errors
    /// [`LockError::NotInstalled`] when there is none.
    pub(crate) fn installed() -> Result<Arc<Self>, LockError> {
        INSTALLED.get().cloned().ok_or(LockError::NOT_INSTALLED)
    }

    /// Makes this the installed manager, unless another one is.
    ///
    /// # Errors
    /// [`LockError::InvalidSetting`].
    pub(crate) fn install(self: &Arc<Self>) -> Result<(), LockError> {
        let installed = INSTALLED.get_or_init(|| Arc::clone(self));
        if Arc::ptr_eq(self, installed) { Ok(()) } else { Err(LockError::installed_already()) }
    }

    /// The queue of this process for a key.
    pub(crate) fn queue(&self, key: &LockKey) -> Arc<SharedQueue> {
        self.queues.of(key, &self.core)
    }

    /// Shuts the manager down, and waits until no lock is held or in flight.
    pub(crate) async fn shut_down(&self, timeout: Duration) -> Result<(), LockError> {
        inside_runtime()?;
        let core = &self.core;
        // First: whoever looks at the lock after this is refused, so nobody enters a queue behind
        // the alarm.
        core.shutdown.close();
        // A woken waiter notices the shutdown.
        core.store.alarm();
        core.background.store.alarm();
        self.queues.close();
        let empty = tokio::time::timeout(timeout, core.in_flight.empty()).await;
        let held = core.in_flight.count();
        if empty.is_err() && held > 0 {
            return Err(LockError::ShutDown { held });
        }
        // Only now, as the last releases have needed the connections.
        core.store.backend.close();
        core.background.store.backend.close();
        core.background.stop();
        Ok(())
    }
}

impl fmt::Debug for Manager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.core.fmt(f)
    }
}
