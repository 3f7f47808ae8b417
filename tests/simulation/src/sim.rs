//! The state of one simulation, which its thread has while it runs.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use fastrand::Rng;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::bodies::Bodies;
use crate::network::Network;
use crate::process::{Clock, Process};

thread_local! {
    static SIM: RefCell<Option<Rc<Sim>>> = const { RefCell::new(None) };
}

/// The simulation of this thread.
pub fn sim() -> Rc<Sim> {
    SIM.with_borrow(Clone::clone).expect("a simulation runs")
}

/// Whether this thread runs a simulation.
pub fn is_running() -> bool {
    SIM.with_borrow(Option::is_some)
}

pub fn set(sim: Option<Rc<Sim>>) {
    SIM.set(sim);
}

pub struct Sim {
    seed: u64,
    began: Instant,
    processes: RefCell<Vec<Rc<Process>>>,
    current: Cell<Option<usize>>,
    pub network: Network,
    pub bodies: Bodies,
    trace: RefCell<Option<String>>,
    failure: RefCell<Option<Failure>>,
    polls: Cell<u64>,
    changed: Notify,
}

/// What went wrong first.
#[derive(Debug, Clone)]
pub struct Failure {
    pub oracle: &'static str,
    pub text: String,
}

impl Sim {
    pub fn new(seed: u64, network: Network, traced: bool) -> Rc<Self> {
        Rc::new(Self {
            seed,
            began: Instant::now(),
            processes: RefCell::default(),
            current: Cell::new(None),
            network,
            bodies: Bodies::default(),
            trace: RefCell::new(traced.then(String::new)),
            failure: RefCell::default(),
            polls: Cell::new(0),
            changed: Notify::new(),
        })
    }

    /// The true time since the start.
    pub fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// Random numbers for one use, which no other use changes.
    pub fn random(&self, of: &str) -> Rng {
        seeded(self.seed, of)
    }

    pub fn start_process(&self, clock: Clock) -> Rc<Process> {
        let mut processes = self.processes.borrow_mut();
        let nth = processes.len();
        let process = Rc::new(Process::new(nth, clock, self.random(&format!("process {nth}"))));
        processes.push(Rc::clone(&process));
        process
    }

    pub fn process(&self, nth: usize) -> Rc<Process> {
        Rc::clone(&self.processes.borrow()[nth])
    }

    pub fn processes(&self) -> Vec<Rc<Process>> {
        self.processes.borrow().clone()
    }

    /// The process whose task is polled.
    pub fn current(&self) -> Option<Rc<Process>> {
        self.current.get().map(|nth| self.process(nth))
    }

    /// Runs as this process until the returned value is dropped.
    pub fn enter(self: &Rc<Self>, process: usize) -> Inside {
        Inside { sim: Rc::clone(self), before: self.current.replace(Some(process)) }
    }

    pub fn count_poll(&self) -> u64 {
        self.polls.set(self.polls.get() + 1);
        self.polls.get()
    }

    pub fn polls(&self) -> u64 {
        self.polls.get()
    }

    /// Writes a line into the trace, if there is one.
    pub fn trace(&self, line: fmt::Arguments<'_>) {
        if let Some(trace) = &mut *self.trace.borrow_mut() {
            let at = self.now();
            let who = self.current.get().map_or_else(String::new, |nth| format!("p{nth}"));
            let text = format!("{:>6}.{:03} {who:<4} {line}\n", at.as_secs(), at.subsec_millis());
            if std::env::var_os("SIM_LIVE").is_some() { eprint!("{text}"); }
            trace.push_str(&text);
        }
    }

    pub fn take_trace(&self) -> Option<String> {
        self.trace.take()
    }

    /// Records a failure, unless there was one before.
    pub fn fails(&self, oracle: &'static str, text: impl fmt::Display) {
        self.trace(format_args!("FAILED {oracle}: {text}"));
        let text = text.to_string();
        self.failure.borrow_mut().get_or_insert(Failure { oracle, text });
        self.changed();
    }

    /// A process is over, or something has failed.
    pub fn changed(&self) {
        self.changed.notify_one();
    }

    /// Waits until all processes are over, or something has failed.
    pub async fn all_over(&self) {
        while self.failure().is_none() && !self.processes().iter().all(|process| process.is_over())
        {
            self.changed.notified().await;
        }
    }

    pub fn failure(&self) -> Option<Failure> {
        self.failure.borrow().clone()
    }
}

/// Random numbers that depend on a seed and on what they are for.
pub fn seeded(seed: u64, of: &str) -> Rng {
    // FNV-1a.
    let hash = of.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let mut mixed = Rng::with_seed(seed ^ hash.rotate_left(17));
    mixed.fork()
}

/// The stay in a process.
pub struct Inside {
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
        $crate::sim::sim().trace(format_args!($($line)*))
    };
}
