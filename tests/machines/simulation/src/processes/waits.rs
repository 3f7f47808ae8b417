//! The callers that wait for a lock, and what must be true while nothing fails: a lock that
//! somebody waits for is not left idle.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::processes::sim::sim;

#[derive(Default)]
pub(crate) struct Waits {
    /// The longest time without a body under a key that is waited for; `None` for no limit.
    longest: Cell<Option<Duration>>,
    /// Keys that may be held without a body.
    exempt: RefCell<BTreeSet<usize>>,
    /// The keys that workers of processes wait for.
    waiting: RefCell<BTreeMap<(usize, usize), usize>>,
    idle_since: RefCell<BTreeMap<usize, Duration>>,
}

impl Waits {
    /// From now on no key but these may be idle for longer than this.
    pub(crate) fn limit(&self, longest: Duration, exempt: BTreeSet<usize>) {
        self.longest.set(Some(longest));
        self.exempt.replace(exempt);
    }

    /// A worker of the current process waits for a key.
    pub(crate) fn begins(&self, worker: usize, key: usize) {
        let process = sim().current().expect("a process").nth;
        self.check();
        self.waiting.borrow_mut().insert((process, worker), key);
        self.check();
    }

    /// It has the lock, or has given up.
    pub(crate) fn ends(&self, worker: usize) {
        let process = sim().current().expect("a process").nth;
        self.check();
        self.waiting.borrow_mut().remove(&(process, worker));
        self.check();
    }

    /// Called before and after every change.
    pub(crate) fn check(&self) {
        let Some(longest) = self.longest.get() else { return };
        let sim = sim();
        let (now, held, exempt) = (sim.now(), sim.bodies.keys(), self.exempt.borrow());
        let waited: BTreeSet<_> = self.waiting.borrow().values().copied().collect();
        let mut idle_since = self.idle_since.borrow_mut();
        for (key, since) in &*idle_since {
            if now - *since > longest {
                sim.fails("idle", format_args!("nobody has {key} since {since:?}"));
            }
        }
        let is_idle = |key: &usize| waited.contains(key) && !held.contains(key);
        idle_since.retain(|key, _| is_idle(key));
        for key in waited.iter().filter(|key| is_idle(key) && !exempt.contains(key)) {
            idle_since.entry(*key).or_insert(now);
        }
    }
}
