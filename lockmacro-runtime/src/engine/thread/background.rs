//! The background thread: releases dropped locks, renews leases, and lends its runtime to blocking
//! callers.
//!
//! A dropped future cannot await its own release, and a task spawned for it dies with the runtime.
//! So every manager has one thread, started by the first task, with a small runtime and a connection
//! of its own. The thread ends when the manager and all its locks are gone and its work is done.
//!
//! With the feature `test-util`, the tasks are tasks of the caller's runtime where that has a
//! virtual clock. Leases end by that clock, so they have to be renewed by it as well. The virtual
//! clock does not advance while its runtime has work, so no other thread could follow it.
//!
//! A fork copies the memory of the process, but not the thread. A forked process starts none, and
//! its copies of locks are left to its parent.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::mpsc::channel;
use std::sync::{Arc, Weak};
use std::{io, process, thread};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::{mpsc, oneshot};

use crate::engine::thread::blocking::block_on;
#[cfg(feature = "test-util")]
use crate::engine::thread::blocking::may_block;
use crate::engine::thread::timers::{Enrolled, Timed, Timers};
use crate::engine::token::dropped::Cleanup;
use crate::engine::token::in_flight::{InFlight, InFlightGuard};
use crate::protocol::request::Request;
use crate::store::handle::Store;
use crate::sys::sync::Mutex;
use crate::sys::task::spawn;
use crate::sys::time::Moment;
#[cfg(feature = "test-util")]
use crate::sys::time::virtual_runtime;
use crate::value::error::{LockError, UnavailableReason};

type ThreadTask = Box<dyn FnOnce(Store) -> BoxFuture<'static, ()> + Send>;
type ThreadTasks = (mpsc::UnboundedSender<ThreadTask>, Handle);

/// The background thread of a manager.
#[derive(Debug)]
pub(crate) struct Background {
    /// The process that made the manager.
    process: u32,
    /// The store, through the connection of the thread.
    pub(crate) store: Store,
    pub(crate) timers: Arc<Timers>,
    cleanup: Arc<Cleanup>,
    thread: Mutex<Thread>,
}

#[derive(Debug, Default)]
struct Thread {
    tasks: Option<ThreadTasks>,
    /// A thread ends when its tasks are done, and does not wait for further ones.
    stopped: bool,
}

impl Background {
    /// A background thread for the locks of `store`. It starts with the first task.
    pub(crate) fn new(store: &Store) -> Self {
        Self {
            process: process::id(),
            store: store.apart(),
            timers: Default::default(),
            cleanup: Default::default(),
            thread: Default::default(),
        }
    }

    /// Whether this process was forked from the one that made the manager.
    pub(crate) fn is_forked(&self) -> bool {
        self.process != process::id()
    }

    /// Runs `timed` when it is `due`, and whenever its server may have been replaced, until the
    /// returned value is dropped. `None` where neither can be.
    ///
    /// `sent` is when the request that brought the lease was sent.
    pub(crate) fn watch(
        &self,
        timed: Weak<dyn Timed>,
        sent: Moment,
        due: Option<Moment>,
    ) -> Result<Option<Enrolled>, LockError> {
        let (enrolled, starts) = self.enroll(timed, sent, due);
        if starts {
            self.start()?;
        }
        Ok(enrolled)
    }

    /// The same, without the thread that runs it: if the second value is true, its caller
    /// [starts](Background::start) that once it holds no mutex.
    pub(crate) fn enroll(
        &self,
        timed: Weak<dyn Timed>,
        sent: Moment,
        due: Option<Moment>,
    ) -> (Option<Enrolled>, bool) {
        if due.is_none() && !self.store.facts.may_forget {
            return (None, false);
        }
        let (enrolled, due) = self.timers.enroll(timed, sent, due);
        // A lease that nothing will ever renew needs no thread.
        (Some(enrolled), due || self.store.facts.may_fail_over)
    }

    /// Starts the thread, unless it runs.
    pub(crate) fn start(&self) -> Result<(), LockError> {
        self.tasks().map(drop)
    }

    /// Keeps the thread from being started, until the result is dropped.
    #[cfg(test)]
    pub(crate) fn delay_start(&self) -> impl Sized + '_ {
        self.thread.lock()
    }

    /// Confirms every held lock at once.
    pub(crate) fn confirm_all(&self) {
        if self.timers.all_due(Moment::now())
            && let Err(error) = self.tasks()
        {
            tracing::error!(%error, "no thread confirms the held locks at the new server");
        }
    }

    /// Releases a dropped lock, see [`Cleanup`]. `guard` is dropped when the lock was released.
    pub(crate) fn clean_up(&self, request: Request, guard: InFlightGuard) {
        // The lock is that of the parent process, which goes on with it.
        if self.is_forked() {
            return;
        }
        let Some(dropped) = self.cleanup.take(request.clone(), guard) else { return };
        if let Err(error) = self.spawn(move |store| dropped.release(store)) {
            let key = request.ask.listed();
            tracing::error!(%key, %error, "dropped lock not released: it ends with its ttl");
        }
    }

    /// Runs `task` in the background, and waits until it is done. Locks that were dropped before are
    /// released on the same connection before its commands.
    #[cfg(any(feature = "defer", test))]
    pub(crate) async fn call<T, F, W>(&self, task: F) -> Result<T, LockError>
    where
        T: Send + 'static,
        F: FnOnce(Store) -> W + Send + 'static,
        W: Future<Output = T> + Send + 'static,
    {
        let (done, result) = oneshot::channel();
        self.spawn(move |store| async move {
            // Fails only when the caller was dropped.
            let _ = done.send(task(store).await);
        })?;
        result.await.map_err(|_| no_thread("it ended"))
    }

    /// Runs `task` in the background, and returns the runtime that runs it. The task is dropped when
    /// there is no thread.
    pub(crate) fn spawn<F, W>(&self, task: F) -> Result<Handle, LockError>
    where
        F: FnOnce(Store) -> W + Send + 'static,
        W: Future<Output = ()> + Send + 'static,
    {
        if self.is_forked() {
            return Err(no_thread("this process was forked"));
        }
        // Sent, or dropped, without the mutex, as what a task drops may start another one.
        let (sender, runtime) = self.tasks()?;
        let sent = sender.send(Box::new(move |store| Box::pin(task(store))));
        sent.map(|()| runtime).map_err(|_| no_thread("it ended"))
    }

    /// Ends the thread when its work is done: within a few seconds when no lock is held, see
    /// [`Cleanup::close`]. A later task gets a thread of its own.
    pub(crate) fn stop(&self) {
        self.timers.close();
        self.cleanup.close();
        *self.thread.lock() = Thread { tasks: None, stopped: true };
    }

    /// Blocks the thread until the future is ready, which runs as [`inside`](Background::inside).
    pub(crate) fn block_on<F: Future>(&self, future: F) -> Result<F::Output, LockError> {
        // That runtime may be the caller's own.
        #[cfg(feature = "test-util")]
        if virtual_runtime().is_some() {
            may_block()?;
        }
        block_on(self.inside(future))
    }

    /// Polls the future inside the runtime of the background thread, from any executor or thread:
    /// the caller may have no runtime, or block its own.
    pub(crate) async fn inside<F: Future>(&self, future: F) -> Result<F::Output, LockError> {
        // The runtime lasts until the future is dropped.
        let (_lasts, over) = oneshot::channel::<()>();
        let runtime = self.spawn(|_| over.map(drop))?;
        let mut future = pin!(future);
        let inside = poll_fn(|cx| {
            let _inside = runtime.enter();
            future.as_mut().poll(cx)
        });
        Ok(inside.await)
    }

    /// Where tasks run: the sender of the tasks, and the runtime. It may have been the caller's, and
    /// have ended: then the tasks start again.
    fn tasks(&self) -> Result<ThreadTasks, LockError> {
        let mut here = self.thread.lock();
        if let Some(tasks) = here.tasks.as_ref().filter(|(tasks, _)| !tasks.is_closed()) {
            return Ok(tasks.clone());
        }
        let tasks = start(self.store.clone()).map_err(no_thread)?;
        let timers = Arc::clone(&self.timers);
        let task: ThreadTask = Box::new(move |store| Box::pin(timers.work(store)));
        tasks.0.send(task).map_err(|_| no_thread("it ended"))?;
        // After a shutdown each task has a thread that ends with it, so that a lock which is
        // dropped late is released and nothing is left running.
        here.tasks = (!here.stopped).then(|| tasks.clone());
        Ok(tasks)
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Starts to run tasks, until the sender is dropped and all tasks are done.
fn start(store: Store) -> io::Result<ThreadTasks> {
    let (sender, tasks) = mpsc::unbounded_channel();
    #[cfg(feature = "test-util")]
    if let Some(runtime) = virtual_runtime() {
        spawn(work(store, tasks));
        return Ok((sender, runtime));
    }
    // The thread first: a runtime for which there is no thread may not be dropped here.
    let (give, runtime) = channel::<Runtime>();
    thread::Builder::new().name("lockmacro-bg".to_owned()).spawn(move || {
        if let Ok(runtime) = runtime.recv() {
            runtime.block_on(work(store, tasks));
        }
    })?;
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let handle = runtime.handle().clone();
    // The thread waits for it.
    let _ = give.send(runtime);
    Ok((sender, handle))
}

async fn work(store: Store, mut tasks: mpsc::UnboundedReceiver<ThreadTask>) {
    // Counted rather than kept, so that a finished task is freed at once.
    let in_flight = Arc::<InFlight>::default();
    while let Some(task) = tasks.recv().await {
        let guard = in_flight.join();
        let work = task(store.clone());
        spawn(async move {
            work.await;
            drop(guard);
        });
    }
    // The manager is gone. Its last tasks are finished first, and every task has an end.
    in_flight.empty().await;
}

fn no_thread(why: impl ToString) -> LockError {
    let detail = format!("the background thread could not run: {}", why.to_string());
    LockError::because(UnavailableReason::Local, detail)
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::store::memory::Memory;

    const TASKS: usize = 5_000;
    const MEGABYTE: usize = 1 << 20;

    #[tokio::test]
    async fn a_task_after_the_end_of_the_thread_leaves_no_thread() {
        let background = Background::new(&Store::of(Memory::new()));
        background.call(|_| async {}).await.unwrap();
        background.stop();
        for task in 0..3 {
            assert_eq!(background.call(move |_| async move { task }).await, Ok(task));
        }
        // Each thread has the store.
        let threads = || background.store.handles() - 1;
        let started = Instant::now();
        while threads() > 0 {
            assert!(started.elapsed() < Duration::from_secs(60), "{} left", threads());
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Resident memory of this process, in bytes.
    fn resident() -> usize {
        let read = std::fs::read_to_string("/proc/self/statm").unwrap();
        read.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4_096
    }

    /// Runs many tasks at once, and waits until all are over.
    fn work_off(background: &Background) {
        let in_flight = Arc::<InFlight>::default();
        let may_end = Arc::new(tokio::sync::Semaphore::new(0));
        for _ in 0..TASKS {
            let guard = in_flight.join();
            let may_end = Arc::clone(&may_end);
            let task = move |_| async move {
                let _may_end = may_end.acquire().await;
                drop(guard);
            };
            background.spawn(task).unwrap();
        }
        background.block_on(background.call(|_| async {})).unwrap().unwrap();
        may_end.add_permits(TASKS);
        let started = Instant::now();
        while in_flight.count() > 0 {
            assert!(started.elapsed() < Duration::from_secs(60), "{} left", in_flight.count());
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Run by the next test in a process of its own, so that no other test's memory is measured.
    #[test]
    #[ignore = "run by `a_task_that_is_done_is_freed_at_once`"]
    fn tasks_leave_no_memory() {
        let background = || Background::new(&Store::of(Memory::new()));
        let threads: Vec<_> = std::iter::repeat_with(background).take(14).collect();
        // The allocator reuses the memory that the first tasks have freed.
        let (first, others) = threads.split_at(2);
        first.iter().for_each(work_off);
        let before = resident();
        others.iter().for_each(work_off);
        let more = resident().saturating_sub(before) / MEGABYTE;
        assert!(more < 6, "{more} MB");
    }

    #[test]
    #[cfg_attr(not(target_os = "linux"), ignore = "it reads /proc")]
    fn a_task_that_is_done_is_freed_at_once() {
        let mut child = Command::new(std::env::current_exe().unwrap());
        let name = "engine::thread::background::tests::tasks_leave_no_memory";
        // One arena for all threads, so that one thread reuses the memory that another one has
        // freed.
        child.env("MALLOC_ARENA_MAX", "1");
        let done = child.args(["--ignored", "--exact", name]).output().unwrap();
        let output = String::from_utf8_lossy(&done.stdout);
        assert!(done.status.success() && output.contains("1 passed"), "{output}");
    }
}
