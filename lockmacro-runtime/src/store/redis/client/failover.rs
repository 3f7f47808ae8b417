//! Whether the server behind an address is still the one that granted the locks.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use redis::ConnectionAddr;

use crate::store::redis::client::health::Healths;
use crate::value::sync::Mutex;

/// The state that all connections of a manager to one address share.
#[derive(Default)]
pub(crate) struct Failover {
    /// Where the last connection leads.
    at: Mutex<Option<ConnectionAddr>>,
    /// Counts the servers that the address has led to.
    generation: AtomicU64,
    shared: Arc<Shared>,
}

/// The state that all connections of a manager share, to any node.
#[derive(Default)]
struct Shared {
    /// A connection was discarded, and none was opened since.
    broken: AtomicBool,
    /// It was logged that grants are not pushed.
    polls: AtomicBool,
    listener: OnceLock<Box<dyn Fn() + Send + Sync>>,
    healths: Healths,
}

impl fmt::Debug for Failover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Failover").field("at", &self.last()).finish_non_exhaustive()
    }
}

impl Failover {
    /// Calls `listener` after a connection was replaced, or leads to another server: locks granted
    /// before may be unknown there.
    ///
    /// The listener is called too often rather than too rarely: without further rights a user
    /// cannot recognize a server.
    pub(crate) fn on_change(&self, listener: impl Fn() + Send + Sync + 'static) {
        let _ = self.shared.listener.set(Box::new(listener));
    }

    /// The health of the manager's servers.
    pub(crate) fn healths(&self) -> &Healths {
        &self.shared.healths
    }

    /// Where the last connection leads.
    pub(crate) fn last(&self) -> Option<ConnectionAddr> {
        self.at.lock().clone()
    }

    /// The state for another node.
    pub(crate) fn for_node(&self) -> Arc<Self> {
        Arc::new(Self { shared: Arc::clone(&self.shared), ..Self::default() })
    }

    /// Reports that another server may have taken over.
    pub(crate) fn changed(&self) {
        if let Some(listener) = self.shared.listener.get() {
            listener();
        }
    }

    /// Logs once that the server cannot push grants.
    pub(crate) fn polls(&self, server: impl FnOnce() -> String) {
        if !self.shared.polls.swap(true, Ordering::Relaxed) {
            tracing::warn!(server = server(), "grants are not pushed: waiters poll");
        }
    }

    /// Notes that a connection is broken.
    pub(crate) fn broken(&self) {
        self.shared.broken.store(true, Ordering::SeqCst);
    }

    /// Notes a new connection, which is not used yet; returns its generation.
    pub(crate) fn opened(&self, at: &ConnectionAddr) -> u64 {
        let moved = {
            let mut last = self.at.lock();
            last.replace(at.clone()).is_some_and(|last| last != *at)
        };
        let generation =
            self.generation.fetch_add(u64::from(moved), Ordering::SeqCst) + u64::from(moved);
        if self.shared.broken.swap(false, Ordering::SeqCst) || moved {
            self.changed();
        }
        generation
    }

    /// Whether a connection of this generation leads to the same server as the last one.
    pub(crate) fn is_current(&self, generation: u64) -> bool {
        self.generation.load(Ordering::Relaxed) == generation
    }
}
