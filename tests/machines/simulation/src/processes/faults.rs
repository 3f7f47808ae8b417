//! What goes wrong, and when.

use std::time::Duration;

use fastrand::Rng;
use tokio::time::sleep;

use crate::processes::process::State;
use crate::processes::scenario::{Scenario, Store, ms, pick};
use crate::processes::sim::sim;
use crate::processes::work::{name_of, start};

/// A fault, or the end of one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Fault {
    /// Connections are cut. What is on its way to the server may still arrive.
    Cut { process: Option<usize>, host: Option<usize>, loses: bool },
    /// Connections lose all bytes to the server, to the client, or both, and stay open.
    HalfOpen { process: usize, host: usize, lost: (bool, bool) },
    /// Bytes are held back for a time.
    Block { process: usize, host: usize, time: Duration },
    /// The process is not scheduled for a time.
    Freeze { process: usize },
    /// It is scheduled again.
    Thaw { process: usize },
    /// The server is not scheduled for a time.
    FreezeHost { host: usize, time: Duration },
    /// The process dies, and perhaps another one starts. The server may not learn of it.
    Kill { process: usize, silent: bool, replaced: bool },
    /// The server ends.
    Stop { host: usize },
    /// A replica becomes the primary, and the one before ends or is cut off.
    Failover { to: usize, ends: bool },
    /// All servers are up again, and follow the primary.
    Rejoin,
    /// An operator deletes a lock.
    Delete { key: usize },
    /// The server has no room, and gives up the queue of a lock.
    Evict { key: usize },
    /// The server forgets all scripts.
    Flush { host: usize },
    /// The server refuses commands for a time because it reads its data.
    Load { host: usize, time: Duration },
    /// The server refuses writes for a time.
    ReadOnly { host: usize, time: Duration },
    /// The server starts again.
    Start { host: usize, keeps: bool },
}

/// Draws faults that are over at `calm`.
pub(crate) fn draw_faults(
    random: &mut Rng,
    store: Store,
    (processes, keys): (usize, usize),
    calm: Duration,
) -> Vec<(Duration, Fault)> {
    let mut faults = Vec::new();
    let mut replaced = 0;
    let first = u64::try_from(store.ready().as_millis()).expect("short");
    let last = u64::try_from(calm.as_millis()).expect("short");
    // Data of one server are lost in few simulations, as nothing is claimed then for a while.
    let may_lose = matches!(store, Store::Redlock(_)) || random.u8(..10) == 0;
    for _ in 0..random.usize(1..7) {
        let at = ms(random.u64(first..last));
        let (process, host) = (random.usize(..processes), random.usize(..store.hosts()));
        let time = ms(*pick(random, &[10, 60, 200, 600, 1_500, 4_000]));
        let over = (at + time).min(calm);
        if matches!(store, Store::Replicated { .. }) && random.u8(..3) == 0 {
            let (to, ends) = (random.usize(..2), random.bool());
            faults.push((at, Fault::Failover { to, ends }));
            faults.push((over, Fault::Rejoin));
            continue;
        }
        match random.u8(..17) {
            0..3 => {
                let process = random.bool().then_some(process);
                let host = (process.is_none() || random.bool()).then_some(host);
                faults.push((at, Fault::Cut { process, host, loses: random.bool() }));
            }
            3..5 => {
                let lost = *pick(random, &[(true, false), (false, true), (true, true)]);
                faults.push((at, Fault::HalfOpen { process, host, lost }));
            }
            5..8 => faults.push((at, Fault::Block { process, host, time })),
            8..11 => {
                faults.push((at, Fault::Freeze { process }));
                faults.push((over, Fault::Thaw { process }));
            }
            11..13 => faults.push((at, Fault::FreezeHost { host, time })),
            13..14 => {
                let is_replaced = replaced < 2 && random.bool();
                replaced += usize::from(is_replaced);
                let silent = random.bool();
                faults.push((at, Fault::Kill { process, silent, replaced: is_replaced }));
            }
            14..15 => faults.push((at, Fault::Delete { key: random.usize(..keys) })),
            _ => {
                let keeps = !may_lose || random.bool();
                faults.push((at, Fault::Stop { host }));
                faults.push((over, Fault::Start { host, keeps }));
            }
        }
    }
    faults.sort_by_key(|(at, _)| *at);
    faults
}

/// Draws what a single server may do, over at `calm`.
pub(crate) fn draw_refusals(
    random: &mut Rng,
    keys: usize,
    calm: Duration,
) -> Vec<(Duration, Fault)> {
    let last = u64::try_from(calm.as_millis()).expect("short");
    let fault = |random: &mut Rng| {
        let (host, time) = (0, ms(*pick(random, &[10, 60, 200, 600, 1_500])));
        match random.u8(..4) {
            0 => Fault::Evict { key: random.usize(..keys) },
            1 => Fault::Flush { host },
            2 => Fault::Load { host, time },
            _ => Fault::ReadOnly { host, time },
        }
    };
    (0..random.usize(1..4)).map(|_| (ms(random.u64(..last)), fault(random))).collect()
}

/// Lets the faults happen, and ends them all.
pub async fn run(scenario: &Scenario) {
    let mut successors = scenario.successors.iter();
    for (at, fault) in &scenario.faults {
        sleep(at.saturating_sub(sim().now())).await;
        trace!("{fault:?}");
        match *fault {
            Fault::Kill { process, replaced, .. } => {
                apply(scenario, *fault);
                if replaced && sim().process(process).state() == State::Dead {
                    successors.next().into_iter().for_each(|plan| start(scenario, plan));
                }
            }
            _ => apply(scenario, *fault),
        }
    }
    sleep(scenario.calm.saturating_sub(sim().now())).await;
    trace!("all faults are over");
    let sim = sim();
    for process in sim.processes() {
        process.thaw();
    }
    let hosts = sim.network.hosts.borrow().len();
    for host in 0..hosts {
        start_host(host, true);
        sim.network.hosts.borrow_mut()[host].frozen_until = Duration::ZERO;
    }
    sim.network.heal();
}

fn apply(scenario: &Scenario, fault: Fault) {
    let sim = sim();
    let network = &sim.network;
    match fault {
        Fault::Cut { process, host, loses } => network.cut(
            |link| {
                process.is_none_or(|process| process == link.process)
                    && host.is_none_or(|host| host == link.host)
            },
            loses,
        ),
        Fault::HalfOpen { process, host, lost } => {
            network.half_open(|link| link.process == process && link.host == host, lost);
        }
        Fault::Block { process, host, time } => {
            network.block(process, host, (sim.now() + time).min(scenario.calm));
        }
        Fault::Freeze { process } => sim.process(process).freeze(),
        Fault::Thaw { process } => sim.process(process).thaw(),
        Fault::FreezeHost { host, time } => {
            let until = (sim.now() + time).min(scenario.calm);
            let frozen = &mut network.hosts.borrow_mut()[host].frozen_until;
            *frozen = until.max(*frozen);
        }
        Fault::Kill { process, silent, .. } => {
            let killed = sim.process(process);
            if killed.is_over() {
                return;
            }
            killed.kill();
            sim.bodies.died(process);
            match silent {
                true => network.half_open(|link| link.process == process, (true, true)),
                false => network.cut(|link| link.process == process, false),
            }
            sim.changed();
        }
        Fault::Stop { host } => {
            network.hosts.borrow_mut()[host].down = true;
            network.end_all(host);
            network.leaves(host);
        }
        Fault::Failover { to, ends } => {
            if !network.fail_over(to, ends) {
                sim.bodies.lose();
            }
        }
        Fault::Rejoin => (0..scenario.hosts.len()).for_each(|host| start_host(host, true)),
        Fault::Delete { key } => {
            let (now, mut hosts) = (sim.now(), network.hosts.borrow_mut());
            let last_fence = hosts.iter_mut().filter_map(|host| host.last_fence(key, now)).max();
            hosts.iter_mut().for_each(|host| host.command(&["DEL", &name_of(key)], now));
            drop(hosts);
            sim.bodies.lose_key(key, last_fence.unwrap_or(0));
        }
        Fault::Evict { key } => {
            let (now, queue) = (sim.now(), format!("lm1:wq:{{{}}}", name_of(key)));
            let mut hosts = network.hosts.borrow_mut();
            hosts.iter_mut().for_each(|host| host.command(&["DEL", &queue], now));
            // The model knows of no waiters that are gone from the server.
            sim.traces.lose();
        }
        Fault::Flush { host } => {
            network.hosts.borrow_mut()[host].command(&["SCRIPT", "FLUSH"], sim.now());
        }
        Fault::Load { host, time } => {
            let until = (sim.now() + time).min(scenario.calm);
            network.hosts.borrow_mut()[host].loads_until = until;
        }
        Fault::ReadOnly { host, time } => {
            let until = (sim.now() + time).min(scenario.calm);
            network.hosts.borrow_mut()[host].reads_until = until;
        }
        Fault::Start { host, keeps } => {
            if !keeps && network.voters() == (host..host + 1) {
                // What was granted before may be relied on until its lease is over.
                sim.bodies.lose();
            }
            start_host(host, keeps);
        }
    }
}

fn start_host(host: usize, keeps: bool) {
    let sim = sim();
    let mut hosts = sim.network.hosts.borrow_mut();
    let host = &mut hosts[host];
    if std::mem::take(&mut host.down) {
        host.restart(sim.now(), keeps);
    }
    drop(hosts);
    sim.network.rejoin();
}
