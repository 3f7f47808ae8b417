//! The worker, which runs jobs.

use std::future::pending;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::select;
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;

use crate::defer::DeferredFn;
use crate::defer::function::Deferrable;
use crate::defer::job::TakeOptions;
use crate::defer::job_queue::JOB_QUEUE;
use crate::defer::job_run::{PAUSES, run};
use crate::defer::manager::stored_as;
use crate::defer::metrics;
use crate::engine::core::inside_runtime;
use crate::engine::current;
use crate::manager::lock_manager::LockManager;
use crate::sys::backoff::jittered;
use crate::sys::random::HashMap;
use crate::sys::task::{JoinSet, owned};
use crate::value::error::LockError;

/// Default number of jobs that run at once.
const CONCURRENCY: usize = 16;
/// Default lease of a job.
const LEASE: Duration = Duration::from_secs(30);
const LEASE_MIN: Duration = Duration::from_millis(100);
const LEASE_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// Default time for which jobs may go on after the worker is stopped. A shutdown within 5 s then
/// has time to return them to the queue.
const GRACE: Duration = Duration::from_secs(3);

/// Runs the jobs of the functions that are registered with it, inside of a service or as
/// a process of its own. Any number of workers share the work.
///
/// - A worker takes jobs when they are due. A new job that is due earlier than the others wakes
///   the worker.
/// - A job of a function that is not registered here is left to a worker that has it.
/// - While a job runs, its worker renews the job's lease, on another thread when the job blocks
///   its own. A job whose worker has died is due again [within 30 s](Worker::lease).
/// - A job that blocks the only thread or all threads of the runtime for that long goes to another
///   worker while it still runs. Use [`DeferredFn::blocking`] or `spawn_blocking` for such jobs.
/// - A job that fails is due again after twice its function's delay, which doubles each time. It
///   is dead after its last attempt.
/// - A job whose arguments cannot be read here is left to other workers, as during an upgrade. It
///   is dead after an hour.
/// - A job whose lock is busy has not failed. It is due again after about the delay, or soon after
///   the holder's lease ends if that is earlier.
///
/// ```
/// # use std::time::Duration;
/// # use lockmacro_runtime::{LockError, LockManager};
/// # use lockmacro_runtime::defer::{DeferredFn, Worker, argument};
/// # async fn audit_order(id: u64) -> Result<(), LockError> { Ok(()) }
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
/// # let locks = LockManager::isolated_memory();
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
    functions: HashMap<Arc<str>, Deferrable>,
    /// A name under which two functions were registered.
    twice: Option<Arc<str>>,
    concurrency: usize,
    lease: Duration,
    grace: Duration,
}

impl Worker {
    /// Makes a worker for the jobs in the queue of `manager`.
    ///
    /// ```
    /// # use lockmacro_runtime::defer::Worker;
    /// # use lockmacro_runtime::LockManager;
    /// # let locks = LockManager::isolated_memory();
    /// let worker = Worker::new(&locks).concurrency(4);
    /// ```
    pub fn new(manager: &LockManager) -> Self {
        let manager = manager.clone();
        let functions = HashMap::default();
        let concurrency = CONCURRENCY;
        let lease = LEASE;
        let grace = GRACE;
        Self { manager, functions, twice: None, concurrency, lease, grace }
    }

    /// Registers a function, such as `audit_order_deferred()`: the worker runs all stored jobs of
    /// it, [whoever has stored them](super#trust).
    ///
    /// ```
    /// # use lockmacro_runtime::LockManager;
    /// # use lockmacro_runtime::defer::{DeferredFn, Worker, argument};
    /// # let locks = LockManager::isolated_memory();
    /// let audits = DeferredFn::new("orders.audit", (argument("id"),), |(id,): (u64,)| async move {
    ///     println!("order {id}");
    /// });
    /// let worker = Worker::new(&locks).register(audits);
    /// ```
    pub fn register<A>(mut self, function: DeferredFn<A>) -> Self {
        let name = Arc::clone(&function.function.name);
        metrics::works_for(&name);
        if self.functions.insert(Arc::clone(&name), function.function).is_some() {
            self.twice = Some(name);
        }
        self
    }

    /// Sets how many jobs run at once, by default 16 and at least one.
    ///
    /// ```
    /// # use lockmacro_runtime::defer::Worker;
    /// # use lockmacro_runtime::LockManager;
    /// # let locks = LockManager::isolated_memory();
    /// let worker = Worker::new(&locks).concurrency(8);
    /// ```
    pub fn concurrency(mut self, most: usize) -> Self {
        self.concurrency = most.clamp(1, Semaphore::MAX_PERMITS.min(1 << 20));
        self
    }

    /// Sets the lease of a job, by default 30 s and at least 100 ms. The jobs of a worker that
    /// has died are due again after the lease. A worker renews its leases three times as often.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use lockmacro_runtime::defer::Worker;
    /// # use lockmacro_runtime::LockManager;
    /// # let locks = LockManager::isolated_memory();
    /// let worker = Worker::new(&locks).lease(Duration::from_secs(120));
    /// ```
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease.clamp(LEASE_MIN, LEASE_MAX);
        self
    }

    /// Sets how long jobs may go on when the worker is stopped, by default 3 s.
    ///
    /// A job that is not done then is dropped at its next await and returned to the queue, which
    /// is tried once. Give [`shutdown`](LockManager::shutdown) at least two seconds more than this.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use lockmacro_runtime::defer::Worker;
    /// # use lockmacro_runtime::LockManager;
    /// # let locks = LockManager::isolated_memory();
    /// let worker = Worker::new(&locks).grace(Duration::from_secs(10));
    /// ```
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Takes and runs jobs until the manager is shut down.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use lockmacro_runtime::defer::Worker;
    /// # use lockmacro_runtime::{LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// # let locks = LockManager::isolated_memory();
    /// let working = tokio::spawn(Worker::new(&locks).run());
    /// locks.shutdown(Duration::from_secs(5)).await?; // ends the worker as well
    /// # drop(working);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`run_until`](Worker::run_until).
    ///
    /// # Cancellation
    /// As [`run_until`](Worker::run_until).
    pub async fn run(self) -> Result<(), LockError> {
        self.run_until(pending()).await
    }

    /// Takes and runs jobs until `stop` is ready, or the manager is shut down.
    ///
    /// The worker takes no more jobs then. It lets the running jobs go on for the
    /// [grace](Worker::grace), and returns the others to the queue. While the server fails or does
    /// not answer, the worker keeps asking, without a limit.
    ///
    /// # Errors
    /// - [`LockError::NoRuntime`] outside of tokio;
    /// - [`LockError::ShutDown`];
    /// - [`LockError::InvalidSetting`] where the manager has no queue for jobs, and when two
    ///   functions were registered under one name;
    /// - [`LockError::AccessDenied`] when the user lacks a right or a key that the jobs of a
    ///   registered function need, as far as the server reports that when the worker first asks for
    ///   them. The worker then lets its running jobs end as when it is stopped.
    ///
    /// # Cancellation
    /// Dropping the future drops the running jobs at their next await. They are due again when
    /// their leases are over.
    pub async fn run_until(self, stop: impl Future<Output = ()>) -> Result<(), LockError> {
        inside_runtime()?;
        if let Some(name) = self.twice {
            let detail = format!(
                "two deferred functions are named `{name}`, or one was registered twice: give one \
                 of them another name with `name = \"…\"`"
            );
            return Err(LockError::invalid("name", detail));
        }
        for Deferrable { name, site, .. } in self.functions.values() {
            self.manager.core().sites.check(name, site)?;
        }
        // A shutdown waits until the jobs are settled.
        let _member = self.manager.core().enter()?;
        let (stopping, stopped) = watch::channel(false);
        let (interrupt, interrupted) = watch::channel(false);
        let mut running = JoinSet::new();
        let taken = {
            let mut taking = pin!(self.take(&mut running, stopped, interrupted));
            let refused = select! {
                biased;
                () = stop => None,
                () = self.manager.core().shutdown.closed() => None,
                refused = &mut taking => Some(refused),
            };
            stopping.send_replace(true);
            match refused {
                Some(refused) => refused,
                // Not dropped, because it may have taken jobs already.
                None => taking.await,
            }
        };
        let all_done = async { while running.join_next().await.is_some() {} };
        if timeout(self.grace, all_done).await.is_err() {
            interrupt.send_replace(true);
            while running.join_next().await.is_some() {}
        }
        taken
    }

    /// Takes jobs and runs them, until it is stopped.
    async fn take(
        &self,
        running: &mut JoinSet<()>,
        mut stopped: watch::Receiver<bool>,
        interrupted: watch::Receiver<bool>,
    ) -> Result<(), LockError> {
        let job_queue = self.manager.job_queue();
        let free = Arc::new(Semaphore::new(self.concurrency));
        let prefix = &self.manager.core().defaults.prefix;
        let functions: Vec<_> =
            self.functions.keys().map(|name| stored_as(&self.manager, name)).collect();
        let mut backoff = PAUSES;
        let mut was_allowed = false;
        while !*stopped.borrow() {
            while running.try_join_next().is_some() {}
            let mut permit = select! {
                biased;
                _ = stopped.wait_for(|stopped| *stopped) => return Ok(()),
                permit = Arc::clone(&free).acquire_owned() => permit.ok(),
            };
            let functions = functions.clone();
            let most = 1 + free.available_permits();
            let options = TakeOptions { functions, limit: most, lease: self.lease };
            let mut stop_waiting = stopped.clone();
            let stop_waiting = async move {
                // An error means that the sender is gone: the worker stops then as well.
                let _ = stop_waiting.wait_for(|stopped| *stopped).await;
            };
            match job_queue.take(options, Box::pin(stop_waiting)).await {
                Ok(jobs) => {
                    backoff.reset();
                    was_allowed = true;
                    for job in jobs {
                        let name = job.function.strip_prefix(&**prefix).unwrap_or_default();
                        let Some(function) = self.functions.get(name) else { continue };
                        let manager = self.manager.clone();
                        let function = function.clone();
                        let job_queue = Arc::clone(&job_queue);
                        let interrupt = interrupted.clone();
                        let run = run(manager, job_queue, function, job, self.lease, interrupt);
                        let free = || Arc::clone(&free).try_acquire_owned().ok();
                        let permit = permit.take().or_else(free);
                        running.spawn(owned(current::around(current::here(), async move {
                            run.await;
                            drop(permit);
                        })));
                    }
                }
                Err(error @ LockError::InvalidSetting { setting: JOB_QUEUE, .. }) => {
                    return Err(error);
                }
                // A right that is taken away later may be back soon.
                Err(error @ LockError::AccessDenied { .. }) if !was_allowed => return Err(error),
                Err(error) => {
                    if error.is_of_servers() && !job_queue.take_failed(&error) {
                        tracing::debug!(%error, "jobs could not be taken")
                    } else {
                        tracing::warn!(%error, "jobs could not be taken")
                    }
                    let _ = timeout(jittered(backoff.step()), stopped.wait_for(|stopped| *stopped))
                        .await;
                }
            }
        }
        Ok(())
    }
}
