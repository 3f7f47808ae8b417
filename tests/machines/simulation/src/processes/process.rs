//! The simulated processes: each has a clock and random numbers of its own, and can be frozen and
//! killed.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use fastrand::Rng;
use lockmacro_runtime::simulation::Task;
use tokio::task::JoinHandle;

use crate::processes::sim::{is_running, sim};
use crate::processes::thread::ask;

/// A process, from its start to its death.
pub(crate) struct Process {
    pub(crate) nth: usize,
    pub(crate) clock: Clock,
    state: Cell<State>,
    /// Since when it is frozen, and for how long it was before.
    frozen_since: Cell<Option<Duration>>,
    frozen_before: Cell<Duration>,
    /// The tasks that were to be polled while the process was frozen.
    frozen: RefCell<Vec<Waker>>,
    pub(crate) random: RefCell<Rng>,
    /// The number of its tasks.
    tasks: Cell<usize>,
    /// The calls that it waits for, and since when.
    calls: RefCell<BTreeMap<usize, (Duration, String)>>,
    /// All of its calls are over, and its managers are gone.
    over: Cell<bool>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    Running,
    Frozen,
    Dead,
}

/// A clock that starts anywhere, and whose rate is off.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    pub(crate) start: Duration,
    pub(crate) rate: f64,
}

impl Clock {
    /// What it shows when this much time has passed.
    pub(crate) fn after(self, passed: Duration) -> Duration {
        self.start + passed.mul_f64(self.rate)
    }

    /// The true length of a time that this clock measured.
    pub(crate) fn truly(self, measured: Duration) -> Duration {
        measured.div_f64(self.rate)
    }
}

impl Process {
    pub(crate) fn new(nth: usize, clock: Clock, random: Rng) -> Self {
        Self {
            nth,
            clock,
            state: Cell::new(State::Running),
            frozen_since: Cell::default(),
            frozen_before: Cell::default(),
            frozen: RefCell::default(),
            random: RefCell::new(random),
            tasks: Cell::new(0),
            calls: RefCell::default(),
            over: Cell::new(false),
        }
    }

    /// Spawns a task of this process.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
        tokio::spawn(TaskOf::new(self.nth, Box::pin(task)))
    }

    pub(crate) fn tasks(&self) -> usize {
        self.tasks.get()
    }

    /// A worker begins a call.
    pub(crate) fn begins(&self, worker: usize, call: String) {
        self.calls.borrow_mut().insert(worker, (sim().now(), call));
    }

    pub(crate) fn ended(&self, worker: usize) {
        self.calls.borrow_mut().remove(&worker);
    }

    /// The calls that are not over.
    pub(crate) fn open_calls(&self) -> Vec<String> {
        let calls = self.calls.borrow();
        let call = |(worker, (since, call)): (&usize, &(Duration, String))| {
            format!("p{}.{worker} since {since:?}: {call}", self.nth)
        };
        calls.iter().map(call).collect()
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over.get() || self.state() == State::Dead
    }

    pub(crate) fn set_over(&self) {
        self.over.set(true);
        sim().changed();
    }

    pub(crate) fn state(&self) -> State {
        self.state.get()
    }

    /// For how long it was frozen so far.
    pub(crate) fn frozen_for(&self) -> Duration {
        let since = self.frozen_since.get();
        self.frozen_before.get() + since.map_or(Duration::ZERO, |since| sim().now() - since)
    }

    /// Stops its tasks from being polled.
    pub(crate) fn freeze(&self) {
        if self.state.get() == State::Running {
            self.state.set(State::Frozen);
            self.frozen_since.set(Some(sim().now()));
        }
    }

    pub(crate) fn thaw(&self) {
        if self.state.get() == State::Frozen {
            self.frozen_before.set(self.frozen_for());
            self.frozen_since.set(None);
            self.state.set(State::Running);
            self.frozen.take().into_iter().for_each(Waker::wake);
        }
    }

    /// Ends the process: its tasks are never polled again, and no destructor runs while the
    /// simulation does.
    pub(crate) fn kill(&self) {
        self.state.set(State::Dead);
    }
}

/// A task of a process.
pub(crate) struct TaskOf {
    process: usize,
    task: Option<Task>,
}

impl TaskOf {
    pub(crate) fn new(process: usize, task: Task) -> Self {
        let tasks = &sim().process(process).tasks;
        tasks.set(tasks.get() + 1);
        Self { process, task: Some(task) }
    }
}

impl Future for TaskOf {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let sim = sim();
        let process = sim.process(self.process);
        match process.state() {
            State::Running => {}
            State::Frozen => {
                process.frozen.borrow_mut().push(cx.waker().clone());
                return Poll::Pending;
            }
            State::Dead => return Poll::Pending,
        }
        sim.count_poll();
        sim.count_step();
        let _inside = sim.enter(self.process);
        let Some(task) = &mut self.task else { return Poll::Ready(()) };
        let polled = task.as_mut().poll(cx);
        if polled.is_ready() {
            self.task = None;
        }
        polled
    }
}

impl Drop for TaskOf {
    fn drop(&mut self) {
        if !is_running() {
            // A thread has dropped it: one that unwinds its stack after the end.
            let rest = Self { process: self.process, task: self.task.take() };
            ask(move || drop(rest));
            return;
        }
        let sim = sim();
        let _inside = sim.enter(self.process);
        self.task = None;
        let tasks = &sim.process(self.process).tasks;
        tasks.set(tasks.get() - 1);
    }
}
