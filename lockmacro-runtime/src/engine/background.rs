//! The background thread: releases what was dropped, and asks on behalf of blocking callers.
//!
//! A dropped future cannot await its own release, and a task spawned for it dies with the runtime.
//! So every manager has, from the first need on, one thread with a small runtime and a connection
//! of its own. It ends when the manager and all its locks are gone and its work is done.
//!
//! A fork copies what is known of the thread, and not the thread. A forked process that asks for
//! something gets its own thread and connections.

use std::pin::Pin;
use std::sync::mpsc as std_mpsc;
use std::sync::{Arc, Weak};
use std::{mem, process, thread};

use tokio::runtime;
use tokio::sync::{mpsc, oneshot};

use crate::engine::blocking::blocked;
use crate::engine::cleanup::{Added, Cleanup};
use crate::engine::in_flight::{InFlight, InFlightGuard};
use crate::engine::renewal::{Enrolled, Renewable, Renewals};
use crate::protocol::request::Request;
use crate::store::dispatch::Store;
use crate::value::error::LockError;
use crate::value::sync::{Mutex, MutexGuard};
use crate::value::time::Moment;
use crate::value::unavailability::Unavailability;

type Work = Pin<Box<dyn Future<Output = ()> + Send>>;
type Job = Box<dyn FnOnce(Arc<Store>) -> Work + Send>;

#[derive(Debug)]
pub(crate) struct Background(Mutex<Thread>);

/// The background thread of one process, and its work.
#[derive(Debug)]
struct Thread {
    process: u32,
    store: Arc<Store>,
    jobs: Option<mpsc::UnboundedSender<Job>>,
    renewals: Arc<Renewals>,
    /// Whether the task that renews was started; there is one at most.
    renewing: bool,
    cleanup: Arc<Cleanup>,
}

impl Background {
    /// A janitor for the locks of `backend`. Its thread starts with the first job.
    pub(crate) fn new(store: &Store) -> Self {
        Self(Mutex::new(Thread::new(store)))
    }

    /// What there is in this process.
    fn here(&self) -> MutexGuard<'_, Thread> {
        let mut here = self.0.lock();
        if here.process != process::id() {
            let ours = Thread::new(&here.store);
            // The other process goes on to use its connections, which are not to be ended here.
            mem::forget(mem::replace(&mut *here, ours));
        }
        here
    }

    /// Has the lease of `held` renewed from `due` on, or confirmed when the server may have been
    /// replaced, until what this returns is dropped. `None` where neither is to be done.
    ///
    /// The lease was granted by what was sent at `sent`.
    pub(crate) fn watch(
        &self,
        held: Weak<dyn Renewable>,
        sent: Moment,
        due: Option<Moment>,
    ) -> Result<Option<Enrolled>, LockError> {
        let mut here = self.here();
        if due.is_none() && !here.store.forgets() {
            return Ok(None);
        }
        let (enrolled, due) = here.renewals.enroll(held, sent, due);
        if due || here.store.fails_over() {
            here.start_renewing()?;
        }
        Ok(Some(enrolled))
    }

    /// Has those ask again who block, and wait in line.
    pub(crate) fn alarm(&self) {
        // Those who are woken may ask for something, which takes the mutex.
        let store = Arc::clone(&self.here().store);
        store.alarm();
    }

    /// Has every held lock confirmed at once.
    pub(crate) fn confirm_all(&self) {
        let mut here = self.here();
        let started = match here.renewals.all_due(Moment::now()) {
            true => here.start_renewing(),
            false => Ok(()),
        };
        drop(here);
        if let Err(error) = started {
            tracing::error!(%error, "locks that are held are not confirmed on a new server");
        }
    }

    /// Releases a lock that nobody waits for, see [`Cleanup`]. `member` leaves when it was
    /// released.
    pub(crate) fn clean_up(&self, request: Arc<Request>, guard: InFlightGuard) {
        let told = Arc::clone(&request);
        let mut here = self.here();
        match here.cleanup.add(request, guard) {
            Added::Starts => {}
            Added::Kept | Added::Left => return,
            Added::LeftFirst => {
                drop(here);
                let key = told.listed();
                tracing::warn!(%key, "too many dropped locks: this one and more stay until their ttl is over");
                return;
            }
        }
        let cleanup = Arc::clone(&here.cleanup);
        if let Err(error) = here.run(move |store| cleanup.work(store)) {
            here.cleanup.not_started();
            drop(here);
            tracing::error!(key = %told.listed(), %error, "a dropped lock stays until its ttl is over");
        }
    }

    /// [`call`](Background::call) after what was dropped before has been released.
    #[cfg(feature = "defer")]
    pub(crate) async fn call_after_cleanup<T, F, W>(&self, job: F) -> Result<T, LockError>
    where
        T: Send + 'static,
        F: FnOnce(Arc<Store>) -> W + Send + 'static,
        W: Future<Output = T> + Send + 'static,
    {
        let cleanup = Arc::clone(&self.here().cleanup);
        let after = move |store| async move {
            cleanup.tried_all().await;
            job(store).await
        };
        self.call(after).await
    }

    /// Runs `job` in the background and waits until it is done, on any executor.
    pub(crate) async fn call<T, F, W>(&self, job: F) -> Result<T, LockError>
    where
        T: Send + 'static,
        F: FnOnce(Arc<Store>) -> W + Send + 'static,
        W: Future<Output = T> + Send + 'static,
    {
        let (done, result) = oneshot::channel();
        self.here().run(move |store| async move {
            // The caller may have gone meanwhile.
            let _ = done.send(job(store).await);
        })?;
        result.await.map_err(|_| no_thread("it ended"))
    }

    /// Ends the thread when its work is done, which takes a few seconds at most where no lock is
    /// out, see [`Cleanup::close`]. Another job would start another one.
    pub(crate) fn stop(&self) {
        let mut here = self.here();
        here.renewals.close();
        here.cleanup.close();
        here.jobs.take();
    }

    /// Runs `job` in the background and blocks until it is done.
    pub(crate) fn block_on<T, F, W>(&self, job: F) -> Result<T, LockError>
    where
        T: Send + 'static,
        F: FnOnce(Arc<Store>) -> W + Send + 'static,
        W: Future<Output = T> + Send + 'static,
    {
        let (done, result) = std_mpsc::sync_channel(1);
        self.here().run(move |store| async move {
            // The caller waits for it; if it were gone, nobody would.
            let _ = done.send(job(store).await);
        })?;
        blocked(|| result.recv()).map_err(|_| no_thread("it ended"))
    }
}

impl Thread {
    fn new(store: &Store) -> Self {
        Self {
            process: process::id(),
            store: Arc::new(store.apart()),
            jobs: None,
            renewals: Arc::default(),
            renewing: false,
            cleanup: Arc::default(),
        }
    }

    fn start_renewing(&mut self) -> Result<(), LockError> {
        if !self.renewing {
            let renewals = Arc::clone(&self.renewals);
            self.run(move |store| renewals.work(store))?;
            self.renewing = true;
        }
        Ok(())
    }

    fn run<F, W>(&mut self, job: F) -> Result<(), LockError>
    where
        F: FnOnce(Arc<Store>) -> W + Send + 'static,
        W: Future<Output = ()> + Send + 'static,
    {
        let sender = match &mut self.jobs {
            Some(sender) => sender,
            none => none.insert(start(Arc::clone(&self.store)).map_err(no_thread)?),
        };
        let job: Job = Box::new(move |store| Box::pin(job(store)));
        sender.send(job).map_err(|_| no_thread("it ended"))
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        self.renewals.close();
    }
}

fn no_thread(why: impl ToString) -> LockError {
    let detail = format!("the background thread: {}", why.to_string());
    LockError::Unavailable { reason: Unavailability::Local, detail }
}

fn start(store: Arc<Store>) -> std::io::Result<mpsc::UnboundedSender<Job>> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    let (sender, jobs) = mpsc::unbounded_channel();
    thread::Builder::new()
        .name("lockmacro-janitor".to_owned())
        .spawn(move || runtime.block_on(work(store, jobs)))?;
    Ok(sender)
}

async fn work(store: Arc<Store>, mut jobs: mpsc::UnboundedReceiver<Job>) {
    // Counted and not kept: a job that is done is freed at once.
    let in_flight = InFlight::default();
    while let Some(job) = jobs.recv().await {
        let (guard, work) = (in_flight.join(), job(Arc::clone(&store)));
        tokio::spawn(async move {
            work.await;
            drop(guard);
        });
    }
    // The manager is gone; what it left is still done, and every job has an end.
    in_flight.empty().await;
}

#[cfg(test)]
mod tests {
    use crate::protocol::shutdown::Shutdown;
    use crate::value::token::Token;
    use std::pin::pin;
    use std::process::Command;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::task::{Context, Wake, Waker};
    use std::time::{Duration, Instant};

    use super::*;
    use crate::store::memory::Memory;

    const JOBS: usize = 5_000;
    const MEGABYTE: usize = 1 << 20;

    /// Takes note of whether it could ask for something when it was woken.
    struct Asks(Arc<Background>, AtomicBool);

    impl Wake for Asks {
        fn wake(self: Arc<Self>) {
            self.1.store(self.0.0.try_lock().is_some(), Ordering::SeqCst);
        }
    }

    #[tokio::test]
    async fn who_is_woken_by_an_alarm_may_ask_for_something() {
        let memory = Memory::new();
        let background = Arc::new(Background::new(&Store::Memory(memory.clone())));
        let hour = Duration::from_secs(60 * 60);
        let token = || Token::new("test", "", "", Moment::now()).unwrap();
        let [held, waits] = [(); 2].map(|()| Request::new("order:1".into(), token(), hour));
        memory.acquire(&held).unwrap();
        let shutdown = Shutdown::default();
        let mut waiting = pin!(memory.wait(&waits, hour, &shutdown));
        let asks = Arc::new(Asks(Arc::clone(&background), AtomicBool::new(false)));
        let waker = Waker::from(Arc::clone(&asks));
        assert!(waiting.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        background.alarm();
        assert!(asks.1.load(Ordering::SeqCst), "the mutex was held, or nobody was woken");
    }

    /// The memory that this process has.
    fn resident() -> usize {
        let read = std::fs::read_to_string("/proc/self/statm").unwrap();
        read.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4_096
    }

    /// Has many jobs under way at once, and waits until they are over. No job comes after them.
    fn work_off(background: &Background) {
        let (in_flight, may_end) = (InFlight::default(), Arc::new(tokio::sync::Semaphore::new(0)));
        for _ in 0..JOBS {
            let (guard, may_end) = (in_flight.join(), Arc::clone(&may_end));
            let job = move |_| async move {
                let _may_end = may_end.acquire().await;
                drop(guard);
            };
            background.here().run(job).unwrap();
        }
        background.block_on(|_| async {}).unwrap();
        may_end.add_permits(JOBS);
        let started = Instant::now();
        while in_flight.count() > 0 {
            assert!(started.elapsed() < Duration::from_secs(60), "{} left", in_flight.count());
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Run by the next test, in a process of its own: its memory is all that is measured.
    #[test]
    #[ignore = "run by `a_job_that_is_done_is_freed_at_once`"]
    fn jobs_leave_no_memory() {
        let background = || Background::new(&Store::Memory(Memory::new()));
        let janitors: Vec<_> = std::iter::repeat_with(background).take(14).collect();
        // What one has freed is used by the next one.
        let (first, others) = janitors.split_at(2);
        first.iter().for_each(work_off);
        let before = resident();
        others.iter().for_each(work_off);
        let more = resident().saturating_sub(before) / MEGABYTE;
        assert!(more < 6, "{more} MB");
    }

    #[test]
    fn a_job_that_is_done_is_freed_at_once() {
        let mut child = Command::new(std::env::current_exe().unwrap());
        let name = "engine::background::tests::jobs_leave_no_memory";
        // Its threads have their memory in common.
        child.env("MALLOC_ARENA_MAX", "1");
        let done = child.args(["--ignored", "--exact", name]).output().unwrap();
        let told = String::from_utf8_lossy(&done.stdout);
        assert!(done.status.success() && told.contains("1 passed"), "{told}");
    }
}
