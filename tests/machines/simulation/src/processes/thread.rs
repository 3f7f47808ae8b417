//! Threads of a process, for calls that block. A thread runs while its process polls it and the
//! simulation waits for it, so the two never run at the same time.

use std::any::Any;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use fastrand::Rng;
use lockmacro_runtime::simulation::{Opening, Task, World, enter};
use tokio::runtime::Handle;
use tokio::time::{Sleep, sleep};

use crate::processes::sim::sim;
use crate::processes::world::OfProcess;
use crate::threads::text_of;

/// How long a thread may run, by the real clock, until it parks. It only ends a simulation that
/// would never end.
const RUNS_MAX: Duration = Duration::from_secs(60);

/// The longest time that a timer is set to.
const PARK_MAX: Duration = Duration::from_secs(1_000_000);

thread_local! {
    static HERE: RefCell<Option<Here>> = const { RefCell::new(None) };
}

/// What a thread has of its simulation.
#[derive(Clone)]
struct Here {
    says: Sender<Said>,
    woken: Arc<Woken>,
    goes: Arc<Mutex<Receiver<Go>>>,
    random: Arc<Mutex<Rng>>,
    clocks: Clocks,
}

/// What the clocks show while a thread runs: no time passes meanwhile.
#[derive(Clone, Copy)]
struct Clocks {
    now: Duration,
    since_boot: Duration,
    since_1970: Duration,
}

impl Clocks {
    /// Those of the current process.
    fn read() -> Self {
        let (since_boot, since_1970) = (OfProcess.since_boot(), OfProcess.since_1970());
        Self { now: sim().now(), since_boot, since_1970 }
    }
}

/// What a thread says to the simulation, which waits for it.
enum Said {
    /// This is to be run where the simulation is. The thread waits for it.
    Ask(Box<dyn FnOnce() + Send>),
    /// The thread waits, for this time at most, and for as long if nothing may wake it.
    Waits { longest: Duration, is_woken: bool },
    /// It is over, by a panic or not.
    Over(Option<String>),
}

/// What the simulation answers to a thread that waits.
enum Go {
    On(Clocks),
    /// The process was killed, and the simulation is over.
    Killed,
}

/// With what the thread of a killed process unwinds its stack.
struct Killed;

/// A call that blocks a thread of the current process, as a future that ends with it.
pub(crate) struct Blocks {
    woken: Arc<Woken>,
    goes: Sender<Go>,
    said: Receiver<Said>,
    thread: Option<JoinHandle<()>>,
    state: State,
}

enum State {
    Runs,
    Waits { timer: Pin<Box<Sleep>>, is_woken: bool },
    Over,
}

#[derive(Default)]
struct Woken {
    is_woken: AtomicBool,
    task: Mutex<Option<Waker>>,
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.is_woken.store(true, Ordering::SeqCst);
        let task = self.task.lock().expect("no panic").take();
        task.into_iter().for_each(Waker::wake);
    }
}

/// Runs `call` on a thread of its own, which it may block.
pub(crate) fn blocks(call: impl FnOnce() + Send + 'static) -> Blocks {
    let (says, said) = channel();
    let (goes, go) = channel();
    let woken = Arc::<Woken>::default();
    let random = Arc::new(Mutex::new(Rng::with_seed(OfProcess.random())));
    let (goes_here, clocks) = (Arc::new(Mutex::new(go)), Clocks::read());
    let here = Here { says, woken: Arc::clone(&woken), goes: goes_here, random, clocks };
    let runtime = Handle::current();
    let work = move || {
        let says = here.says.clone();
        HERE.set(Some(here));
        let panicked = {
            let _world = enter(Arc::new(OfThread));
            let _inside = runtime.enter();
            catch_unwind(AssertUnwindSafe(call)).err().and_then(text)
        };
        // Fails only when the simulation has given up.
        let _ = says.send(Said::Over(panicked));
    };
    let thread = thread::Builder::new().spawn(work).expect("a thread");
    Blocks { woken, goes, said, thread: Some(thread), state: State::Runs }
}

/// The text of a panic; `None` for that of a killed process.
fn text(panicked: Box<dyn Any + Send>) -> Option<String> {
    if panicked.is::<Killed>() {
        return None;
    }
    Some(text_of(&*panicked))
}

impl Future for Blocks {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let call = self.get_mut();
        loop {
            match &mut call.state {
                State::Over => return Poll::Ready(()),
                State::Runs => call.state = call.next_state(),
                State::Waits { timer, is_woken } => {
                    *call.woken.task.lock().expect("no panic") = Some(cx.waker().clone());
                    let wakes = *is_woken && call.woken.is_woken.swap(false, Ordering::SeqCst);
                    if !wakes && timer.as_mut().poll(cx).is_pending() {
                        return Poll::Pending;
                    }
                    call.state = State::Runs;
                    let _ = call.goes.send(Go::On(Clocks::read()));
                }
            }
        }
    }
}

impl Blocks {
    /// Serves the thread until it waits, or is over.
    fn next_state(&self) -> State {
        loop {
            match self.said.recv_timeout(RUNS_MAX) {
                Ok(Said::Ask(ask)) => ask(),
                Ok(Said::Waits { longest, is_woken }) => {
                    let timer = Box::pin(sleep(longest.min(PARK_MAX)));
                    return State::Waits { timer, is_woken };
                }
                Ok(Said::Over(panicked)) => {
                    panicked.into_iter().for_each(|text| sim().fails("panic", text));
                    return State::Over;
                }
                Err(_) => {
                    sim().fails("livelock", "a thread runs on and does not wait");
                    return State::Over;
                }
            }
        }
    }
}

impl Drop for Blocks {
    fn drop(&mut self) {
        if let State::Waits { .. } = self.state {
            let _ = self.goes.send(Go::Killed);
            self.state = self.next_state();
        }
        // One that waits once more, while it unwinds its stack, stays forever.
        if let (State::Over, Some(thread)) = (&self.state, self.thread.take()) {
            let _ = thread.join();
        }
    }
}

fn here() -> Here {
    HERE.with_borrow(Clone::clone).expect("a thread of a process")
}

/// Runs `ask` where the simulation is, from a thread of a process.
pub(crate) fn ask<T: Send + 'static>(ask: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, answer) = channel();
    let ask = move || drop(done.send(ask()));
    let _ = here().says.send(Said::Ask(Box::new(ask)));
    answer.recv().unwrap_or_else(|_| stay())
}

/// The true time since the start, on a thread of a process.
pub(crate) fn now() -> Duration {
    here().clocks.now
}

/// Sleeps on a thread of a process.
pub(crate) fn sleeps(time: Duration) {
    wait(time, false);
}

fn wait(longest: Duration, is_woken: bool) {
    let here = here();
    let said = here.says.send(Said::Waits { longest, is_woken });
    let go = said.ok().and_then(|()| here.goes.lock().ok()?.recv().ok());
    match go {
        Some(Go::On(clocks)) => HERE.with_borrow_mut(|here| {
            here.iter_mut().for_each(|here| here.clocks = clocks);
        }),
        Some(Go::Killed) if !thread::panicking() => resume_unwind(Box::new(Killed)),
        _ => stay(),
    }
}

/// The simulation is over for this thread, which cannot go on.
fn stay() -> ! {
    loop {
        thread::park();
    }
}

/// The system of a thread.
struct OfThread;

impl World for OfThread {
    fn since_boot(&self) -> Duration {
        here().clocks.since_boot
    }

    fn since_1970(&self) -> Duration {
        here().clocks.since_1970
    }

    fn random(&self) -> u64 {
        here().random.lock().expect("no panic").u64(..)
    }

    fn adopt(&self, task: Task) -> Task {
        ask(|| OfProcess.adopt(task))
    }

    fn unparks_here(&self) -> Waker {
        Waker::from(here().woken)
    }

    fn park(&self, longest: Duration) {
        wait(longest, true);
    }

    fn open(&self, address: &str) -> Opening {
        let address = address.to_owned();
        ask(move || OfProcess.open(&address))
    }
}
