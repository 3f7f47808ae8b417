//! What runs deferred calls.

use std::collections::HashMap;
use std::future::pending;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::select;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::defer::DeferredFn;
use crate::defer::function::Function;
use crate::defer::job_run::JobRun;
use crate::engine::core::inside_runtime;
use crate::engine::current::Current;
use crate::jobs::call::TakeOptions;
use crate::manager::lock_manager::LockManager;
use crate::value::backoff::Backoff;
use crate::value::error::LockError;

/// So many calls are run at once if nothing else is said.
const CONCURRENCY: usize = 16;
/// How long a call stays a worker's without a word from it, if nothing else is said.
const LEASE: Duration = Duration::from_secs(30);
const LEASE_MIN: Duration = Duration::from_millis(100);
const LEASE_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// How long calls may go on when the worker is stopped, so that a shutdown within 5 s can give them back.
const GRACE: Duration = Duration::from_secs(3);
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// Longest pause while the server cannot be asked.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Runs the deferred calls of some functions, inside of a service or as a process of its own. Any
/// number of workers share the work.
///
/// A worker takes calls when they are due, and is woken by one that is due earlier than those before. A
/// call of a function that it does not know is left to a worker that knows it. While a call runs its
/// worker is heard of, by another thread when the call blocks its own; a call whose worker has died is due
/// again [within 30 s](Worker::lease). Calls that block all threads of the runtime, or the only one, for as
/// long as that go to another worker while they run: use [`DeferredFn::blocking`], or `spawn_blocking`. One
/// that fails is due again after twice its function's delay, which doubles each time, and becomes a dead letter after so many
/// attempts, or at once when its arguments cannot be read. One whose lock is busy has not failed, and is due again after
/// about the delay, or soon after the holder's lease ends if that is earlier.
///
/// ```
/// # use std::time::Duration;
/// # use lockmacro_runtime::{LockError, LockManager};
/// # use lockmacro_runtime::defer::{DeferredFn, Worker, argument};
/// # async fn audit_order(id: u64) -> Result<(), LockError> { Ok(()) }
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
/// # let locks = LockManager::memory();
/// let audits = DeferredFn::new("orders::audit", (argument("id"),), |(id,)| audit_order(id));
/// let worker = Worker::new(&locks)
///     .register(audits)
///     .concurrency(4);
/// let working = tokio::spawn(worker.run());
/// # tokio::task::yield_now().await;
/// // … the program; when it ends:
/// locks.shutdown(Duration::from_secs(5)).await?;
/// # assert!(working.await.is_ok());
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "a worker does nothing until it runs"]
pub struct Worker {
    manager: LockManager,
    functions: HashMap<Arc<str>, Function>,
    /// A name that two of them have.
    twice: Option<Arc<str>>,
    concurrency: usize,
    lease: Duration,
    grace: Duration,
}

impl Worker {
    /// A worker for the calls that are kept by `manager`.
    pub fn new(manager: &LockManager) -> Self {
        let (manager, functions) = (manager.clone(), HashMap::new());
        let (concurrency, lease, grace) = (CONCURRENCY, LEASE, GRACE);
        Self { manager, functions, twice: None, concurrency, lease, grace }
    }

    /// Has the worker run the calls of a function, such as `audit_order::deferred()`: all that are
    /// stored,
    /// [whoever has stored them](super#trust).
    pub fn register<A>(mut self, function: DeferredFn<A>) -> Self {
        let name = Arc::clone(&function.function.name);
        if self.functions.insert(Arc::clone(&name), function.function).is_some() {
            self.twice = Some(name);
        }
        self
    }

    /// How many calls are run at once, 16 if nothing is said; at least one.
    pub fn concurrency(mut self, most: usize) -> Self {
        self.concurrency = most.clamp(1, Semaphore::MAX_PERMITS.min(1 << 20));
        self
    }

    /// How long the calls of a worker that died stay its own, 30 s if nothing is said, at least 100 ms. A
    /// worker that lives is heard of three times as often.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease.clamp(LEASE_MIN, LEASE_MAX);
        self
    }

    /// How long calls may go on when the worker is stopped, 3 s if nothing is said. What is not done then is
    /// dropped at its next await, and goes back; that is tried once. Give
    /// [`shutdown`](LockManager::shutdown) two seconds more than this at least.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Works until the manager is shut down.
    ///
    /// # Errors
    /// As [`run_until`](Worker::run_until).
    ///
    /// # Cancellation
    /// As [`run_until`](Worker::run_until).
    pub async fn run(self) -> Result<(), LockError> {
        self.run_until(pending()).await
    }

    /// Works until `stop` is ready, or the manager is shut down. Takes no more calls then, gives those
    /// that run the [grace](Worker::grace), and gives the others back. A server in trouble is asked
    /// again, for as long as it takes.
    ///
    /// # Errors
    /// [`LockError::NoRuntime`]; [`LockError::ShutDown`]; [`LockError::NoDeferrer`] where the manager
    /// has no queue for calls; [`LockError::DuplicateName`] when two functions were registered under
    /// one name; [`LockError::AccessDenied`] when the user lacks a right or a key that the calls of a
    /// registered function need, as far as the server tells that when the worker starts.
    ///
    /// # Cancellation
    /// Dropping the future drops the calls that run at their next await. They are due again when their
    /// leases are over.
    pub async fn run_until(self, stop: impl Future<Output = ()>) -> Result<(), LockError> {
        inside_runtime()?;
        if let Some(name) = self.twice {
            return Err(LockError::DuplicateName { name: name.to_string() });
        }
        // A shutdown waits until it is told how the calls have ended.
        let _member = self.manager.core().enter()?;
        let (stopping, stopped) = watch::channel(false);
        let (give_back, back) = watch::channel(false);
        let mut running = JoinSet::new();
        {
            let mut taking = pin!(self.take(&mut running, stopped, back));
            select! {
                () = stop => {}
                () = self.manager.core().shutdown().closed() => {}
                refused = &mut taking => return refused,
            }
            stopping.send_replace(true);
            // Not dropped half-way: it may have taken calls already.
            taking.await?;
        }
        let all_done = async { while running.join_next().await.is_some() {} };
        if timeout(self.grace, all_done).await.is_err() {
            give_back.send_replace(true);
            while running.join_next().await.is_some() {}
        }
        Ok(())
    }

    /// Takes calls and runs them, until it is stopped.
    async fn take(
        &self,
        running: &mut JoinSet<()>,
        mut stopped: watch::Receiver<bool>,
        back: watch::Receiver<bool>,
    ) -> Result<(), LockError> {
        let deferrer = self.manager.deferrer();
        let free = Arc::new(Semaphore::new(self.concurrency));
        let defaults = self.manager.core().defaults();
        let functions: Vec<_> =
            self.functions.keys().map(|name| defaults.stored_as(name)).collect();
        // A user who may not take calls would never be told otherwise, but by the log.
        let allowed = deferrer.allowed(functions.clone()).await;
        if let Err(error @ LockError::AccessDenied { .. }) = allowed {
            return Err(error);
        }
        let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
        while !*stopped.borrow() {
            while running.try_join_next().is_some() {}
            let mut place = select! {
                _ = stopped.wait_for(|stopped| *stopped) => return Ok(()),
                place = Arc::clone(&free).acquire_owned() => place.ok(),
            };
            let (functions, most) = (functions.clone(), 1 + free.available_permits());
            let order = TakeOptions { functions, most, lease: self.lease };
            let mut enough = stopped.clone();
            let enough = async move {
                // Also when nobody is left who could stop it.
                let _ = enough.wait_for(|stopped| *stopped).await;
            };
            match deferrer.take(order, Box::pin(enough)).await {
                Ok(jobs) => {
                    backoff.reset();
                    for job in jobs {
                        let name = job.function.strip_prefix(defaults.prefix()).unwrap_or_default();
                        let Some(function) = self.functions.get(name) else { continue };
                        let job_run = JobRun {
                            manager: self.manager.clone(),
                            deferrer: Arc::clone(&deferrer),
                            function: function.clone(),
                            job,
                            lease: self.lease,
                        };
                        // Before the call, so that another thread has it when the call blocks this one.
                        let (keeper, back) = (job_run.keeper(), back.clone());
                        let free = || Arc::clone(&free).try_acquire_owned().ok();
                        let place = place.take().or_else(free);
                        running.spawn(Current::here().around(async move {
                            job_run.run(keeper, back).await;
                            drop(place);
                        }));
                    }
                }
                Err(error @ LockError::NoDeferrer) => return Err(error),
                Err(error) => {
                    match error.is_of_servers() && !deferrer.call_failed(&error) {
                        true => tracing::debug!(%error, "deferred calls could not be taken"),
                        false => tracing::warn!(%error, "deferred calls could not be taken"),
                    }
                    let pause = sleep(backoff.next());
                    select! {
                        _ = stopped.wait_for(|stopped| *stopped) => return Ok(()),
                        () = pause => {}
                    }
                }
            }
        }
        Ok(())
    }
}
