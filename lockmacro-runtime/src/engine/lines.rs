//! The lines of a manager, by key. The table does not know the type of a line: lines use the
//! manager, and the manager has the table.

use std::any::Any;
use std::fmt::Debug;
use std::hash::BuildHasher;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::value::random::{HashMap, Hashing};
use crate::value::sync::{Mutex, MutexGuard};

/// Number of tables. Callers of different keys seldom contend for the same mutex.
const TABLES: usize = 16;
/// Unused lines are kept for later callers up to this number of lines. The first ones are kept.
const KEPT: usize = 2_048;

/// The line of a key.
pub(crate) trait KeyLine: Any + Debug + Send + Sync {
    /// Wakes every waiter.
    fn alarm(self: Arc<Self>);

    /// The line is removed from the table: new callers need another line.
    #[cfg(feature = "test-util")]
    fn removed(&self);

    /// The store has forgotten the lock: the holder has lost the lock, and every waiter is woken.
    #[cfg(feature = "test-util")]
    fn forget_holder(self: Arc<Self>);
}

type Table = HashMap<Box<str>, Arc<dyn KeyLine>>;

/// The lines with a holder, a request in flight or waiters, and some unused ones.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    tables: [Mutex<Table>; TABLES],
    count: AtomicUsize,
    hasher: Hashing,
}

impl Lines {
    /// The line of a key, which is made if there is none.
    pub(crate) fn of<L: KeyLine>(&self, key: &str, new: impl FnOnce() -> Arc<L>) -> Arc<L> {
        let mut table = self.table(key);
        if let Some(line) = table.get(key) {
            let line: Arc<dyn Any + Send + Sync> = Arc::clone(line) as _;
            if let Ok(line) = line.downcast() {
                return line;
            }
        }
        let line = new();
        table.insert(key.into(), Arc::clone(&line) as _);
        self.count.fetch_add(1, Ordering::Relaxed);
        line
    }

    /// Removes an unused line if there are many, and `is_closed` returns true. It is called while
    /// the table is locked.
    pub(crate) fn unused<L: KeyLine>(
        &self,
        key: &str,
        line: &Arc<L>,
        is_closed: impl FnOnce() -> bool,
    ) {
        if self.count.load(Ordering::Relaxed) <= KEPT {
            return;
        }
        let mut table = self.table(key);
        let is_line = |other: &Arc<_>| ptr::addr_eq(Arc::as_ptr(other), Arc::as_ptr(line));
        if table.get(key).is_some_and(is_line) && is_closed() {
            table.remove(key);
            self.count.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Wakes every waiter.
    pub(crate) fn alarm(&self) {
        for table in &self.tables {
            let lines: Vec<_> = table.lock().values().cloned().collect();
            lines.into_iter().for_each(KeyLine::alarm);
        }
    }

    /// Replaces all lines by new ones. The store has forgotten all locks.
    #[cfg(feature = "test-util")]
    pub(crate) fn reset(&self) {
        for table in &self.tables {
            let mut table = table.lock();
            let lines: Vec<_> = table.drain().map(|(_, line)| line).collect();
            self.count.fetch_sub(lines.len(), Ordering::Relaxed);
            lines.iter().for_each(|line| line.removed());
            drop(table);
            lines.into_iter().for_each(KeyLine::forget_holder);
        }
    }

    fn table(&self, key: &str) -> MutexGuard<'_, Table> {
        let hash = self.hasher.hash_one(key);
        self.tables[usize::from(hash as u8) % TABLES].lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Unused;

    impl KeyLine for Unused {
        fn alarm(self: Arc<Self>) {}

        #[cfg(feature = "test-util")]
        fn removed(&self) {}

        #[cfg(feature = "test-util")]
        fn forget_holder(self: Arc<Self>) {}
    }

    #[test]
    fn a_line_is_used_again_and_many_unused_lines_are_not_kept() {
        let lines = Lines::default();
        let of = |nth: usize| lines.of(&nth.to_string(), || Arc::new(Unused));
        let first = of(0);
        lines.unused("0", &first, || panic!("there is one line"));
        assert!(Arc::ptr_eq(&first, &of(0)));
        let kept =
            |lines: &Lines| -> usize { lines.tables.iter().map(|table| table.lock().len()).sum() };
        for nth in 0..3 * KEPT {
            let line = of(nth);
            lines.unused(&nth.to_string(), &line, || true);
        }
        assert_eq!((kept(&lines), lines.count.load(Ordering::Relaxed)), (KEPT, KEPT));
    }
}
