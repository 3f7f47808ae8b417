//! The lines of a manager, by key.

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::process;
use std::sync::{Arc, OnceLock, Weak};

use crate::engine::core::Core;
use crate::engine::line::{Begun, Line};
use crate::protocol::request::Request;
use crate::value::key::LockKey;
use crate::value::sync::{Mutex, MutexGuard};

/// Number of tables. Callers of different keys seldom meet at one mutex.
const TABLES: usize = 16;

type Table = HashMap<Box<str>, Arc<Line>>;

/// The lines with a holder, a question or waiters.
#[derive(Debug)]
pub(crate) struct Lines {
    core: Weak<Core>,
    tables: [Mutex<Table>; TABLES],
    hasher: std::hash::RandomState,
    process: u32,
    /// The lines of a process that was forked from this one: its parent's locks are not its own.
    forked: OnceLock<Box<Lines>>,
}

impl Lines {
    pub(crate) fn new(core: Weak<Core>) -> Self {
        let (tables, hasher, forked) = Default::default();
        Self { core, tables, hasher, process: process::id(), forked }
    }

    /// A caller comes to the line of its key.
    pub(crate) fn arrive(&self, mut request: Request) -> Begun {
        let here = self.here();
        loop {
            let line = here.line(&request.key);
            match line.arrive(request) {
                Begun::Closed(again) => request = again,
                begun => return begun,
            }
        }
    }

    /// Removes a line that is of no use any more.
    pub(crate) fn remove(&self, line: &Arc<Line>) {
        let mut table = self.here().table(line.key.as_str());
        line.close(|| {
            if table.get(line.key.as_str()).is_some_and(|found| Arc::ptr_eq(found, line)) {
                table.remove(line.key.as_str());
            }
        });
    }

    /// Makes every waiter look again.
    pub(crate) fn alarm(&self) {
        for table in &self.here().tables {
            let lines: Vec<_> = table.lock().values().cloned().collect();
            lines.iter().for_each(Line::alarm);
        }
    }

    fn line(&self, key: &LockKey) -> Arc<Line> {
        let mut table = self.table(key.as_str());
        if let Some(line) = table.get(key.as_str()) {
            return Arc::clone(line);
        }
        let line = Line::new(key.clone(), Weak::clone(&self.core));
        table.insert(key.as_str().into(), Arc::clone(&line));
        line
    }

    fn table(&self, key: &str) -> MutexGuard<'_, Table> {
        let hash = self.hasher.hash_one(key);
        self.tables[usize::from(hash as u8) % TABLES].lock()
    }

    fn here(&self) -> &Self {
        let mut here = self;
        while here.process != process::id() {
            let new = || Box::new(Self::new(Weak::clone(&here.core)));
            here = here.forked.get_or_init(new);
        }
        here
    }
}
