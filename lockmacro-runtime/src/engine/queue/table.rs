//! The key queues of a manager, by key.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

use crate::engine::core::Core;
use crate::engine::queue::shared_queue::SharedQueue;
use crate::engine::thread::timers::{Enrolled, Over, Timed};
use crate::store::handle::Store;
use crate::sys::random::HashMap;
use crate::sys::sync::Mutex;
use crate::sys::time::Moment;
use crate::value::key::LockKey;

/// Number of tables. Callers of different keys seldom contend for the same mutex.
const TABLES: usize = 16;
/// Unused queues are kept for later callers up to this number in each table.
const KEPT: usize = 128;
/// Interval at which all queues are told the time, for callers that ask alone and are not polled.
const SWEEP: Duration = Duration::from_secs(1);

/// The queues that are used, and some unused ones.
#[derive(Debug, Default)]
pub(crate) struct Queues {
    tables: [Mutex<QueueTable>; TABLES],
    /// A caller came since the last sweep.
    is_used: AtomicBool,
    /// The sweep, which ends after one before which no caller has come and in which nothing is due.
    sweep: Mutex<Option<Enrolled>>,
}

#[derive(Debug, Default)]
struct QueueTable {
    queues: HashMap<Box<str>, Arc<SharedQueue>>,
    /// The number of queues left by the last look for unused ones.
    left: usize,
}

impl Queues {
    /// The queue of a key, which is made if there is none.
    pub(crate) fn of(self: &Arc<Self>, key: &LockKey, core: &Arc<Core>) -> Arc<SharedQueue> {
        // Read first: a write by every caller would take the cache line from the other threads.
        if !self.is_used.load(Ordering::Relaxed) {
            self.is_used.store(true, Ordering::Relaxed);
            self.plan(core);
        }
        let sum = key.as_str().bytes().fold(0, u8::wrapping_add);
        let mut table = self.tables[usize::from(sum) % TABLES].lock();
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

    /// Plans a sweep, unless there is one. A store in memory answers at once: no caller asks for
    /// long there.
    fn plan(self: &Arc<Self>, core: &Core) {
        let mut sweep = self.sweep.lock();
        if sweep.is_none() && !core.store.facts.answer_time().is_zero() {
            let queues = Arc::downgrade(self) as _;
            let now = Moment::now();
            // Fails where there is no thread, and then no caller waits in a queue either.
            let planned = core.background.watch(queues, now, Some(now.after(SWEEP)));
            *sweep = planned.ok().flatten();
        }
    }

    /// The manager is shut down: every waiter is sent away.
    pub(crate) fn close(&self) {
        self.all().for_each(|queue| queue.close());
    }

    fn all(&self) -> impl Iterator<Item = Arc<SharedQueue>> {
        let all =
            |table: &Mutex<QueueTable>| table.lock().queues.values().cloned().collect::<Vec<_>>();
        self.tables.iter().flat_map(all)
    }
}

impl Timed for Queues {
    fn run<'a>(self: Arc<Self>, _: &'a Store, over: &'a Over<'a>) -> BoxFuture<'a, ()> {
        async move {
            // Before the queues are told the time: a caller that comes meanwhile keeps the sweep.
            let mut goes_on = self.is_used.swap(false, Ordering::Relaxed);
            self.all().for_each(|queue| goes_on |= queue.time());
            let mut sweep = self.sweep.lock();
            // Under the mutex that `plan` takes, so that a caller who comes after this plans
            // another sweep.
            if goes_on || self.is_used.load(Ordering::Relaxed) {
                over(Some(Moment::now().after(SWEEP)))
            } else {
                *sweep = None
            }
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::handle::Store;
    use crate::store::memory::Memory;
    use crate::value::defaults::Defaults;

    fn core() -> Arc<Core> {
        let store = Store::of(Memory::new());
        let defaults = Defaults::default();
        Core::over(store, None, defaults, Default::default())
    }

    #[test]
    fn a_queue_is_used_again_and_many_unused_queues_are_not_kept() {
        let queues = Arc::new(Queues::default());
        let core = core();
        let of = |nth: usize| queues.of(&nth.to_string().into(), &core);
        let used: Vec<_> = (0..4 * KEPT).map(of).collect();
        (0..100 * KEPT).for_each(|nth| drop(of(nth)));
        used.iter().enumerate().for_each(|(nth, queue)| assert!(Arc::ptr_eq(queue, &of(nth))));
        let kept: usize = queues.tables.iter().map(|table| table.lock().queues.len()).sum();
        assert!(kept <= 2 * used.len() + TABLES * (KEPT + 1), "{kept}");
    }
}
