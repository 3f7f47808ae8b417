//! The bodies that run under locks, and what must be true of them: those under one key never
//! overlap, and their fences grow.
//!
//! No body relies on a lock for longer than the servers keep it. A body ends, as far as others are concerned, with the lease that its guard promises: a process
//! that is frozen may go on later only to find that out.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::processes::scenario::LONGEST_TTL;
use crate::processes::sim::sim;

#[derive(Default)]
pub(crate) struct Bodies {
    open: RefCell<BTreeMap<u64, Body>>,
    number: Cell<u64>,
    fences: RefCell<BTreeMap<usize, u64>>,
    /// Until when a server's loss of data excuses an overlap.
    excused_until: Cell<Duration>,
    /// The keys that are kept by a `min_hold`, and until when.
    kept: RefCell<BTreeMap<usize, Duration>>,
}

struct Body {
    process: usize,
    keys: Vec<usize>,
    /// Until when its process may rely on the lock, by the true clock.
    until: Duration,
}

impl Bodies {
    /// A body begins, whose lease lasts for `left`, by the clock of its process.
    pub(crate) fn enter(&self, keys: &[usize], left: Duration, fences: &[u64]) -> u64 {
        let number = self.number.replace(self.number.get() + 1);
        let process = sim().current().expect("a process").nth;
        let (now, kept) = (sim().now(), self.kept.borrow());
        let is_kept = |key: &&usize| kept.get(key).is_some_and(|until| now < *until);
        if let Some(key) = keys.iter().find(is_kept).filter(|_| now >= self.excused_until.get()) {
            sim().fails("min_hold", format_args!("body {number} begins too early under {key}"));
        }
        trace!("body {number} begins under {keys:?}, fences {fences:?}, lease {left:?}");
        let body = Body { process, keys: keys.to_vec(), until: Duration::ZERO };
        self.open.borrow_mut().insert(number, body);
        self.relies(number, left);
        for (key, fence) in keys.iter().zip(fences) {
            self.fence(*key, *fence);
        }
        number
    }

    /// A body finds that its lease lasts for `left`, and uses what the lock protects.
    pub(crate) fn relies(&self, number: u64, left: Duration) {
        let sim = sim();
        let process = sim.current().expect("a process");
        let (now, until) = (sim.now(), sim.now() + process.clock.truly(left));
        let mut open = self.open.borrow_mut();
        let Some(ours) = open.get_mut(&number) else { return };
        ours.until = until;
        let keys = ours.keys.clone();
        if left.is_zero() || now < self.excused_until.get() {
            return;
        }
        let overlaps = |body: &Body| body.until > now && body.keys.iter().any(|k| keys.contains(k));
        let other = open.iter().find(|(other, body)| **other != number && overlaps(body));
        if let Some((other, body)) = other {
            sim.fails(
                "exclusion",
                format_args!(
                    "body {number} of p{} and body {other} of p{} under {keys:?}, which p{} \
                     relies on for another {:?}",
                    process.nth,
                    body.process,
                    body.process,
                    body.until - now
                ),
            );
        }
        outlasts(process.nth, &keys, until);
    }

    /// A body has ended.
    pub(crate) fn leave(&self, number: u64) {
        if self.open.borrow_mut().remove(&number).is_some() {
            trace!("body {number} ends");
        }
    }

    /// The body that began at `began` has ended, and its key is kept for `min_hold` since its
    /// grant.
    pub(crate) fn keeps(&self, key: usize, began: Duration, min_hold: Duration) {
        let sim = sim();
        if sim.has_faults {
            // The grant may be much older than the body.
            return;
        }
        // The clocks of servers and processes may differ by a hundredth.
        let until = (began + min_hold.mul_f64(0.99)).saturating_sub(sim.network.longest_grant());
        self.kept.borrow_mut().insert(key, until);
    }

    /// The keys under which bodies run.
    pub(crate) fn keys(&self) -> BTreeSet<usize> {
        self.open.borrow().values().flat_map(|body| body.keys.iter().copied()).collect()
    }

    /// A process has died, and its bodies with it.
    pub(crate) fn died(&self, process: usize) {
        self.open.borrow_mut().retain(|_, body| body.process != process);
    }

    /// A server has lost data: until then two processes may rely on one lock.
    pub(crate) fn excuse(&self, until: Duration) {
        self.excused_until.set(until.max(self.excused_until.get()));
    }

    fn fence(&self, key: usize, fence: u64) {
        let sim = sim();
        let mut fences = self.fences.borrow_mut();
        let last = fences.entry(key).or_default();
        if fence <= *last && sim.now() >= self.excused_until.get() {
            sim.fails("fences", format_args!("{fence} under {key} after {last}"));
        }
        *last = fence.max(*last);
    }
}

/// Servers keep the locks of a process for as long as it relies on them, whether anybody else asks
/// for them or not. A server that has lost its data takes no part until they are over.
fn outlasts(process: usize, keys: &[usize], until: Duration) {
    let sim = sim();
    let (now, mut hosts) = (sim.now(), sim.network.hosts.borrow_mut());
    let majority = hosts.len() / 2 + 1;
    for key in keys {
        let keeps = hosts.iter_mut().filter_map(|host| {
            let is_young = host.forgot.is_some_and(|forgot| now < forgot + LONGEST_TTL);
            (is_young || host.keeps(process, *key, now, until)).then_some(())
        });
        let count = keeps.count();
        if count < majority {
            let left = until - now;
            sim.fails(
                "lease",
                format_args!("{count} servers keep {key} for p{process} for {left:?}"),
            );
        }
    }
}
