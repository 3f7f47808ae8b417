//! A function whose calls can be deferred. Long, because its items have examples.

use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, thread};

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::oneshot;
use tokio::task::spawn_blocking;

use crate::defer::arguments::Arguments;
use crate::defer::job::{Keep, NewJob, Stored};
use crate::defer::job_queue::JobQueue;
use crate::defer::limits::{ATTEMPTS, check_size};
use crate::defer::manager::stored_as;
use crate::defer::metrics;
use crate::defer::outcome::{JobEnd, JobOutcome};
use crate::defer::running::{Claim, RunningJob, is_running, new_id, this_job};
use crate::engine::current;
use crate::guard::LockGuard;
use crate::manager::lock_manager::LockManager;
use crate::sys::backoff::{Backoff, jittered};
use crate::sys::random;
use crate::sys::sync::Mutex;
use crate::sys::time::Instant;
use crate::value::error::LockError;

/// Default delay before the first attempt.
const DELAY: Duration = Duration::from_secs(30);
/// Longest delay before the first attempt, as a queue that is not used for 30 days expires.
const FIRST_DELAY_MAX: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// Longest delay between two attempts, unless the first delay is longer.
const DELAY_MAX: Duration = Duration::from_secs(60 * 60);
/// Longest delay while the lock is busy, unless the first delay is longer.
const BUSY_MAX: Duration = Duration::from_secs(60);
/// Longest id of a job that is stored by hand, in bytes. PostgreSQL has it in an index.
const ID_MAX: usize = 1_000;
/// How long a job is left to other workers that this worker cannot read.
const UNFIT_MAX: Duration = Duration::from_secs(60 * 60);
/// Least growth of the delay each time that the lock is busy.
const BUSY_STEP: Duration = Duration::from_millis(10);
/// Largest number of times that a job may be busy.
const TIMES_BUSY: u32 = 1_000;

type JobAttempt = Pin<Box<dyn Future<Output = JobEnd> + Send>>;
/// Writes the arguments as text.
type Write<A> = dyn Fn(&A) -> Result<String, String> + Send + Sync;
/// The manager for these arguments, which are returned.
type Choose<A> = fn(A) -> (LockManager, A);
type StartJob = dyn Fn(Claim) -> Result<JobAttempt, String> + Send + Sync;

/// A function whose calls can be deferred, and its settings.
///
/// For each function with `on_busy = defer("30s")` the attribute makes one, which
/// `audit_order_deferred()` returns. Register it with a [`Worker`](crate::defer::Worker). By hand:
///
/// ```
/// use std::time::Duration;
/// use lockmacro_runtime::LockError;
/// use lockmacro_runtime::defer::{DeferredFn, argument};
///
/// async fn audit_order(id: u64, note: String) -> Result<(), LockError> { Ok(()) }
///
/// let arguments = (argument("id"), argument("note"));
/// let audits = DeferredFn::new("orders::audit", arguments, |(id, note)| audit_order(id, note))
///     .delay(Duration::from_secs(30))
///     .attempts(5);
/// assert_eq!(audits.name(), "orders::audit");
/// ```
#[must_use = "a deferred function does nothing until a worker has it"]
pub struct DeferredFn<A> {
    pub(crate) function: Deferrable,
    manager: Option<LockManager>,
    /// How the manager is chosen where none is set.
    choose: Option<Choose<A>>,
    write: Arc<Write<A>>,
}

/// The part of a [`DeferredFn`] that a worker needs.
#[derive(Clone)]
pub(crate) struct Deferrable {
    pub(crate) name: Arc<str>,
    pub(crate) site: &'static Location<'static>,
    delay: Duration,
    attempts: u32,
    keep: Keep,
    /// Whether the function is not async: it cannot be stopped once it runs.
    pub(crate) blocking: bool,
    call: Arc<StartJob>,
    /// The jobs that this process cannot read, by id, and since when.
    unfit: Arc<Mutex<random::HashMap<String, Instant>>>,
}

impl<A> DeferredFn<A> {
    /// Makes a deferred function of `function`, which takes its
    /// [arguments](crate::defer::argument) as a tuple.
    ///
    /// Jobs are stored under `name`, so keep the name from one version of a program to the next.
    ///
    /// ```
    /// # use lockmacro_runtime::defer::{DeferredFn, argument};
    /// let audits = DeferredFn::new("orders.audit", (argument("id"),), |(id,): (u64,)| async move {
    ///     println!("order {id}");
    /// });
    /// assert_eq!(audits.name(), "orders.audit");
    /// ```
    #[track_caller]
    pub fn new<S, F, R>(name: impl Into<Arc<str>>, arguments: S, function: F) -> Self
    where
        S: Arguments<Values = A>,
        F: Fn(A) -> R + Send + Sync + 'static,
        R: Future<Output: JobOutcome> + Send + 'static,
    {
        Self::of(name.into(), false, arguments, move |running, arguments| {
            Box::pin(running.around(function(arguments)))
        })
    }

    /// Makes a deferred function of a `function` that is not async. It is called on a thread that
    /// may block.
    ///
    /// ```
    /// # use lockmacro_runtime::defer::{DeferredFn, argument};
    /// let audits = DeferredFn::blocking("orders.audit", (argument("id"),), |(id,): (u64,)| {
    ///     println!("order {id}");
    /// });
    /// ```
    #[track_caller]
    pub fn blocking<S, F, R>(name: impl Into<Arc<str>>, arguments: S, function: F) -> Self
    where
        A: Send + 'static,
        S: Arguments<Values = A>,
        F: Fn(A) -> R + Send + Sync + 'static,
        R: JobOutcome,
    {
        let function = Arc::new(function);
        Self::of(name.into(), true, arguments, move |running, arguments| {
            let function = Arc::clone(&function);
            let scope = current::here();
            let call =
                move || current::enter(scope.as_ref(), || running.enter(|| function(arguments)));
            Box::pin(on_a_blocking_thread(call))
        })
    }

    #[track_caller]
    fn of<S: Arguments<Values = A>>(
        name: Arc<str>,
        blocking: bool,
        arguments: S,
        call: impl Fn(RunningJob, A) -> JobAttempt + Send + Sync + 'static,
    ) -> Self {
        let arguments = Arc::new(arguments);
        let its = Arc::clone(&arguments);
        let function = Arc::clone(&name);
        let call = move |claim: Claim| {
            let unfit = |error| format!("its arguments do not fit the function: {error}");
            let arguments = its.read(&claim.job.arguments).map_err(unfit)?;
            let text = its.write(&arguments).map_err(unfit)?;
            Ok(call(RunningJob::new(claim, &function, text), arguments))
        };
        let delay = DELAY;
        let attempts = ATTEMPTS;
        let call = Arc::new(call);
        let unfit = Arc::default();
        let site = Location::caller();
        let keep = Keep::All;
        let function = Deferrable { name, site, delay, attempts, keep, blocking, call, unfit };
        let write = Arc::new(move |values: &A| arguments.write(values));
        Self { function, manager: None, choose: None, write }
    }

    /// Sets the delay before a job is first tried, by default 30 s and at most seven days.
    ///
    /// The delay doubles with each attempt that fails, up to an hour. While the lock is busy, the
    /// delay stays about the same, or ends soon after the holder's lease.
    pub fn delay(mut self, delay: Duration) -> Self {
        self.function.delay = delay.min(FIRST_DELAY_MAX);
        self
    }

    /// Sets how often a job is tried before it is dead, by default 10 times.
    ///
    /// A job whose lock is busy does not count as tried. After it was busy 1,000 times it is
    /// dead as well.
    pub fn attempts(mut self, attempts: u32) -> Self {
        self.function.attempts = attempts.max(1);
        self
    }

    /// Stores at most one waiting job for each key: another job with the same key is not stored,
    /// whatever its arguments are.
    ///
    /// A job that a worker runs already does not count, because it may have started before the
    /// event that the new job is for.
    pub fn unique(mut self) -> Self {
        self.function.keep = Keep::First;
        self
    }

    /// Stores at most one waiting job for each key, with the arguments of the latest one: another
    /// job with the same key replaces the arguments of the waiting job, which has all its
    /// attempts again.
    ///
    /// The job stays due when the first one was, so that it cannot be put off for ever. Only one
    /// that was tried before is due after the delay of the new job. A job that a worker runs
    /// already is not changed: the next job waits beside it.
    ///
    /// A job that gets the lock [supersedes](DeferredFn::supersede) the waiting one.
    pub fn latest(mut self) -> Self {
        if !matches!(self.function.keep, Keep::Latest { .. }) {
            self.function.keep = Keep::Latest { at_most: None };
        }
        self
    }

    /// Stores at most one waiting job for each key as [`latest`](DeferredFn::latest) does, and
    /// puts it off by the delay with each other job: a debounce. It is due at most `at_most` after
    /// the first one was stored. That is at most seven days, and has an effect if it is longer than
    /// the delay.
    pub fn at_most(mut self, at_most: Duration) -> Self {
        self.function.keep = Keep::Latest { at_most: Some(at_most.min(FIRST_DELAY_MAX)) };
        self
    }

    /// Sets the manager in whose store the jobs are kept, instead of the installed one and of
    /// `manager = …` in the attribute.
    pub fn manager(mut self, manager: &LockManager) -> Self {
        self.manager = Some(manager.clone());
        self
    }

    /// Chooses the manager by the arguments, where none is set: `manager = …` in the attribute.
    #[doc(hidden)]
    pub fn manager_by(mut self, choose: fn(A) -> (LockManager, A)) -> Self {
        self.choose = Some(choose);
        self
    }

    /// Returns the name under which jobs are stored.
    pub fn name(&self) -> &str {
        &self.function.name
    }

    /// Stores a job with these arguments, a tuple, because its lock is `busy`. Returns the error
    /// for the caller: [`LockError::Deferred`], or why the job could not be stored.
    ///
    /// - In a worker that runs this very call, it returns `busy`: the worker runs the job again.
    /// - In the body of another job, the job is stored once for all attempts of that
    ///   other job, until 30 s after it is done.
    ///
    /// ```
    /// # use lockmacro_runtime::defer::{DeferredFn, argument};
    /// # use lockmacro_runtime::{Lock, LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// # let locks = LockManager::isolated_memory();
    /// # let audits = DeferredFn::new("orders.audit", (argument("id"),), |(_,): (u64,)| async {});
    /// let order = Lock::new("order:42").manager(&locks);
    /// let _guard = order.acquire().await?;
    /// let busy = order.acquire().await.expect_err("it is held");
    /// let stored = audits.manager(&locks).defer(busy, (42,)).await;
    /// assert!(matches!(stored, LockError::Deferred { .. }));
    /// # Ok(()) }
    /// ```
    ///
    /// # Cancellation
    /// When the future is dropped, the job may have been stored.
    pub async fn defer(self, busy: LockError, arguments: A) -> LockError {
        let name = Arc::clone(&self.function.name);
        let (this, arguments) = self.with_manager_for(arguments);
        match this.new_job(&busy, &arguments) {
            Ok((manager, job)) => deferred(&name, busy, manager.job_queue().put(job).await),
            Err(error) => error,
        }
    }

    /// Stores a job as [`defer`](DeferredFn::defer) does, in code that is not async.
    pub fn defer_blocking(self, busy: LockError, arguments: A) -> LockError {
        let name = Arc::clone(&self.function.name);
        let (this, arguments) = self.with_manager_for(arguments);
        let (manager, job) = match this.new_job(&busy, &arguments) {
            Ok(new) => new,
            Err(error) => return error,
        };
        let background = &manager.core().background;
        let job_queue = manager.core().jobs.queue_apart(&background.store);
        deferred(&name, busy, background.block_on(job_queue.put(job)).and_then(|stored| stored))
    }

    /// Stores a job with these arguments, a tuple, whoever holds the lock. It is due at once, and
    /// waits beside the others, also beside the one of a [`unique`](DeferredFn::unique) function.
    ///
    /// A job with this `id`, of 1 to 1,000 bytes, is stored once, also when it was done within the
    /// last 30 s, and not again while it is dead: then, too, this returns `Ok`.
    ///
    /// The job is stored in the manager that was [set](DeferredFn::manager), or else in that of
    /// `manager = …` in the attribute for these arguments, or else in the installed one. The
    /// attribute's is not known where its expression has an `await`, a `?` or a `return`: set one.
    ///
    /// ```
    /// # use lockmacro_runtime::defer::{DeferredFn, argument};
    /// # use lockmacro_runtime::{LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// # let locks = LockManager::isolated_memory();
    /// # let audits = DeferredFn::new("orders.audit", (argument("id"),), |(_,): (u64,)| async {});
    /// let stored = audits.manager(&locks).enqueue("audit-42", (42,)).await?;
    /// assert_eq!(stored.id, "audit-42");
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// - those of the server, and [`LockError::ShutDown`];
    /// - [`LockError::InvalidSetting`] for such an id, and for arguments that are too large or that
    ///   JSON changes, such as `NaN` and `Some(None)`: the text names the argument;
    /// - [`LockError::InvalidSetting`] for a function that keeps the
    ///   [latest](DeferredFn::latest) job of each key: jobs by hand have no key, so none of them
    ///   would be the latest.
    ///
    /// # Cancellation
    /// When the future is dropped, the job may have been stored.
    pub async fn enqueue(self, id: impl Into<String>, arguments: A) -> Result<Stored, LockError> {
        let id = id.into();
        if id.is_empty() || id.len() > ID_MAX || id.contains('\0') {
            let detail = format!("an id has 1 to {ID_MAX} bytes, without a NUL");
            return Err(LockError::invalid("id", detail));
        }
        if matches!(self.function.keep, Keep::Latest { .. }) {
            let detail = "a function that keeps the latest job takes none by hand: call it instead";
            return Err(LockError::invalid("latest", detail));
        }
        let (this, arguments) = self.with_manager_for(arguments);
        let arguments = this.text(&arguments)?;
        let (manager, job) = this.of_text(id, String::new(), arguments)?;
        if manager.core().shutdown.is_closed() {
            return Err(LockError::SHUT_DOWN);
        }
        let job = NewJob { delay: Duration::ZERO, keep: Keep::All, ..job };
        manager.job_queue().put(job).await
    }

    /// Removes the older job of this function that waits for the key of `lock`, so that it does
    /// not run after the newer one that has the lock now. Call it under the lock, before the work.
    /// Functions with the attribute do so.
    ///
    /// It does nothing unless the function keeps the [latest](DeferredFn::latest) job. Jobs that
    /// were stored since the lock was asked for are newer, and stay. An older job that a worker
    /// has already taken, and that waits for the lock, does not run its body.
    ///
    /// # Errors
    /// Do not start the work after an error, as a job of another value could follow it:
    /// - those of the server;
    /// - [`LockError::Deferred`] in a worker whose job was superseded itself.
    ///
    /// # Cancellation
    /// When the future is dropped, the older job may have been removed.
    pub async fn supersede(self, lock: &LockGuard) -> Result<(), LockError> {
        match self.superseding(lock)? {
            Some((manager, superseding)) => superseding.ask(manager.job_queue()).await,
            None => Ok(()),
        }
    }

    /// Removes the older job as [`supersede`](DeferredFn::supersede) does, in code that is not
    /// async.
    pub fn supersede_blocking(self, lock: &LockGuard) -> Result<(), LockError> {
        let Some((manager, superseding)) = self.superseding(lock)? else { return Ok(()) };
        let background = &manager.core().background;
        let job_queue = manager.core().jobs.queue_apart(&background.store);
        background.block_on(superseding.ask(job_queue)).and_then(|superseded| superseded)
    }

    fn superseding(
        self,
        lock: &LockGuard,
    ) -> Result<Option<(LockManager, Superseding)>, LockError> {
        let Deferrable { name, keep, .. } = self.function;
        if !matches!(keep, Keep::Latest { .. }) {
            return Ok(None);
        }
        let manager = self.manager.map_or_else(LockManager::current, Ok)?;
        let key = lock.key().to_string();
        let function = stored_as(&manager, &name);
        // A call inside of an outer body that has the lock began just now.
        let began = if lock.is_joined() {
            Duration::ZERO
        } else {
            lock.lock.held.request.ask.asked.elapsed()
        };
        let running = this_job(&name, &key);
        Ok(Some((manager, Superseding { function, key, began, running })))
    }

    /// The same with the manager for these arguments.
    fn with_manager_for(mut self, arguments: A) -> (Self, A) {
        match self.choose.filter(|_| self.manager.is_none()) {
            Some(choose) => {
                let (manager, arguments) = choose(arguments);
                self.manager = Some(manager);
                (self, arguments)
            }
            None => (self, arguments),
        }
    }

    /// The job to store; the error is `busy` in a worker that runs this job.
    fn new_job(self, busy: &LockError, arguments: &A) -> Result<(LockManager, NewJob), LockError> {
        let arguments = self.text(arguments)?;
        let name = &self.function.name;
        if is_running(name, &arguments, busy) {
            return Err(busy.clone());
        }
        let key = busy.busy_key().map(ToString::to_string).unwrap_or_default();
        let id = new_id(name, &arguments);
        self.of_text(id, key, arguments)
    }

    /// The arguments as they are stored.
    fn text(&self, arguments: &A) -> Result<String, LockError> {
        (self.write)(arguments).map_err(|error| {
            let detail = format!("{error}: pass a value that JSON keeps, such as an id");
            LockError::invalid("arguments", detail)
        })
    }

    /// The job to store, with the settings of the function.
    fn of_text(
        self,
        id: String,
        key: String,
        arguments: String,
    ) -> Result<(LockManager, NewJob), LockError> {
        let Deferrable { name, site, delay, attempts, keep, .. } = self.function;
        let manager = self.manager.map_or_else(LockManager::current, Ok)?;
        manager.core().sites.check(&name, site)?;
        check_size(&arguments, manager.core().jobs.max_size)?;
        let function = stored_as(&manager, &name);
        let job = NewJob { function, id, arguments, key, delay, keep, attempts };
        Ok((manager, job))
    }
}

impl Deferrable {
    /// The delay of a job that has failed `attempts` times; `None` when that was the last attempt.
    pub(crate) fn again(&self, attempts: u32) -> Option<Duration> {
        let longest = DELAY_MAX.max(self.delay);
        let again = || jittered(Backoff::new(self.delay, longest).delay_after(attempts));
        (attempts < self.attempts).then(again)
    }

    /// The delay of a job that could not be tried, after `before` such times; `None` when this was
    /// the last time.
    ///
    /// The job has not failed, so the delay hardly grows. All delays together are still longer
    /// than a killed worker's lock is held. Where the holder's lease has no more than `left` left,
    /// the delay ends a little after it; the jobs that wait for the same lock are spread out then.
    pub(crate) fn when_busy(&self, before: u32, left: Option<Duration>) -> Option<Duration> {
        let step = BUSY_STEP * (1 + before);
        let usual = self.delay.saturating_mul(1 + before / 8).max(step);
        let usual = jittered(usual.min(BUSY_MAX.max(self.delay)));
        let known = left.map(|left| left.max(step) + usual.mul_f64(random::fraction() / 4.0));
        (before < TIMES_BUSY).then(|| known.map_or(usual, |known| known.min(usual)))
    }

    /// The delay of a job that this process cannot read, after `before` times of being busy or
    /// left to others; `None` when it has found it so for [`UNFIT_MAX`].
    pub(crate) fn when_unfit(&self, id: &str, before: u32) -> Option<Duration> {
        let mut unfit = self.unfit.lock();
        // Others have read those, or removed them.
        unfit.retain(|_, since| since.elapsed() < UNFIT_MAX * 2);
        let since = *unfit.entry(id.to_owned()).or_insert_with(Instant::now);
        if since.elapsed() >= UNFIT_MAX {
            unfit.remove(id);
            return None;
        }
        let mut delays = Backoff::new(self.delay.clamp(BUSY_STEP, BUSY_MAX), BUSY_MAX);
        for _ in 0..before.min(TIMES_BUSY) {
            delays.step();
        }
        Some(jittered(delays.step()))
    }

    /// Whether a job was taken more often than it may be tried, as when its workers died. One more
    /// is allowed, because the reply to the worker that took the job may have been lost.
    pub(crate) fn is_exhausted(&self, attempt: u32) -> bool {
        attempt > self.attempts.saturating_add(1)
    }

    /// Calls the function with a job's arguments. Fails when they cannot be read.
    pub(crate) fn call(&self, claim: Claim) -> Result<JobAttempt, String> {
        // Reading runs code of the program, which may panic.
        catch_unwind(AssertUnwindSafe(|| (self.call)(claim)))
            .unwrap_or_else(|_| Err("reading its arguments panicked".to_owned()))
    }
}

/// A call that has its lock, and supersedes older ones.
struct Superseding {
    function: Arc<str>,
    key: String,
    /// How long ago it began.
    began: Duration,
    /// The job of a worker that this call is.
    running: Option<RunningJob>,
}

impl Superseding {
    async fn ask(self, job_queue: Arc<dyn JobQueue>) -> Result<(), LockError> {
        let Self { function, key, began, running } = self;
        match running {
            // A newer job may wait, or may have had the lock before.
            Some(running) => running.supersede().await,
            None => job_queue.supersede(function, key, began).await.map(drop),
        }
    }
}

impl<A> Clone for DeferredFn<A> {
    fn clone(&self) -> Self {
        let Self { function, manager, choose, write } = self;
        let function = function.clone();
        let manager = manager.clone();
        Self { function, manager, choose: *choose, write: Arc::clone(write) }
    }
}

impl<A> fmt::Debug for DeferredFn<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DeferredFn").field(&self.function).finish()
    }
}

impl fmt::Debug for Deferrable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, delay, attempts, keep, .. } = self;
        f.debug_struct("Deferrable")
            .field("name", name)
            .field("delay", delay)
            .field("attempts", attempts)
            .field("keep", keep)
            .finish_non_exhaustive()
    }
}

fn deferred(name: &Arc<str>, busy: LockError, stored: Result<Stored, LockError>) -> LockError {
    if stored.is_ok() {
        metrics::job(name, "stored");
    }
    match (stored, busy.busy_key()) {
        (Ok(stored), Some(key)) => {
            LockError::Deferred { key: key.clone(), id: stored.id.into(), due: stored.due }
        }
        (Ok(_), None) => busy,
        (Err(error), _) => error,
    }
}

/// Runs a job that blocks on another thread: one of the runtime's own if that is multi-threaded,
/// else a new thread.
async fn on_a_blocking_thread(call: impl FnOnce() -> JobEnd + Send + 'static) -> JobEnd {
    let call = move || {
        catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|panic| JobEnd::with_panic(&*panic))
    };
    let ended_early = || JobEnd::Failed("its thread has ended".to_owned());
    if Handle::current().runtime_flavor() == RuntimeFlavor::MultiThread {
        return spawn_blocking(call).await.unwrap_or_else(|_| ended_early());
    }
    let (done, ended) = oneshot::channel();
    // Sending fails when the caller has been dropped.
    thread::spawn(move || done.send(call()).ok());
    ended.await.unwrap_or_else(|_| ended_early())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::defer::argument;
    use crate::value::holder::Holder;

    fn function(delay: Duration) -> Deferrable {
        DeferredFn::new("f", (), |()| async {}).delay(delay).attempts(10).function
    }

    /// Whether `delay` is `expected`, but for the jitter.
    fn is_about(delay: Option<Duration>, expected: Duration) -> bool {
        let delay = delay.expect("it is due again");
        (expected.mul_f64(0.75)..expected.mul_f64(1.25)).contains(&delay)
    }

    /// No server was asked, and no retry helps.
    #[tokio::test]
    async fn an_argument_that_json_changes_is_a_mistake_that_names_it_and_says_what_to_pass() {
        let locks = LockManager::isolated_memory();
        let price = argument::<f64>("price");
        let discount = argument::<Option<f64>>("discount");
        let audits = DeferredFn::new("f", (price, discount), |_| async {}).manager(&locks);
        for (price, discount, named) in
            [(f64::NAN, None, "`price`: "), (1.0, Some(f64::INFINITY), "`discount`: ")]
        {
            let arguments = || (price, discount);
            let busy = LockError::busy("key", Holder::default(), Duration::ZERO);
            for error in [
                audits.clone().enqueue("one", arguments()).await.expect_err("by hand"),
                audits.clone().defer(busy.clone(), arguments()).await,
                audits.clone().defer_blocking(busy, arguments()),
            ] {
                let LockError::InvalidSetting { setting: "arguments", detail, .. } = &error else {
                    panic!("not the caller's mistake: {error:?}");
                };
                assert!(detail.contains(named) && detail.contains(": pass"), "{detail}");
            }
        }
    }

    #[test]
    fn the_delays_of_a_failing_call_double_up_to_an_hour() {
        let function = function(Duration::from_secs(30));
        for (failures, seconds) in [(1, 60), (2, 120), (3, 240), (6, 1920), (7, 3600), (9, 3600)] {
            assert!(is_about(function.again(failures), Duration::from_secs(seconds)), "{failures}");
        }
        assert_eq!(function.again(10), None);
    }

    #[test]
    fn a_busy_call_is_due_again_for_longer_than_a_lock_is_held() {
        let slow = function(Duration::from_secs(30));
        for (before, seconds) in [(0, 30), (7, 30), (8, 60), (999, 60)] {
            let usual = slow.when_busy(before, None);
            assert!(is_about(usual, Duration::from_secs(seconds)), "{before}");
        }
        assert_eq!(slow.when_busy(1_000, None), None);
        let fast = function(Duration::from_millis(1));
        for left in [None, Some(Duration::ZERO), Some(Duration::from_secs(60))] {
            let delays = |times| (0..times).filter_map(|before| fast.when_busy(before, left));
            let all: Duration = delays(1_000).sum();
            assert!(all > Duration::from_secs(3_600), "{left:?}: {all:?}");
            let first: Duration = delays(10).sum();
            assert!(first < Duration::from_secs(1), "{left:?}: {first:?}");
        }
    }

    #[test]
    fn a_call_that_is_busy_a_thousand_times_is_due_again_for_hours_however_short_the_leases_are() {
        let slow = function(Duration::from_secs(30));
        for (left, hours) in [(None, 15), (Some(Duration::ZERO), 3)] {
            let all: Duration = (0..1_000).filter_map(|before| slow.when_busy(before, left)).sum();
            assert!(all > Duration::from_secs(hours * 3_600), "{left:?}: {all:?}");
        }
    }

    #[test]
    fn busy_calls_are_due_again_after_the_holders_lease_and_not_all_at_once() {
        let slow = function(Duration::from_secs(30));
        let left = Duration::from_secs(1);
        let thousand = || (0..1_000).filter_map(|_| slow.when_busy(0, Some(left)));
        let first = thousand().min().expect("some");
        let last = thousand().max().expect("some");
        assert!(left <= first && first < left * 2, "{first:?}");
        assert!(left * 4 < last && last < left * 11, "{last:?}");
        // The holder may release long before its lease ends.
        let late = slow.when_busy(0, Some(Duration::from_secs(300)));
        assert!(is_about(late, Duration::from_secs(30)));
    }
}
