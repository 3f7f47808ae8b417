//! The callers inside processes, and what must be true of them: a refusal was true at some moment
//! of its call, a wait ends in time, and callers of a process and key begin in the order of
//! arrival.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use lockmacro_runtime::LockError;

use crate::processes::call::{Call, Sharing, Wait};
use crate::processes::scenario::{Plan, ms};
use crate::processes::sim::sim;
use crate::processes::work::name_of;

/// How long a caller may take beside its wait and the time of a few answers.
const MORE: Duration = ms(500);
/// Longest time for which a caller is not polled whose body has begun.
const INSIDE_MAX: Duration = ms(2_500);
/// How long the lock of a call that is over may stay on a server, while nothing fails.
const RELEASED_MAX: Duration = ms(1_000);

#[derive(Default)]
pub(crate) struct Callers {
    /// The calls that are not over, by process and worker.
    open: RefCell<BTreeMap<(usize, usize), Caller>>,
    arrived: Cell<u64>,
    /// When a caller of a key was last polled before it was not for a while.
    slept: RefCell<BTreeMap<usize, Duration>>,
    /// When the last call of a key was over.
    last: RefCell<BTreeMap<usize, Duration>>,
}

struct Caller {
    number: u64,
    /// The number of its manager in its process.
    manager: usize,
    began: Duration,
    /// For how long its process was frozen before.
    frozen: Duration,
    /// For how long it was not polled.
    slept: Duration,
    keys: Vec<usize>,
    /// Its keys that somebody had, or waited for, at some moment of a call that does not wait.
    taken: BTreeSet<usize>,
    /// The longest time until its body begins, or the call is over.
    longest: Option<Duration>,
    waits: bool,
    /// When its wait is over.
    gives_up: Option<Duration>,
    /// Whether it keeps its place among the callers of its process.
    is_in_order: bool,
    is_inside: bool,
}

impl Callers {
    /// A worker of the current process makes a call.
    pub(crate) fn begins(&self, worker: usize, call: &Call, plan: &Plan) {
        let (sim, number) = (sim(), self.arrived.replace(self.arrived.get() + 1));
        let process = sim.current().expect("a process");
        self.are_free(&call.keys);
        // An attempt for each key may begin just before the end of the wait, and another one after
        // it.
        let attempts = 2 * u32::try_from(call.keys.len()).expect("few");
        let more = process.clock.truly(plan.timeout * attempts) + MORE;
        let longest = match call.wait {
            Wait::No => Some(more),
            Wait::For(wait) => Some(process.clock.truly(wait) + more),
            Wait::Forever => None,
        };
        let caller = Caller {
            number,
            manager: worker % plan.managers,
            began: sim.now(),
            frozen: process.frozen_for(),
            slept: Duration::ZERO,
            keys: call.keys.clone(),
            taken: BTreeSet::new(),
            longest,
            waits: call.wait != Wait::No,
            gives_up: match call.wait {
                Wait::For(wait) => Some(sim.now() + wait.mul_f64(0.99)),
                _ => None,
            },
            is_in_order: call.wait != Wait::No
                && call.keys.len() == 1
                && call.sharing == Sharing::Exclusive
                && !call.blocks
                && call.sleeps.is_none(),
            is_inside: false,
        };
        self.open.borrow_mut().insert((process.nth, worker), caller);
        self.look();
    }

    /// Called after every change of a server, and of the bodies: which keys somebody has.
    pub(crate) fn look(&self) {
        let (mut used, mut open) = (sim().bodies.keys(), self.open.borrow_mut());
        // Nobody overtakes those who wait.
        let waiting = open.values().filter(|caller| caller.waits && !caller.is_inside);
        used.extend(waiting.flat_map(|caller| caller.keys.iter().copied()));
        for Caller { keys, taken, .. } in open.values_mut().filter(|caller| !caller.waits) {
            let unknown = keys.iter().copied().filter(|key| !taken.contains(key));
            let found: Vec<_> =
                unknown.filter(|key| used.contains(key) || is_taken(*key)).collect();
            taken.extend(found);
        }
    }

    /// The caller is not polled for a time, which is returned: a shorter one where its release may
    /// be under way, which nobody else sends again.
    pub(crate) fn sleeps(&self, worker: usize, time: Duration) -> Duration {
        let process = sim().current().expect("a process").nth;
        let mut open = self.open.borrow_mut();
        let caller = open.get_mut(&(process, worker)).expect("it calls");
        let time = if caller.is_inside { time.min(INSIDE_MAX) } else { time };
        caller.slept += time;
        self.slept.borrow_mut().extend(caller.keys.iter().map(|key| (*key, sim().now())));
        time
    }

    /// Whether a caller of one of these keys has not been polled from some time after `began` on.
    pub(crate) fn slept_since(&self, keys: &[usize], began: Duration) -> bool {
        let slept = self.slept.borrow();
        keys.iter().any(|key| slept.get(key).is_some_and(|slept| *slept > began))
    }

    /// The body of a call begins.
    pub(crate) fn enters(&self, worker: usize) {
        let (sim, mut open) = (sim(), self.open.borrow_mut());
        let at = (sim.current().expect("a process").nth, worker);
        let Some(caller) = open.get_mut(&at) else { return };
        caller.is_inside = true;
        let (number, manager, keys) = (caller.number, caller.manager, caller.keys.clone());
        let is_in_order = caller.is_in_order && !sim.has_faults;
        caller.ends_in_time(at);
        let overtaken = open.iter().find(|((process, _), other)| {
            let is_waiting = other.gives_up.is_none_or(|at| sim.now() < at);
            let waits =
                other.is_in_order && !other.is_inside && is_waiting && other.number < number;
            let is_beside = *process == at.0 && other.manager == manager;
            is_beside && waits && other.keys == keys
        });
        if let Some(((process, other), _)) = overtaken.filter(|_| is_in_order) {
            sim.fails(
                "order",
                format_args!("p{process}.{worker} has overtaken p{process}.{other}"),
            );
        }
    }

    /// A call is over.
    pub(crate) fn ends(&self, worker: usize, call: &Call, failed: Option<&LockError>) {
        let sim = sim();
        let at = (sim.current().expect("a process").nth, worker);
        let Some(caller) = self.open.borrow_mut().remove(&at) else { return };
        let mut last = self.last.borrow_mut();
        last.extend(caller.keys.iter().map(|key| (*key, sim.now())));
        // A job is stored after its lock was found busy.
        if !caller.is_inside && !call.defers {
            caller.ends_in_time(at);
        }
        let is_sole = call.sharing == Sharing::Exclusive;
        if let Some(LockError::Busy { key, .. }) = failed.filter(|_| is_sole) {
            let was_taken = |nth: &usize| name_of(*nth) == key.as_str();
            if !caller.taken.iter().any(was_taken) {
                sim.fails("busy", format_args!("p{}.{worker}: nobody had {key}", at.0));
            }
        }
    }

    /// While nothing fails, a lock is free soon after its last call.
    fn are_free(&self, keys: &[usize]) {
        let (sim, open, last) = (sim(), self.open.borrow(), self.last.borrow());
        if sim.keeps_keys.get() || sim.has_faults {
            return;
        }
        let is_unused = |key: &usize| !open.values().any(|caller| caller.keys.contains(key));
        for key in keys.iter().filter(|key| is_unused(key)) {
            let since = last.get(key).copied().unwrap_or(Duration::MAX);
            if since.saturating_add(RELEASED_MAX) < sim.now() && is_taken(*key) {
                sim.fails("left", format_args!("{key} is held, and unused since {since:?}"));
            }
        }
    }
}

impl Caller {
    fn ends_in_time(&self, (process, worker): (usize, usize)) {
        let sim = sim();
        let frozen = sim.process(process).frozen_for() - self.frozen;
        let took = (sim.now() - self.began).saturating_sub(frozen + self.slept);
        if self.longest.is_some_and(|longest| took > longest) {
            sim.fails("late", format_args!("p{process}.{worker} has waited for {took:?}"));
        }
    }
}

/// Whether a server has the key of a lock.
fn is_taken(key: usize) -> bool {
    let sim = sim();
    let (now, mut hosts) = (sim.now(), sim.network.hosts.borrow_mut());
    hosts.iter_mut().any(|host| host.has(key, now))
}
