//! Jobs: stored when their lock is busy, and run later by a worker of any process. What
//! must be true of them: a call that was stored is run, by one worker at a time, and once while
//! nothing fails.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use lockmacro_runtime::defer::{DeferredFn, Worker, argument};
use lockmacro_runtime::{Lock, LockError, LockManager};
use tokio::sync::oneshot;
use tokio::time::sleep;

use crate::processes::call::Call;
use crate::processes::scenario::{Plan, ms};
use crate::processes::sim::sim;
use crate::processes::work::{here, name_of, run_body};

/// A worker in the simulation's numbering, for the bodies of jobs.
const WORKER: usize = 1_000;

/// After this time all jobs have run. One that fails is tried again after minutes.
const LONGEST: Duration = Duration::from_secs(1_200);

/// The lease of a worker on a call.
const LEASE: Duration = Duration::from_secs(30);

/// How often it is looked whether they have.
const LOOK: Duration = Duration::from_millis(500);

#[derive(Default)]
pub(crate) struct Deferred {
    last: Cell<u64>,
    /// When a server last lost its data.
    lost: Cell<Option<Duration>>,
    calls: RefCell<BTreeMap<u64, Stored>>,
}

/// What is known of a call.
#[derive(Default)]
struct Stored {
    /// Its caller was told that it is stored, and the server has not lost it since.
    is_due: bool,
    /// When its caller began to store it.
    began: Duration,
    /// The process whose worker runs it.
    running: Option<usize>,
    done: u32,
}

impl Deferred {
    /// A server has lost its data.
    pub(crate) fn lose(&self) {
        self.lost.set(Some(sim().now()));
        self.calls.borrow_mut().values_mut().for_each(|call| call.is_due = false);
    }

    /// Whether every call that was stored has run, also those whose callers were not told so.
    fn all_ran(&self) -> bool {
        let sim = sim();
        let host = &mut sim.network.hosts.borrow_mut()[0];
        let now = host.clock(sim.now());
        let are_left = host.server.keys(now).iter().any(|(key, _)| key == "lm1:jobs:audit");
        !are_left && self.calls.borrow().values().all(|call| !call.is_due || call.done > 0)
    }

    /// Called when all is over.
    pub(crate) fn check(&self) {
        let sim = sim();
        for (number, call) in &*self.calls.borrow() {
            if call.is_due && call.done == 0 {
                sim.fails("deferred", format_args!("call {number} was stored, and never run"));
            }
            if call.done > 1 && !sim.has_faults {
                sim.fails("deferred", format_args!("call {number} was run {} times", call.done));
            }
        }
    }

    fn begins(&self, number: u64) -> Run {
        let (sim, process) = (sim(), here().nth);
        trace!("runs the job {number}");
        let mut calls = self.calls.borrow_mut();
        let call = calls.entry(number).or_default();
        let others = call.running.filter(|running| !sim.process(*running).is_over());
        // A caller without an answer stores its call again, which a server without its data takes
        // for a new one. The first worker may have taken it before the loss.
        let excuses = |lost: Duration| call.began < lost && sim.now() < lost + LEASE;
        let is_excused = self.lost.get().is_some_and(excuses);
        if let Some(other) = others.filter(|_| !is_excused) {
            sim.fails("deferred", format_args!("call {number} is run by p{other} as well"));
        }
        call.running = Some(process);
        Run { number }
    }
}

/// A call that runs.
struct Run {
    number: u64,
}

impl Run {
    fn done(&self) {
        let sim = sim();
        if let Some(call) = sim.deferred.calls.borrow_mut().get_mut(&self.number) {
            call.done += 1;
        }
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let sim = sim();
        if let Some(call) = sim.deferred.calls.borrow_mut().get_mut(&self.number) {
            call.running = None;
        }
    }
}

fn function(locks: &LockManager) -> DeferredFn<(u64, u64)> {
    let locks = locks.clone();
    let arguments = (argument("number"), argument("key"));
    DeferredFn::new("audit", arguments, move |(number, key): (u64, u64)| {
        let locks = locks.clone();
        async move {
            let call = Call::of_deferred(usize::try_from(key).expect("a few keys"));
            let lock = Lock::new(name_of(call.keys[0])).ttl(call.ttl).manager(&locks);
            // The lock would hide that two workers run it.
            let run = sim().deferred.begins(number);
            let body = async {
                run_body(WORKER, &call, &locks).await?;
                run.done();
                Ok::<(), LockError>(())
            };
            lock.run(body).await
        }
    })
    .delay(ms(100))
}

/// Stores a call whose lock is busy. Returns the error of its caller.
pub(crate) async fn later(locks: &LockManager, busy: LockError, key: usize) -> LockError {
    let number = {
        let sim = sim();
        sim.deferred.last.set(sim.deferred.last.get() + 1);
        sim.deferred.last.get()
    };
    trace!("defers the call {number} under {key}");
    let began = sim().now();
    sim().deferred.calls.borrow_mut().entry(number).or_default().began = began;
    let stored = function(locks).manager(locks).defer(busy, (number, key as u64)).await;
    if let LockError::Deferred { .. } = stored {
        trace!("the call {number} is stored");
        // The answer may be older than a loss.
        let is_due = sim().deferred.lost.get().is_none_or(|lost| lost < began);
        sim().deferred.calls.borrow_mut().entry(number).or_default().is_due = is_due;
    }
    stored
}

/// The worker of a process, until it is stopped.
pub(crate) struct Working {
    stop: oneshot::Sender<()>,
    ended: oneshot::Receiver<()>,
}

impl Working {
    pub(crate) fn start(locks: &LockManager) -> Working {
        let ((stop, stopped), (end, ended)) = (oneshot::channel(), oneshot::channel());
        let worker = Worker::new(locks).register(function(locks));
        drop(here().spawn(async move {
            let worked = worker.run_until(async move { drop(stopped.await) }).await;
            if let Err(error) = worked {
                trace!("the worker ends: {error}");
                if !sim().has_faults {
                    sim().fails("errors", error);
                }
            }
            let _ = end.send(());
        }));
        Working { stop, ended }
    }

    pub(crate) async fn stop(self) {
        let _ = self.stop.send(());
        let _ = self.ended.await;
    }
}

/// Waits until all other processes are over, and all calls have run.
pub(crate) async fn all_ran(plan: &Arc<Plan>) {
    let others_are_over = || {
        let (sim, ours) = (sim(), here().nth);
        let mut others = sim.processes().into_iter().filter(|process| process.nth != ours);
        sim.now() > plan.lasts_until && others.all(|process| process.is_over())
    };
    while !others_are_over() {
        sleep(LOOK).await;
    }
    let until = sim().now() + LONGEST;
    while !(others_are_over() && sim().deferred.all_ran()) {
        if sim().now() > until {
            sim().deferred.check();
            sim().fails("deferred", "calls are left");
        }
        sleep(LOOK).await;
    }
}
