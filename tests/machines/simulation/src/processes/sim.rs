//! The state of one simulation, which its thread has while it runs.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use fastrand::Rng;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::processes::bodies::Bodies;
use crate::processes::callers::Callers;
use crate::processes::deferred::Deferred;
use crate::processes::network::Network;
use crate::processes::process::{Clock, Process};
use crate::processes::replay::Traces;
use crate::processes::tokens::Tokens;
use crate::processes::waits::Waits;

/// Steps at one moment after which the tasks count as running in a circle.
const STEPS_MAX: u64 = 200_000;

thread_local! {
    static SIM: RefCell<Option<Rc<Sim>>> = const { RefCell::new(None) };
}

/// The simulation of this thread.
pub(crate) fn sim() -> Rc<Sim> {
    SIM.with_borrow(Clone::clone).expect("a simulation runs")
}

/// Whether this thread runs a simulation.
pub(crate) fn is_running() -> bool {
    SIM.with_borrow(Option::is_some)
}

pub(crate) fn set(sim: Option<Rc<Sim>>) {
    SIM.set(sim);
}

pub(crate) struct Sim {
    seed: u64,
    /// Servers, processes or the network fail at some time.
    pub(crate) has_faults: bool,
    began: Instant,
    processes: RefCell<Vec<Rc<Process>>>,
    current: Cell<Option<usize>>,
    pub(crate) network: Network,
    pub(crate) bodies: Bodies,
    pub(crate) waits: Waits,
    pub(crate) callers: Callers,
    /// Keys stay for a while after a release.
    pub(crate) keeps_keys: Cell<bool>,
    /// Some callers are not polled for a while.
    pub(crate) sleeps: Cell<bool>,
    pub(crate) traces: Traces,
    pub(crate) deferred: Deferred,
    pub(crate) tokens: Tokens,
    trace: RefCell<Option<String>>,
    failure: RefCell<Option<Failure>>,
    polls: Cell<u64>,
    /// The last moment at which something was done, and the steps at it.
    steps: Cell<(Duration, u64)>,
    changed: Notify,
}

/// What went wrong first.
#[derive(Debug, Clone)]
pub struct Failure {
    /// Which oracle has failed.
    pub oracle: &'static str,
    /// What it saw.
    pub text: String,
}

impl Sim {
    pub(crate) fn new(seed: u64, network: Network, has_faults: bool, traced: bool) -> Rc<Self> {
        Rc::new(Self {
            seed,
            has_faults,
            began: Instant::now(),
            processes: RefCell::default(),
            current: Cell::new(None),
            network,
            bodies: Bodies::default(),
            waits: Waits::default(),
            callers: Callers::default(),
            keeps_keys: Cell::default(),
            sleeps: Cell::default(),
            traces: Traces::default(),
            deferred: Deferred::default(),
            tokens: Tokens::default(),
            trace: RefCell::new(traced.then(String::new)),
            failure: RefCell::default(),
            polls: Cell::new(0),
            steps: Cell::default(),
            changed: Notify::new(),
        })
    }

    /// The true time since the start.
    pub(crate) fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// Random numbers for one use, which no other use changes.
    pub(crate) fn random(&self, of: &str) -> Rng {
        seeded(self.seed, of)
    }

    pub(crate) fn start_process(&self, clock: Clock) -> Rc<Process> {
        let mut processes = self.processes.borrow_mut();
        let nth = processes.len();
        let process = Rc::new(Process::new(nth, clock, self.random(&format!("process {nth}"))));
        processes.push(Rc::clone(&process));
        process
    }

    pub(crate) fn process(&self, nth: usize) -> Rc<Process> {
        Rc::clone(&self.processes.borrow()[nth])
    }

    pub(crate) fn processes(&self) -> Vec<Rc<Process>> {
        self.processes.borrow().clone()
    }

    /// The process whose task is polled.
    pub(crate) fn current(&self) -> Option<Rc<Process>> {
        self.current.get().map(|nth| self.process(nth))
    }

    /// Runs as this process until the returned value is dropped.
    pub(crate) fn enter(self: &Rc<Self>, process: usize) -> Inside {
        Inside { sim: Rc::clone(self), before: self.current.replace(Some(process)) }
    }

    pub(crate) fn count_poll(&self) {
        self.polls.set(self.polls.get() + 1);
    }

    /// Counts the steps at one moment. Time stands still while there is work, so tasks that run in
    /// a circle would never end.
    pub(crate) fn count_step(&self) {
        let now = self.now();
        let (at, steps) = self.steps.get();
        let steps = if at == now { steps + 1 } else { 0 };
        self.steps.set((now, steps));
        if steps > STEPS_MAX && self.failure().is_none() {
            self.fails("livelock", "tasks run in a circle, and no time passes");
            self.processes().iter().for_each(|process| process.kill());
            // Ends the task, and thereby the circle.
            assert!(std::thread::panicking(), "a livelock");
        }
    }

    pub(crate) fn polls(&self) -> u64 {
        self.polls.get()
    }

    /// Writes a line into the trace, if there is one.
    pub(crate) fn trace(&self, line: fmt::Arguments<'_>) {
        if let Some(trace) = &mut *self.trace.borrow_mut() {
            let at = self.now();
            let who = self.current.get().map_or_else(String::new, |nth| format!("p{nth}"));
            let text = format!("{:>6}.{:03} {who:<4} {line}\n", at.as_secs(), at.subsec_millis());
            trace.push_str(&text);
        }
    }

    pub(crate) fn take_trace(&self) -> Option<String> {
        self.trace.take()
    }

    /// Records a failure, unless there was one before.
    pub(crate) fn fails(&self, oracle: &'static str, text: impl fmt::Display) {
        self.trace(format_args!("FAILED {oracle}: {text}"));
        let text = text.to_string();
        self.failure.borrow_mut().get_or_insert(Failure { oracle, text });
        self.changed();
    }

    /// A process is over, or something has failed.
    pub(crate) fn changed(&self) {
        self.changed.notify_one();
    }

    /// Waits until all processes are over, or something has failed.
    pub async fn all_over(&self) {
        while self.failure().is_none() && !self.processes().iter().all(|process| process.is_over())
        {
            self.changed.notified().await;
        }
    }

    pub(crate) fn failure(&self) -> Option<Failure> {
        self.failure.borrow().clone()
    }
}

/// Random numbers that depend on a seed and on what they are for.
pub(crate) fn seeded(seed: u64, of: &str) -> Rng {
    // FNV-1a.
    let hash = of.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let mut mixed = Rng::with_seed(seed ^ hash.rotate_left(17));
    mixed.fork()
}

/// The stay in a process.
pub(crate) struct Inside {
    sim: Rc<Sim>,
    before: Option<usize>,
}

impl Drop for Inside {
    fn drop(&mut self) {
        self.sim.current.set(self.before);
    }
}

/// Writes a line into the trace of this thread's simulation.
macro_rules! trace {
    ($($line:tt)*) => {
        $crate::processes::sim::sim().trace(format_args!($($line)*))
    };
}
