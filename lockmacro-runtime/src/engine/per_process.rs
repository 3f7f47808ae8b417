//! The store as this process asks it: a process that was forked has connections of its own.

use std::process;
use std::sync::{Arc, OnceLock};

use crate::store::dispatch::Store;

/// The store of one process, and of those that were forked from it.
#[derive(Debug)]
pub(crate) struct PerProcess {
    process: u32,
    store: Arc<Store>,
    /// That of the process that this one was forked to be.
    forked: OnceLock<Box<PerProcess>>,
}

impl PerProcess {
    pub(crate) fn new(store: Store) -> Self {
        Self { process: process::id(), store: Arc::new(store), forked: OnceLock::new() }
    }

    /// The store of this process, as far as the fork was noticed.
    pub(crate) fn store(&self) -> &Arc<Store> {
        &self.here().store
    }

    /// Notices a fork; tells whether this process was forked. The other process goes on to use its
    /// connections, which are not to be ended here.
    pub(crate) fn is_forked(&self) -> bool {
        let here = self.here();
        if here.process != process::id() {
            here.forked.get_or_init(|| Box::new(Self::new(here.store.apart())));
        }
        self.forked.get().is_some()
    }

    fn here(&self) -> &Self {
        let mut here = self;
        while let Some(forked) = here.forked.get() {
            here = forked;
        }
        here
    }
}
