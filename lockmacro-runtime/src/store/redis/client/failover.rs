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
    moves: AtomicU64,
    all: Arc<All>,
}

/// What all connections of a manager have in common, to whichever node.
#[derive(Default)]
struct All {
    /// A connection was given up, and none was opened since.
    broken: AtomicBool,
    told: OnceLock<Box<dyn Fn() + Send + Sync>>,
    healths: Healths,
}

impl Failover {
    /// Has `tell` called after a connection was replaced, or leads elsewhere: what was granted
    /// before may be forgotten there. It is told too often rather than not, as a server says
    /// nothing by which it could be known again to a user without further rights.
    pub(crate) fn tell(&self, tell: impl Fn() + Send + Sync + 'static) {
        let _ = self.all.told.set(Box::new(tell));
    }

    /// How the servers of the manager do.
    pub(crate) fn healths(&self) -> &Healths {
        &self.all.healths
    }

    /// Where the last connection leads.
    pub(crate) fn last(&self) -> Option<ConnectionAddr> {
        self.at.lock().clone()
    }

    /// The same for another node.
    pub(crate) fn elsewhere(&self) -> Arc<Self> {
        Arc::new(Self { all: Arc::clone(&self.all), ..Self::default() })
    }

    /// Takes note that another node has what one had.
    pub(crate) fn moved(&self) {
        if let Some(tell) = self.all.told.get() {
            tell();
        }
    }

    /// Takes note that a connection is of no more use.
    pub(crate) fn broke(&self) {
        self.all.broken.store(true, Ordering::SeqCst);
    }

    /// Takes note of a new connection, which is not used yet; gives the number of its place.
    pub(crate) fn opened(&self, at: &ConnectionAddr) -> u64 {
        let moved = {
            let mut last = self.at.lock();
            last.replace(at.clone()).is_some_and(|last| last != *at)
        };
        let moves = self.moves.fetch_add(u64::from(moved), Ordering::SeqCst) + u64::from(moved);
        if self.all.broken.swap(false, Ordering::SeqCst) || moved {
            self.moved();
        }
        moves
    }

    /// Whether the last connection leads to another server than this one.
    pub(crate) fn led_elsewhere(&self, at: &ConnectionAddr) -> bool {
        let last = self.at.lock();
        last.as_ref().is_some_and(|last| last != at)
    }

    /// Whether a connection to that place leads where the last one does.
    pub(crate) fn is_there(&self, moves: u64) -> bool {
        self.moves.load(Ordering::Relaxed) == moves
    }
}
