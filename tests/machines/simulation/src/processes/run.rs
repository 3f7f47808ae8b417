//! One simulation, from its seed to its end.

use std::cell::RefCell;
use std::panic;
use std::sync::{Arc, Once};
use std::time::Duration;

use lockmacro_runtime::simulation::enter;
use tokio::runtime::Builder;
use tokio::time::{sleep, timeout};

use crate::processes::faults;
use crate::processes::host::Host;
use crate::processes::network::Network;
use crate::processes::parts::Part;
use crate::processes::process::State;
use crate::processes::replay;
use crate::processes::replicas::Replicas;
use crate::processes::scenario::{Scenario, Store};
use crate::processes::sim::{Failure, Sim, is_running, seeded, set, sim};
use crate::processes::watchdog::watch;
use crate::processes::work::start;
use crate::processes::world::OfProcess;

/// How long the traces of killed processes may stay on a server: the longest is that of a waiter.
const LEFT_MAX: Duration = Duration::from_secs(60);

/// How long a lock may stay on a server after the last call: a dropped one is released in the
/// background.
const RELEASED_MAX: Duration = Duration::from_secs(1);

/// What one simulation showed.
#[derive(Debug)]
pub struct Outcome {
    /// What went wrong first.
    pub failure: Option<Failure>,
    /// All that happened, if it was asked for.
    pub trace: Option<String>,
    /// How often tasks were polled.
    pub polls: u64,
}

thread_local! {
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Runs the simulation of a seed.
pub fn run(seed: u64, traced: bool) -> Outcome {
    run_without(seed, &[], traced)
}

/// Runs it without some parts of its scenario.
pub fn run_without(seed: u64, without: &[Part], traced: bool) -> Outcome {
    watch_panics();
    PANIC.take();
    let _watched = watch(seed);
    let mut scenario = Scenario::draw(seed);
    scenario.leave_out(without);
    let runtime = Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime of one thread");
    let _inside = runtime.enter();
    let hosts = scenario.hosts.iter().enumerate();
    let hosts = hosts.map(|(nth, clock)| Host::new(nth, *clock)).collect();
    let replicas = match scenario.store {
        Store::Replicated { replicas, acks } => Replicas::new(replicas + 1, acks),
        _ => Replicas::default(),
    };
    let network = Network::new(hosts, seeded(seed, "network"), scenario.delay, replicas);
    let sim_here = Sim::new(seed, network, !scenario.faults.is_empty(), traced);
    set(Some(sim_here.clone()));
    sim_here.keeps_keys.set(scenario.keeps_keys());
    sim_here.sleeps.set(scenario.sleeps);
    if scenario.faults.is_empty() {
        sim_here.waits.limit(scenario.longest_idle(), scenario.keys_without_bodies());
    }
    let world = enter(Arc::new(OfProcess));
    trace!("{scenario:#?}");
    if scenario.shares {
        // The model whose traces are replayed has exclusive locks only.
        sim_here.traces.lose();
    } else if replay::is_on() && !matches!(scenario.store, Store::Replicated { .. }) {
        let mut hosts = sim_here.network.hosts.borrow_mut();
        hosts.iter_mut().for_each(|host| host.server.watch());
    }
    sim_here.network.rejoin();
    runtime.block_on(all(&scenario));
    let outcome = Outcome {
        failure: sim_here.failure(),
        trace: sim_here.take_trace(),
        polls: sim_here.polls(),
    };
    drop(_inside);
    // The tasks of killed processes end here, and what they do then counts no more.
    drop(runtime);
    drop(world);
    set(None);
    outcome
}

async fn all(scenario: &Scenario) {
    let delivery = async { sim().network.run().await };
    let life = async {
        let faults = faults::run(scenario);
        scenario.processes.iter().for_each(|plan| start(scenario, plan));
        let over = async {
            let sim = sim();
            sim.all_over().await;
        };
        let both = async { tokio::join!(biased; faults, over) };
        if timeout(scenario.limit(), both).await.is_err() {
            let sim = sim();
            let processes = sim.processes();
            let calls = processes.iter().filter(|process| process.state() != State::Dead);
            let calls: Vec<_> = calls.flat_map(|process| process.open_calls()).collect();
            sim.fails("stuck", format_args!("not over in time: {calls:#?}"));
        }
        if sim().failure().is_none() {
            sim().deferred.check();
            if scenario.faults.is_empty() && !scenario.keeps_keys() {
                sleep(RELEASED_MAX).await;
                all_is_released();
            }
            sleep(LEFT_MAX).await;
            nothing_is_left();
        }
    };
    tokio::select! { biased; () = life => {} () = delivery => {} }
    if let Some(panicked) = PANIC.take() {
        sim().fails("panic", panicked);
    }
}

/// While nothing fails, no lock waits for its ttl: each was released by its call, or soon after it.
fn all_is_released() {
    let sim = sim();
    for (nth, host) in sim.network.hosts.borrow_mut().iter_mut().enumerate() {
        for (key, _) in host.server.keys(host.clock(sim.now())) {
            if !key.starts_with("lm1:") {
                sim.fails("left", format_args!("s{nth} has `{key}`, though all calls are over"));
            }
        }
    }
}

/// When all is over, servers and processes keep nothing but fences.
fn nothing_is_left() {
    let sim = sim();
    for process in sim.processes() {
        if process.state() != State::Dead && process.tasks() > 0 {
            sim.fails("left", format_args!("p{} has {} tasks", process.nth, process.tasks()));
        }
    }
    for (link, process, host) in sim.network.open_links() {
        sim.fails("left", format_args!("#{link} of p{process} to s{host} is open"));
    }
    for (nth, host) in sim.network.hosts.borrow_mut().iter_mut().enumerate() {
        let keys = host.server.keys(host.clock(sim.now()));
        // `lm1:wf:{key}` and the like.
        let is_fence = |key: &str| key.starts_with("lm1:") && key.get(5..7) == Some("f:");
        for (key, expires) in keys.iter().filter(|(key, expires)| !expires || !is_fence(key)) {
            sim.fails("left", format_args!("s{nth} has `{key}`, which expires: {expires}"));
        }
        if let Some(unknown) = host.server.unknown().first() {
            sim.fails("server", format_args!("s{nth} does not know {unknown}"));
        }
    }
}

/// Remembers the panics of simulations, whose tasks swallow them.
fn watch_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| match is_running() {
            true => PANIC.set(Some(info.to_string())),
            false => before(info),
        }));
    });
}
