//! Whether the server behind an address is still the one that granted our locks.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use redis::ConnectionAddr;

use crate::store::redis::client::health::Healths;
use crate::value::sync::Mutex;

/// What all connections of a manager to one address have in common.
#[derive(Default)]
pub(crate) struct Failover {
    /// Where the last connection leads.
    at: Mutex<Option<ConnectionAddr>>,
    /// Counts the places that it has led to.
    generation: AtomicU64,
    shared: Arc<Shared>,
}

/// What all connections of a manager have in common, to whichever node.
#[derive(Default)]
struct Shared {
    /// A connection was given up, and none was opened since.
    broken: AtomicBool,
    listener: OnceLock<Box<dyn Fn() + Send + Sync>>,
    healths: Healths,
}

impl Failover {
    /// Has `tell` called after a connection was replaced, or leads elsewhere: what was granted
    /// before may be forgotten there. It is told too often rather than not, as a server says
    /// nothing by which it could be known again to a user without further rights.
    pub(crate) fn on_change(&self, listener: impl Fn() + Send + Sync + 'static) {
        let _ = self.shared.listener.set(Box::new(listener));
    }

    /// How the servers of the manager do.
    pub(crate) fn healths(&self) -> &Healths {
        &self.shared.healths
    }

    /// Where the last connection leads.
    pub(crate) fn last(&self) -> Option<ConnectionAddr> {
        self.at.lock().clone()
    }

    /// The same for another node.
    pub(crate) fn for_node(&self) -> Arc<Self> {
        Arc::new(Self { shared: Arc::clone(&self.shared), ..Self::default() })
    }

    /// Takes note that another node has what one had.
    pub(crate) fn changed(&self) {
        if let Some(listener) = self.shared.listener.get() {
            listener();
        }
    }

    /// Takes note that a connection is of no more use.
    pub(crate) fn broken(&self) {
        self.shared.broken.store(true, Ordering::SeqCst);
    }

    /// Takes note of a new connection, which is not used yet; gives the number of its place.
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

    /// Whether the last connection leads to another server than this one.
    pub(crate) fn leads_elsewhere(&self, at: &ConnectionAddr) -> bool {
        let last = self.at.lock();
        last.as_ref().is_some_and(|last| last != at)
    }

    /// Whether a connection to that place leads where the last one does.
    pub(crate) fn is_current(&self, generation: u64) -> bool {
        self.generation.load(Ordering::Relaxed) == generation
    }
}
