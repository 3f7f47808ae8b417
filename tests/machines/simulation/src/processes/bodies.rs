//! The bodies that run under locks, and what must be true of them: those under one key never
//! overlap, their fences grow, and none relies on a lock for longer than the servers keep it.
//!
//! A body ends, as far as others are concerned, with the lease that its guard promises: a process
//! that is frozen may go on later only to find that out.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::processes::call::{Call, Sharing};
use crate::processes::scenario::LONGEST_TTL;
use crate::processes::sim::sim;

#[derive(Default)]
pub(crate) struct Bodies {
    open: RefCell<BTreeMap<u64, Body>>,
    number: Cell<u64>,
    /// The fences under each key, and whether they are of exclusive bodies.
    fences: RefCell<BTreeMap<usize, BTreeMap<u64, bool>>>,
    /// When the last lease of a worker that has ended its body was over, by process and worker.
    last_leases: RefCell<BTreeMap<(usize, usize), Duration>>,
    losses: RefCell<Vec<Loss>>,
    /// The keys that are kept by a `min_hold`, and until when.
    kept: RefCell<BTreeMap<usize, Duration>>,
}

/// Locks that are gone from servers, though processes may rely on them.
struct Loss {
    at: Duration,
    /// The only key that is gone, and the last fence that had been granted under it.
    key: Option<(usize, u64)>,
}

struct Body {
    process: usize,
    worker: usize,
    began: Duration,
    keys: Vec<usize>,
    sharing: Sharing,
    /// The ttl of its call, by the true clock.
    ttl: Duration,
    /// Until when its process may rely on the lock, by the true clock.
    until: Duration,
}

impl Bodies {
    /// The body of a call begins, whose lease lasts for `left`, by the clock of its process.
    pub(crate) fn enter(&self, worker: usize, call: &Call, left: Duration, fences: &[u64]) -> u64 {
        let (number, keys) = (self.number.replace(self.number.get() + 1), &call.keys);
        let process = sim().current().expect("a process");
        let (now, kept) = (sim().now(), self.kept.borrow());
        let is_kept = |key: &&usize| kept.get(key).is_some_and(|until| now < *until);
        if let Some(key) = keys.iter().find(is_kept) {
            sim().fails("min_hold", format_args!("body {number} begins too early under {key}"));
        }
        trace!("body {number} begins under {keys:?}, fences {fences:?}, lease {left:?}");
        let (ttl, until) = (process.clock.truly(call.ttl), Duration::ZERO);
        let (process, keys) = (process.nth, keys.clone());
        let sharing = call.sharing;
        let body = Body { process, worker, began: now, keys: keys.clone(), sharing, ttl, until };
        self.open.borrow_mut().insert(number, body);
        for (nth, key) in keys.iter().enumerate() {
            sim().traces.began(number, *key, fences.get(nth).copied());
        }
        self.relies(number, left);
        for (key, fence) in keys.iter().zip(fences) {
            self.fence(*key, *fence, sharing == Sharing::Exclusive);
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
        sim.traces.relies(number, until);
        let ours = &open[&number];
        if left.is_zero() {
            return;
        }
        let overlaps = |key: &usize| {
            let others = open.iter().filter(|(other, body)| {
                **other != number && body.until > now && body.keys.contains(key)
            });
            let others: Vec<_> = others.collect();
            let exclusive = others.iter().find(|(_, body)| body.sharing == Sharing::Exclusive);
            let too_many = match ours.sharing {
                Sharing::Exclusive => others.first(),
                Sharing::Shared => None,
                Sharing::Permits(permits) => others.get(permits as usize - 1),
            };
            exclusive.or(too_many).copied()
        };
        let keys = ours.keys.iter().filter(|key| !self.is_excused(**key, now));
        if let Some((key, (other, body))) =
            keys.filter_map(|key| Some((key, overlaps(key)?))).next()
        {
            let (other_process, left) = (body.process, body.until - now);
            sim.fails(
                "exclusion",
                format_args!(
                    "body {number} of p{} and body {other} of p{other_process} under {key}, which \
                     p{other_process} relies on for another {left:?}",
                    process.nth,
                ),
            );
        }
        for key in &ours.keys {
            self.outlasts(ours, *key);
        }
    }

    /// Servers keep a lock for as long as a body relies on it, whether anybody else asks for it or
    /// not.
    fn outlasts(&self, body: &Body, key: usize) {
        let sim = sim();
        let (now, voters) = (sim.now(), sim.network.voters());
        let voters = &mut sim.network.hosts.borrow_mut()[voters];
        let majority = voters.len() / 2 + 1;
        let keeps = voters.iter_mut().map(|host| {
            // A node that has lost its data takes no part until all that it had is over.
            let is_young = host.forgot.is_some_and(|forgot| now < forgot + LONGEST_TTL);
            is_young && majority > 1 || host.keeps(body.process, key, now, body.until)
        });
        let count = keeps.filter(|keeps| *keeps).count();
        // A lease of before a loss goes on. A later one has to be kept: as of a body that began
        // earlier, and was renewed later.
        let is_of_before = |loss: &Loss| {
            let ttl = if body.began < loss.at { body.ttl } else { LONGEST_TTL };
            loss.is_of(key) && body.until <= loss.at + ttl.mul_f64(1.01)
        };
        if count < majority && !self.losses.borrow().iter().any(is_of_before) {
            let (process, left) = (body.process, body.until - now);
            sim.fails(
                "lease",
                format_args!("{count} servers keep {key} for p{process} for {left:?}"),
            );
        }
    }

    /// A body has ended.
    pub(crate) fn leave(&self, number: u64) {
        if let Some(body) = self.open.borrow_mut().remove(&number) {
            self.last_leases.borrow_mut().insert((body.process, body.worker), body.until);
            sim().traces.ended(number);
            trace!("body {number} ends");
        }
    }

    /// Until when the last body of a worker of this process could rely on its lock.
    pub(crate) fn last_lease(&self, worker: usize) -> Duration {
        let process = sim().current().expect("a process").nth;
        self.last_leases.borrow().get(&(process, worker)).copied().unwrap_or_default()
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
        self.open.borrow_mut().retain(|number, body| {
            if body.process == process {
                sim().traces.ended(*number);
            }
            body.process != process
        });
    }

    /// All locks are gone. For a while two processes may rely on one.
    pub(crate) fn lose(&self) {
        self.losses.borrow_mut().push(Loss { at: sim().now(), key: None });
        sim().traces.lose();
        sim().deferred.lose();
    }

    /// The lock of one key is gone, whose last fence this was.
    pub(crate) fn lose_key(&self, key: usize, last_fence: u64) {
        self.losses.borrow_mut().push(Loss { at: sim().now(), key: Some((key, last_fence)) });
        sim().traces.lose();
    }

    /// Whether a lock that is gone excuses an overlap.
    fn is_excused(&self, key: usize, now: Duration) -> bool {
        let excuses = |loss: &Loss| loss.is_of(key) && now < loss.at + LONGEST_TTL * 2;
        self.losses.borrow().iter().any(excuses)
    }

    /// Bodies that share a key begin in another order than they were granted, so their fences are
    /// only larger than those of the exclusive bodies before them.
    fn fence(&self, key: usize, fence: u64, is_exclusive: bool) {
        let sim = sim();
        let mut fences = self.fences.borrow_mut();
        let fences = fences.entry(key).or_default();
        // A grant of before the loss of a key may arrive after those that came later. No fence is
        // granted twice because of such a loss.
        let is_new = !fences.contains_key(&fence);
        let excuses = |loss: &Loss| {
            let is_recent = sim.now() < loss.at + LONGEST_TTL * 2;
            let is_older = |(lost, last)| lost == key && fence <= last && is_new;
            is_recent && loss.key.is_none_or(is_older)
        };
        let later = |(other, exclusive): (&u64, &bool)| {
            let matters = is_exclusive || *exclusive || *other == fence;
            (matters && *other >= fence).then_some(*other)
        };
        if let Some(last) = fences.iter().rev().find_map(later)
            && !self.losses.borrow().iter().any(excuses)
        {
            sim.fails("fences", format_args!("{fence} under {key} after {last}"));
        }
        fences.insert(fence, is_exclusive);
    }
}

impl Loss {
    fn is_of(&self, key: usize) -> bool {
        self.key.is_none_or(|(lost, _)| lost == key)
    }
}
