//! Callers on threads of their own, and their orders: another thread may go on at each mutex of the
//! runtime and at each step of a caller, and the seed says which one.
//!
//! Shuttle switches between the threads, which are all on one thread of the system and so share
//! tokio's clock. The main thread runs the tasks of the runtime and lets time pass. The locks are
//! those of `memory://`: what is tried is the engine of one process.

use std::any::Any;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Poll, Waker};
use std::time::Duration;
use std::{io, sync};

use fastrand::Rng;
use lockmacro_runtime::simulation::{Opening, Task, World, enter};
use lockmacro_runtime::{Lock, LockError, LockGuard, LockManager};
use shuttle::future::block_on;
use shuttle::scheduler::RandomScheduler;
use shuttle::{Config, FailurePersistence, MaxSteps, Runner, thread};
use tokio::runtime::{Builder, Handle};
use tokio::task::yield_now;
use tokio::time::{Instant, advance, sleep};

use crate::processes::many::Failure;

const CALLERS: usize = 3;
/// The calls of each.
const CALLS: usize = 3;
/// The wait of a caller that waits, which no caller needs.
const WAIT: Duration = Duration::from_secs(60);
/// A call without a wait, or a shutdown, that lasts longer is late: the threads go on in between.
const LATE: Duration = Duration::from_millis(1_500);
/// All is over by then.
const LONGEST: Duration = Duration::from_secs(180);
/// The ttl of a lock that is renewed, and of one that is not.
const SHORT_TTL: Duration = Duration::from_millis(300);
const LONG_TTL: Duration = Duration::from_secs(300);
/// A key is free this long after its last holder has ended.
const FREE_WITHIN: Duration = Duration::from_secs(1);
/// The tasks of a manager have ended this long after it.
const ENDED_WITHIN: Duration = Duration::from_secs(40);

/// Runs the threads of a seed.
pub fn run(seed: u64) -> Option<Failure> {
    let (seen, mut config) = (Arc::new(Seen::default()), Config::new());
    config.stack_size = 1 << 18;
    config.max_steps = MaxSteps::None;
    config.failure_persistence = FailurePersistence::None;
    let runner = Runner::new(RandomScheduler::new_from_seed(seed, 1), config);
    let all = Arc::clone(&seen);
    let ran = catch_unwind(AssertUnwindSafe(|| runner.run(move || main(seed, &all))));
    let mut failure = seen.failure.lock().expect("no panic").take();
    if let Err(panic) = ran {
        failure.get_or_insert_with(|| Failure { oracle: "panic", text: text_of(&*panic) });
    }
    failure
}

pub(crate) fn text_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("a panic").to_owned()
}

/// What the oracles see. No thread goes on while one has a mutex of these.
#[derive(Default)]
struct Seen {
    failure: sync::Mutex<Option<Failure>>,
    /// Handles of all holders.
    holders: sync::Mutex<Vec<LockGuard>>,
    /// Threads that run.
    running: AtomicUsize,
    is_closing: AtomicBool,
}

impl Seen {
    fn fails(&self, oracle: &'static str, text: impl ToString) {
        let failure = Failure { oracle, text: text.to_string() };
        self.failure.lock().expect("no panic").get_or_insert(failure);
    }

    /// Handles of all holders until now.
    fn handles(&self) -> Vec<LockGuard> {
        self.holders.lock().expect("no panic").iter().map(LockGuard::handle).collect()
    }
}

/// The main thread.
fn main(seed: u64, seen: &Arc<Seen>) {
    let mut random = Rng::with_seed(seed);
    let mut builder = Builder::new_current_thread();
    let runtime = builder.enable_time().start_paused(true).build().expect("a runtime");
    runtime.block_on(async {
        let world = Threads { start: Instant::now(), random: sync::Mutex::new(random.fork()) };
        let _entered = enter(Arc::new(world));
        let locks = LockManager::connect("memory://").await.expect("a store");
        let key = format!("threads:{seed}");
        // A lease may end at any time where pauses are long.
        let longest_pause = *random.choice(&[5, 40, 40, 500]).expect("some");
        let is_shut_down = random.u8(..3) == 0;
        for nth in 0..CALLERS + usize::from(is_shut_down) + 1 {
            let (seen, locks, key) = (Arc::clone(seen), locks.clone(), key.clone());
            let mut random = random.fork();
            seen.running.fetch_add(1, Ordering::Relaxed);
            thread::spawn(move || {
                match nth {
                    0 => observe(&seen, &mut random),
                    nth if nth > CALLERS => shut_down(&seen, &locks, &key, &mut random),
                    _ => {
                        let may_be_lost = longest_pause > 40;
                        call(&seen, &locks, &key, may_be_lost, &mut random);
                    }
                }
                drop(locks);
                seen.running.fetch_sub(1, Ordering::Relaxed);
            });
        }
        let mut pass = async |until: Instant, is_over: &dyn Fn() -> bool| {
            while !is_over() && Instant::now() < until {
                switch();
                yield_now().await;
                if random.u8(..12) == 0 {
                    advance(Duration::from_millis(random.u64(1..=longest_pause))).await;
                }
            }
        };
        let within = |time| Instant::now() + time;
        pass(within(LONGEST), &|| seen.running.load(Ordering::Relaxed) == 0).await;
        if seen.running.load(Ordering::Relaxed) > 0 {
            seen.fails("stuck", "a thread has not ended");
            panic!("a thread has not ended");
        }
        drop(std::mem::take(&mut *seen.holders.lock().expect("no panic")));
        pass(within(FREE_WITHIN), &|| false).await;
        let other = LockManager::connect("memory://").await.expect("a store");
        if let Err(error) = Lock::new(&*key).manager(&other).acquire().await {
            seen.fails("left", error);
        }
        drop((locks, other));
        let tasks = || Handle::current().metrics().num_alive_tasks();
        pass(within(ENDED_WITHIN), &|| tasks() == 0).await;
        if tasks() > 0 {
            seen.fails("left", format_args!("{} tasks", tasks()));
        }
    });
}

/// Calls a few times.
fn call(seen: &Seen, locks: &LockManager, key: &str, may_be_lost: bool, random: &mut Rng) {
    let waiting = random.u8(1..8);
    for _ in 0..CALLS {
        let (is_renewed, waits) = (random.bool(), random.u8(..8) < waiting);
        let lock = Lock::new(key).manager(locks);
        let lock = if is_renewed { lock.ttl(SHORT_TTL).renew() } else { lock.ttl(LONG_TTL) };
        let acquiring = if waits { lock.wait(WAIT) } else { lock }.acquire();
        let polls = if random.u8(..5) == 0 { random.usize(1..4) } else { usize::MAX };
        let began = Instant::now();
        let acquired = block_on(polled(acquiring, polls));
        if !waits && !may_be_lost && began.elapsed() > LATE {
            seen.fails("late", format_args!("a call without a wait after {:?}", began.elapsed()));
        }
        let guard = match acquired {
            Some(Ok(guard)) => guard,
            Some(Err(LockError::ShutDown { held: 0 }))
                if seen.is_closing.load(Ordering::Relaxed) =>
            {
                return;
            }
            Some(Err(LockError::Busy { .. })) if !waits => continue,
            Some(Err(error)) => {
                seen.fails("errors", format_args!("{error:?}"));
                continue;
            }
            // Dropped.
            None => continue,
        };
        let others = seen.handles();
        seen.holders.lock().expect("no panic").push(guard.handle());
        if others.iter().any(LockGuard::is_held) && guard.is_held() {
            seen.fails("exclusion", "two callers hold the lock");
        }
        for _ in 0..random.usize(..4) {
            match random.u8(..4) {
                0 => block_on(sleep(Duration::from_millis(random.u64(1..200)))),
                1 => drop(guard.check()),
                _ => switch(),
            }
        }
        if random.u8(..3) == 0 {
            drop(guard);
        } else if let Err(error) = block_on(guard.release())
            && !(is_renewed && may_be_lost)
        {
            seen.fails("errors", format_args!("released: {error:?}"));
        }
    }
}

/// Does what another part of a body may do, while there are callers.
fn observe(seen: &Seen, random: &mut Rng) {
    while seen.running.load(Ordering::Relaxed) > 1 {
        switch();
        let Some(holder) = seen.handles().pop() else { continue };
        match random.u8(..8) {
            0 => drop(block_on(holder.extend(SHORT_TTL * 2))),
            1 => drop(block_on(polled(holder.lost(), 2))),
            2 => drop(holder.check()),
            _ => {}
        }
    }
}

/// Shuts the manager down at some time, after which nothing is held.
fn shut_down(seen: &Seen, locks: &LockManager, key: &str, random: &mut Rng) {
    block_on(sleep(Duration::from_millis(random.u64(..400))));
    seen.is_closing.store(true, Ordering::Relaxed);
    let began = Instant::now();
    if let Err(error) = block_on(locks.shutdown(WAIT)) {
        return seen.fails("shutdown", error);
    }
    if began.elapsed() > LATE * 8 {
        seen.fails("late", format_args!("a shutdown after {:?}", began.elapsed()));
    }
    let free = async {
        let other = LockManager::connect("memory://").await?;
        Lock::new(key).manager(&other).acquire().await.map(drop)
    };
    if let Err(error) = block_on(free) {
        seen.fails("shutdown", format_args!("after it: {error}"));
    }
}

/// The output of a future; `None` when it is dropped after this number of polls.
async fn polled<F: Future>(future: F, mut polls: usize) -> Option<F::Output> {
    let mut future = pin!(future);
    let output = poll_fn(|cx| {
        polls -= 1;
        match future.as_mut().poll(cx) {
            Poll::Pending if polls > 0 => Poll::Pending,
            Poll::Pending => Poll::Ready(None),
            Poll::Ready(output) => Poll::Ready(Some(output)),
        }
    });
    output.await
}

/// Lets another thread go on. Unlike a yield of shuttle, this does not count as a wake.
fn switch() {
    thread::sleep(Duration::ZERO);
}

/// The system of the threads.
struct Threads {
    start: Instant,
    random: sync::Mutex<Rng>,
}

impl World for Threads {
    fn since_boot(&self) -> Duration {
        // Between two mutexes, too.
        switch();
        self.start.elapsed()
    }

    fn since_1970(&self) -> Duration {
        self.start.elapsed()
    }

    fn random(&self) -> u64 {
        self.random.lock().expect("no panic").u64(..)
    }

    fn adopt(&self, task: Task) -> Task {
        task
    }

    fn switch(&self) -> bool {
        switch();
        true
    }

    fn unparks_here(&self) -> Waker {
        Waker::noop().clone()
    }

    fn park(&self, _: Duration) {
        panic!("no caller blocks its thread");
    }

    fn open(&self, _: &str) -> Opening {
        Box::pin(async { Err(io::Error::other("there is no network")) })
    }
}
