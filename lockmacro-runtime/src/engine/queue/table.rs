//! The key queues of a manager, by key.

use std::hash::BuildHasher;
use std::sync::Arc;

use crate::engine::core::Core;
use crate::engine::queue::shared_queue::SharedQueue;
use crate::value::key::LockKey;
use crate::value::random::{HashMap, Hashing};
use crate::value::sync::Mutex;

/// Number of tables. Callers of different keys seldom contend for the same mutex.
const TABLES: usize = 16;
/// Unused queues are kept for later callers up to this number in each table.
const KEPT: usize = 128;

/// The queues that are used, and some unused ones.
#[derive(Debug, Default)]
pub(crate) struct Queues {
    tables: [Mutex<Table>; TABLES],
    hasher: Hashing,
}

#[derive(Debug, Default)]
struct Table {
    queues: HashMap<Box<str>, Arc<SharedQueue>>,
    /// The number of queues left by the last look for unused ones.
    left: usize,
}

impl Queues {
    /// The queue of a key, which is made if there is none.
    pub(crate) fn of(&self, key: &LockKey, core: &Arc<Core>) -> Arc<SharedQueue> {
        let hash = self.hasher.hash_one(key.as_str());
        let mut table = self.tables[usize::from(hash as u8) % TABLES].lock();
        if let Some(queue) = table.queues.get(key.as_str()) {
            return Arc::clone(queue);
        }
        if table.queues.len() >= 2 * table.left + KEPT {
            // Everybody who uses a queue has a reference to it.
            table.queues.retain(|_, queue| Arc::strong_count(queue) > 1);
            table.left = table.queues.len();
        }
        let queue = SharedQueue::new(key.clone(), Arc::clone(core));
        table.queues.insert(key.as_str().into(), Arc::clone(&queue));
        queue
    }

    /// The manager is shut down: every waiter is sent away.
    pub(crate) fn close(&self) {
        for table in &self.tables {
            let queues: Vec<_> = table.lock().queues.values().cloned().collect();
            queues.iter().for_each(|queue| queue.closes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::dispatch::Store;
    use crate::store::memory::Memory;
    use crate::value::defaults::Defaults;

    fn core() -> Arc<Core> {
        let (store, defaults) = (Store::Memory(Memory::new()), Defaults::default());
        #[cfg(feature = "defer")]
        let core = Core::over(store, None, defaults, None, 1_024);
        #[cfg(not(feature = "defer"))]
        let core = Core::over(store, None, defaults);
        core
    }

    #[test]
    fn a_queue_is_used_again_and_many_unused_queues_are_not_kept() {
        let (queues, core) = (Queues::default(), core());
        let of = |nth: usize| queues.of(&nth.to_string().into(), &core);
        let used: Vec<_> = (0..4 * KEPT).map(of).collect();
        (0..100 * KEPT).for_each(|nth| drop(of(nth)));
        used.iter().enumerate().for_each(|(nth, queue)| assert!(Arc::ptr_eq(queue, &of(nth))));
        let kept: usize = queues.tables.iter().map(|table| table.lock().queues.len()).sum();
        assert!(kept <= 2 * used.len() + TABLES * (KEPT + 1), "{kept}");
    }
}
