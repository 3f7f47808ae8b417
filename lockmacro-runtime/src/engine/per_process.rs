//! The store of each process: a forked process gets connections of its own.

use std::process;
use std::sync::{Arc, OnceLock};

use crate::store::dispatch::Store;

/// The store of one process, and of the processes that were forked from it.
#[derive(Debug)]
pub(crate) struct PerProcess {
    process: u32,
    store: Arc<Store>,
    /// The store of a process that was forked from this one. Set only in that process.
    forked: OnceLock<Box<PerProcess>>,
}

impl PerProcess {
    pub(crate) fn new(store: Store) -> Self {
        Self { process: process::id(), store: Arc::new(store), forked: OnceLock::new() }
    }

    /// The store of this process. Does not check for a fork.
    pub(crate) fn store(&self) -> &Arc<Store> {
        &self.here().store
    }

    /// Checks for a fork. Returns whether this process was forked. The parent's store is kept, as
    /// dropping it would close connections that the parent uses.
    pub(crate) fn check_fork(&self) -> bool {
        let here = self.here();
        if here.process != process::id() {
            here.forked.get_or_init(|| Box::new(Self::new(here.store.apart())));
        }
        self.forked.get().is_some()
    }

    /// The id of this process. Does not check for a fork, as that is a call of the system.
    pub(crate) fn process(&self) -> u32 {
        self.here().process
    }

    fn here(&self) -> &Self {
        let mut here = self;
        while let Some(forked) = here.forked.get() {
            here = forked;
        }
        here
    }
}
