//! What happens in one simulation, drawn from its seed: processes, their calls, and faults.

use std::collections::BTreeSet;
use std::time::Duration;

use fastrand::Rng;

use crate::processes::call::{Call, Sharing, Wait};
use crate::processes::faults::{Fault, draw_faults, draw_refusals};
use crate::processes::process::Clock;
use crate::processes::sim::seeded;

pub(crate) const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// How much longer than its clock says a machine's second may be, and how much shorter.
const RATE: f64 = 0.005;

#[derive(Debug)]
pub(crate) struct Scenario {
    pub(crate) store: Store,
    /// The shortest and the longest delay of a message, in milliseconds.
    pub(crate) delay: (u64, u64),
    pub(crate) hosts: Vec<Clock>,
    pub(crate) processes: Vec<Plan>,
    /// The plans of processes that take the place of killed ones.
    pub(crate) successors: Vec<Plan>,
    pub(crate) faults: Vec<(Duration, Fault)>,
    /// When all faults are over.
    pub(crate) calm: Duration,
    /// Whether some calls share their keys.
    pub(crate) shares: bool,
    /// Whether some callers are not polled for a while.
    pub(crate) sleeps: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Store {
    /// One server.
    One,
    /// This number of nodes.
    Redlock(usize),
    /// A primary with replicas, this number of which have to acknowledge a lock.
    Replicated { replicas: usize, acks: usize },
}

impl Store {
    pub(crate) fn hosts(self) -> usize {
        match self {
            Store::One => 1,
            Store::Redlock(nodes) => nodes,
            Store::Replicated { replicas, .. } => replicas + 1,
        }
    }
}

/// The life of one process.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) clock: Clock,
    pub(crate) starts: Duration,
    pub(crate) turn: Option<Duration>,
    /// Of a call to the server.
    pub(crate) timeout: Duration,
    /// Whether it ends with a shutdown.
    pub(crate) shuts_down: bool,
    /// When its managers are shut down while it works.
    pub(crate) ends_early: Option<Duration>,
    /// Number of its managers, which its workers use in turn.
    pub(crate) managers: usize,
    pub(crate) workers: Vec<Vec<Call>>,
    /// Whether it runs jobs.
    pub(crate) works: bool,
    /// Whether it goes on until all jobs have run, and until when at least.
    pub(crate) lasts: bool,
    pub(crate) lasts_until: Duration,
}

/// The longest lease of any call, but for those that are released in any case.
pub(crate) const LONGEST_TTL: Duration = Duration::from_secs(6);
/// The lease of calls in simulations without faults.
const LONG_TTL: Duration = Duration::from_secs(300);

impl Scenario {
    pub(crate) fn draw(seed: u64) -> Self {
        let mut random = seeded(seed, "scenario");
        let random = &mut random;
        let store = match random.u8(..12) {
            0..7 => Store::One,
            7..9 => Store::Redlock(3),
            9 => Store::Redlock(5),
            _ => {
                let replicas = random.usize(1..3);
                Store::Replicated { replicas, acks: random.usize(1..=replicas) }
            }
        };
        let delay = *pick(random, &[(0, 0), (0, 1), (1, 1), (0, 3), (1, 8), (2, 20)]);
        let keys = *pick(random, &[1, 1, 2, 3]);
        let mut hosts: Vec<_> = (0..store.hosts()).map(|_| clock(random, 0)).collect();
        if let Store::Replicated { .. } = store {
            // The clocks of replicas have to be together.
            let first = hosts[0];
            hosts.fill(first);
        }
        let count = *pick(random, &[1, 2, 2, 3, 4]);
        let shortest = store.shortest_ttl(delay.1);
        let mut plan = || Plan::draw(random, store, keys, shortest);
        let mut processes: Vec<_> = (0..count).map(|_| plan()).collect();
        let mut successors: Vec<_> = (0..2).map(|_| plan()).collect();
        let calm = match random.u8(..4) {
            0 => Duration::ZERO,
            _ => store.ready() + ms(random.u64(500..6_000)),
        };
        let mut faults = match calm.is_zero() {
            true => Vec::new(),
            false => draw_faults(random, store, (count, keys), calm),
        };
        let mut of_refusals = seeded(seed, "refusals of a server");
        if store == Store::One && !calm.is_zero() && of_refusals.u8(..4) == 0 {
            faults.extend(draw_refusals(&mut of_refusals, keys, calm));
            faults.sort_by_key(|(at, _)| *at);
        }
        let mut of_defer = seeded(seed, "deferred calls");
        if store == Store::One && of_defer.u8(..6) == 0 {
            for plan in processes.iter_mut().chain(&mut successors) {
                plan.defers(&mut of_defer);
            }
            let mut last = Plan::draw(&mut of_defer, store, keys, shortest);
            last.workers.clear();
            (last.works, last.lasts, last.lasts_until) = (true, true, calm);
            processes.push(last);
        }
        let mut of_sharing = seeded(seed, "sharing");
        let shares = !matches!(store, Store::Redlock(_)) && of_sharing.u8(..4) == 0;
        if shares {
            let kind = *pick(&mut of_sharing, &[Sharing::Shared, Sharing::Permits(2)]);
            each_call(&mut processes, &mut successors, |call| {
                call.shares_keys(kind, &mut of_sharing)
            });
            if of_sharing.bool() {
                let plans = processes.iter_mut().chain(&mut successors);
                plans.for_each(|plan| plan.comes_together(&mut of_sharing));
            }
        }
        let mut of_blocking = seeded(seed, "blocking callers");
        if of_blocking.u8(..12) == 0 {
            each_call(&mut processes, &mut successors, |call| call.may_block(&mut of_blocking));
        }
        let mut of_sleep = seeded(seed, "callers that are not polled");
        let sleeps = of_sleep.u8(..6) == 0;
        if sleeps {
            each_call(&mut processes, &mut successors, |call| call.may_sleep(&mut of_sleep));
        }
        let mut of_managers = seeded(seed, "managers");
        for plan in processes.iter_mut().chain(&mut successors).filter(|plan| !plan.lasts) {
            plan.managers = 1 + usize::from(of_managers.u8(..10) == 0);
            let ends = plan.starts + ms(of_managers.u64(..3_000));
            plan.ends_early = (of_managers.u8(..12) == 0 && !plan.works).then_some(ends);
        }
        let mut of_long = seeded(seed, "long leases");
        if store == Store::One && faults.is_empty() && of_long.u8(..4) == 0 {
            each_call(&mut processes, &mut successors, |call| {
                call.ttl = if of_long.bool() { LONG_TTL } else { call.ttl }
            });
        }
        Self { store, delay, hosts, processes, successors, faults, calm, shares, sleeps }
    }

    /// How long a lock that is waited for may be held by no body, if nothing fails.
    pub(crate) fn longest_idle(&self) -> Duration {
        let idle = match self.store {
            Store::One | Store::Replicated { .. } => ms(1_000),
            // Its callers try again at random intervals.
            Store::Redlock(_) => ms(4_000),
        };
        // A caller that is not polled keeps its lock for an answer, 1.6 s, and until the next
        // sweep.
        let timeouts = self.processes.iter().map(|plan| plan.timeout);
        let asleep = timeouts.max().unwrap_or_default() / 3 + ms(2_700);
        if self.sleeps { idle + asleep } else { idle }
    }

    /// The keys that a call may keep without a body: together with others, or for a `min_hold`.
    pub(crate) fn keys_without_bodies(&self) -> BTreeSet<usize> {
        let calls = self.processes.iter().flat_map(|plan| plan.workers.iter().flatten());
        let calls = calls.filter(|call| call.keys.len() > 1 || call.min_hold.is_some());
        calls.flat_map(|call| call.keys.iter().copied()).collect()
    }

    /// Whether keys stay for a while after a release.
    pub(crate) fn keeps_keys(&self) -> bool {
        let mut calls = self.processes.iter().flat_map(|plan| plan.workers.iter().flatten());
        calls.any(|call| call.min_hold.is_some())
    }

    /// When all calls have to be over: when each of them has waited for all the others.
    pub(crate) fn limit(&self) -> Duration {
        let calls = self.processes.iter().chain(&self.successors);
        let calls = calls.flat_map(|plan| plan.workers.iter().flatten());
        let each = calls.map(|call| call.body + call.ttl + call.pause + ms(6_000));
        let last = self.processes.iter().any(|plan| plan.lasts);
        // A job that fails is tried again after minutes.
        let more = if last { ms(2_000_000) } else { ms(60_000) };
        self.calm + each.sum::<Duration>() + more
    }
}

impl Store {
    /// The shortest ttl that can be granted on such a network: a node of a Redlock is given a tenth
    /// of it to answer.
    fn shortest_ttl(self, delay: u64) -> Duration {
        let round_trip = ms(2 * delay + 2);
        match self {
            Store::One => round_trip * 10,
            Store::Redlock(_) => round_trip * 12,
            // Replicas have a quarter of it to acknowledge.
            Store::Replicated { .. } => round_trip * 20,
        }
    }

    /// When its servers serve locks.
    pub(crate) fn ready(self) -> Duration {
        match self {
            Store::One | Store::Replicated { .. } => Duration::ZERO,
            // A node votes only when every lock that it may have forgotten is over.
            Store::Redlock(_) => LONGEST_TTL + ms(2_000),
        }
    }
}

impl Plan {
    fn draw(random: &mut Rng, store: Store, keys: usize, shortest: Duration) -> Self {
        let turn = match random.u8(..6) {
            0 => Some(Duration::ZERO),
            1 => Some(ms(random.u64(1..300))),
            2 => Some(ms(random.u64(300..=1_000))),
            _ => None,
        };
        let workers = (0..*pick(random, &[1, 1, 2, 3, 5]))
            .map(|_| (0..random.usize(1..5)).map(|_| Call::draw(random, keys, shortest)).collect())
            .collect();
        Self {
            clock: clock(random, 1_000_000),
            starts: store.ready() + ms(random.u64(..300)),
            turn,
            timeout: ms(*pick(random, &[400, 1_000, 2_000])).max(shortest * 3),
            shuts_down: random.bool(),
            ends_early: None,
            managers: 1,
            workers,
            works: false,
            lasts: false,
            lasts_until: Duration::ZERO,
        }
    }

    /// Lets its calls that share a key ask for it together.
    fn comes_together(&mut self, random: &mut Rng) {
        let mut calls: Vec<_> = self.workers.iter_mut().flatten().collect();
        let ttl = calls.first().map_or(LONGEST_TTL, |call| call.ttl);
        for call in calls.iter_mut().filter(|call| call.sharing == Sharing::Shared) {
            (call.keys, call.ttl, call.fenced) = (vec![0], ttl, false);
            call.body = call.body.min(ttl * 2);
            call.pause = ms(*pick(random, &[0, 0, 0, 1, 20]));
        }
    }

    /// Lets it run jobs, or not, and store its own ones.
    fn defers(&mut self, random: &mut Rng) {
        self.works = random.bool();
        for call in self.workers.iter_mut().flatten().filter(|call| call.keys.len() == 1) {
            call.defers = random.bool();
            if call.defers {
                call.wait = *pick(random, &[Wait::No, Wait::No, Wait::For(ms(20))]);
            }
        }
    }
}

pub(crate) fn pick<'a, T>(random: &mut Rng, of: &'a [T]) -> &'a T {
    &of[random.usize(..of.len())]
}

fn each_call(processes: &mut [Plan], successors: &mut [Plan], change: impl FnMut(&mut Call)) {
    let plans = processes.iter_mut().chain(successors);
    plans.flat_map(|plan| plan.workers.iter_mut().flatten()).for_each(change);
}

fn clock(random: &mut Rng, latest: u64) -> Clock {
    let rate = match random.u8(..4) {
        0 => 1.0 - RATE,
        1 => 1.0 + RATE,
        2 => 1.0,
        _ => 1.0 - RATE + 2.0 * RATE * random.f64(),
    };
    Clock { start: ms(random.u64(..=latest)), rate }
}
