//! The queue of jobs in PostgreSQL. The functions of `postgres/jobs.sql` do each
//! operation in one round trip.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::select;
use tokio::time::timeout;
use tokio_postgres::Row;

use crate::defer::job::{Job, JobInfo, JobState, NewJob, Page, Settled, Stored, TakeOptions, When};
use crate::defer::job_queue::{JobFuture, JobQueue, StopWaiting};
use crate::defer::limits::{check_size, full, note_abandoned};
use crate::defer::queue::budget::of_bytes;
use crate::defer::queue::superseded::stored_before;
use crate::store::postgres::client::connection::Pool;
use crate::store::postgres::client::error::unexpected;
use crate::store::postgres::client::values::{Values, column, millis, read_back, stored, values};
use crate::store::postgres::store::{Postgres, failed};
use crate::store::remote::budget::{Budget, Retry};
use crate::store::remote::error::RemoteError;
use crate::store::subscriptions::Subscription;
use crate::sys::random::random_name;
use crate::sys::sync::Mutex;
use crate::sys::time::Instant;
use crate::value::error::LockError;
use crate::value::key::LockKey;

/// Longest pause before an idle worker looks again.
const TICK: Duration = Duration::from_secs(2);
/// Shortest pause after a look that found no job.
const PAUSE_MIN: Duration = Duration::from_millis(1);

/// The pause after a look for which a right was missing.
const DENIED_PAUSE: Duration = Duration::from_millis(500);
/// Most bytes of the name of a function and of a job's id, which an index has to hold together.
const NAME_MAX: usize = 2_000;

/// Most jobs that are taken at once.
const TAKEN_MAX: usize = 1_000;
/// Longest delay and lease: the times of the database have an end.
const FAR: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);
/// Most workers of a manager whose requests are kept.
const IDLE_MAX: usize = 16;

/// The jobs in the database of a manager's locks.
pub(crate) struct PostgresJobs {
    postgres: Arc<Postgres>,
    /// Most bytes in the arguments of one job.
    max_size: usize,
    /// The workers between their requests.
    idle: Mutex<Vec<Taker>>,
}

/// A worker that takes jobs.
struct Taker {
    functions: Vec<Arc<str>>,
    subscription: Subscription,
    /// The id of the unanswered request for jobs: those that were taken by an answer that did not
    /// arrive are found by it.
    request: Option<String>,
    /// Whether it had an answer, and whether a right was missing since then.
    answered: bool,
    is_denied: bool,
}

impl PostgresJobs {
    pub(crate) fn new(postgres: Arc<Postgres>, max_size: usize) -> Self {
        Self { postgres, max_size, idle: Mutex::default() }
    }

    /// The jobs of a key that there is one of, waiting or running.
    async fn single_jobs(&self, function: &str, key: &str) -> Result<Vec<SingleJob>, LockError> {
        let key = LockKey::from(key);
        let key = stored(&key);
        let link = Pool::link_of(function);
        let budget = Budget::within(self.postgres.timeout);
        let rows = self.list(link, "single_calls", values![function, key], budget).await?;
        rows.iter().map(single_job).collect::<Result<_, _>>().map_err(failed)
    }

    async fn remove_superseded(
        &self,
        function: &str,
        jobs: Vec<SingleJob>,
    ) -> Result<usize, LockError> {
        let mut removed = 0;
        for job in jobs {
            let values = values![function, job.id, job.stored];
            let row = self.call("supersede_call", function, values, 0).await?;
            let is_removed: bool = column(&row, 0).map_err(failed)?;
            removed += usize::from(is_removed);
        }
        Ok(removed)
    }

    /// Calls a function of the schema for jobs with this many bytes.
    async fn call(
        &self,
        name: &str,
        function: &str,
        values: Values<'_>,
        bytes: usize,
    ) -> Result<Row, LockError> {
        let budget = of_bytes(bytes, self.postgres.timeout);
        let link = Pool::link_of(function);
        let call = |budget, _| self.postgres.pool.call(link, name, values, budget);
        Retry::new(budget).repeat(call).await.map_err(failed)
    }

    /// Calls a function of the schema that returns any number of rows.
    async fn list(
        &self,
        link: usize,
        name: &str,
        values: Values<'_>,
        budget: Budget,
    ) -> Result<Vec<Row>, LockError> {
        let pool = &self.postgres.pool;
        let calling = pool.calling(name, values.len());
        let list = |budget, _| pool.rows(link, &calling, values, budget);
        Retry::new(budget).repeat(list).await.map_err(failed)
    }

    /// Wakes workers that wait for jobs of a function, in the background. It comes after the
    /// change, for one that becomes idle meanwhile.
    fn wake(&self, function: &str) {
        drop(self.postgres.pool.push(vec![String::new()], vec![function.to_owned()]));
    }

    fn taker(&self, functions: &[Arc<str>]) -> Taker {
        // No code under this mutex leaves the list half changed.
        let mut idle = self.idle.lock();
        if let Some(nth) = idle.iter().position(|taker| taker.functions == functions) {
            return idle.swap_remove(nth);
        }
        let subscription = self.postgres.pool.subscriptions.join(0, random_name() as u64);
        let functions = functions.to_vec();
        Taker { functions, subscription, request: None, answered: false, is_denied: false }
    }

    fn keep_taker(&self, taker: Taker) {
        let mut idle = self.idle.lock();
        if idle.len() == IDLE_MAX {
            idle.remove(0);
        }
        idle.push(taker);
    }

    /// Takes jobs that are due. Returns them, and when to look again.
    async fn take_now(
        &self,
        taker: &mut Taker,
        options: &TakeOptions,
    ) -> Result<(Vec<Job>, Duration), LockError> {
        let pool = &self.postgres.pool;
        let functions: Vec<_> = options.functions.iter().map(|function| &**function).collect();
        let most = options.limit.min(TAKEN_MAX) as i64;
        // Before the request: a push may be sent as soon as the request is answered.
        let listens = pool.listen(Budget::brief(self.postgres.timeout).until).await;
        let channel = listens.unwrap_or(false).then_some(&pool.channel);
        let worker = format!("{:020}", taker.subscription.number());
        let mut repeated = taker.request.is_some();
        let request = taker.request.get_or_insert_with(|| format!("{:032x}", random_name()));
        let request = &*request;
        let lease = far(options.lease);
        let link = Pool::link_of(functions.first().unwrap_or(&""));
        let functions = &functions;
        let worker = &worker;
        let mut sent = Instant::now();
        let ask = |budget, _| {
            let again = repeated;
            (repeated, sent) = (true, Instant::now());
            async move {
                let values = values![functions, most, lease, request, again, worker, channel];
                Ok((
                    pool.rows(link, &pool.calling("take_calls", values.len()), values, budget)
                        .await?,
                    again,
                ))
            }
        };
        let budget = of_bytes(self.max_size, self.postgres.timeout);
        let (rows, again) = Retry::new(budget).repeat(ask).await.map_err(failed)?;
        let mut taken = Vec::new();
        let mut pause = TICK;
        for row in &rows {
            let (kind, job) = job(row).map_err(failed)?;
            match kind {
                "call" => taken.push(job),
                "dead" => note_abandoned(&job.function, &job.id, job.claim),
                _ => pause = pause.min(Duration::from_millis(job.claim)),
            }
        }
        if !taken.is_empty() && !again && sent.elapsed() >= options.lease / 3 {
            // They may be due for renewal by now: a repeated request renews them.
            return Ok((Vec::new(), Duration::ZERO));
        }
        taker.request = None;
        Ok((taken, pause.max(PAUSE_MIN)))
    }

    /// Retries or removes one job, or this many dead jobs.
    async fn amend(
        &self,
        function: &str,
        id: Option<String>,
        dead: usize,
        retries: bool,
    ) -> Result<usize, LockError> {
        let dead = dead.min(TAKEN_MAX) as i64;
        let row = self.call("amend_calls", function, values![function, id, dead, retries], 0).await;
        let amended = number(&row?, 0).map_err(failed)?;
        if retries && amended > 0 {
            self.wake(function);
        }
        Ok(amended as usize)
    }
}

impl JobQueue for PostgresJobs {
    fn take_failed(&self, _: &LockError) -> bool {
        self.postgres.pool.monitor.is_news()
    }

    fn put(&self, job: NewJob) -> JobFuture<'_, Stored> {
        Box::pin(async move {
            check_size(&job.arguments, self.max_size)?;
            let NewJob { function, id, arguments, key, delay, keep, attempts } = job;
            if function.len() + id.len() > NAME_MAX || id.contains('\0') || function.contains('\0')
            {
                let why =
                    format!("with the function's name it has at most {NAME_MAX} bytes, and no NUL");
                return Err(LockError::invalid("id", why));
            }
            let (keep, at_most) = keep.parts();
            let key = LockKey::from(key);
            let bytes = arguments.len();
            let attempts = i64::from(attempts);
            let name = &*function;
            let delay = far(delay);
            let key = stored(&key);
            let at_most = far(at_most);
            let values = values![name, id, delay, arguments, key, keep, attempts, at_most];
            let row = self.call("put_call", name, values, bytes).await?;
            let id: Option<String> = column(&row, 0).map_err(failed)?;
            let Some(id) = id else { return Err(full(&function)) };
            let due = Duration::from_millis(number(&row, 1).map_err(failed)?);
            if column(&row, 2).map_err(failed)? {
                self.wake(&function);
            }
            Ok(Stored { id, due })
        })
    }

    fn take<'a>(
        &'a self,
        options: TakeOptions,
        mut stop: StopWaiting<'a>,
    ) -> JobFuture<'a, Vec<Job>> {
        Box::pin(async move {
            if options.limit == 0 {
                return Ok(Vec::new());
            }
            let mut taker = self.taker(&options.functions);
            let mut pause = Duration::ZERO;
            let taken = loop {
                let wait = async {
                    if !pause.is_zero() {
                        // With or without a push, it looks again.
                        let _ = timeout(pause, taker.subscription.signal()).await;
                    }
                };
                select! {
                    biased;
                    () = &mut stop => break Ok(Vec::new()),
                    () = wait => {}
                }
                match self.take_now(&mut taker, &options).await {
                    // Taken away for a while, as by a migration.
                    Err(error @ LockError::AccessDenied { .. }) if taker.answered => {
                        if !taker.is_denied {
                            tracing::warn!(%error, "jobs could not be taken");
                        }
                        taker.is_denied = true;
                        pause = DENIED_PAUSE;
                    }
                    Err(error) => break Err(error),
                    Ok((taken, again)) => {
                        taker.answered = true;
                        taker.is_denied = false;
                        pause = again;
                        if !taken.is_empty() {
                            break Ok(taken);
                        }
                    }
                }
            };
            self.keep_taker(taker);
            taken
        })
    }

    fn keep(&self, job: Job, lease: Duration) -> JobFuture<'_, bool> {
        Box::pin(async move {
            let name = &*job.function;
            let claim = job.claim.cast_signed();
            let lease = far(lease);
            let values = values![name, job.id, claim, lease];
            column(&self.call("keep_call", name, values, 0).await?, 0).map_err(failed)
        })
    }

    fn settle(&self, job: Job, how: Settled) -> JobFuture<'_, bool> {
        Box::pin(async move {
            if how == Settled::Returned {
                // The next worker must not find the locks of the body busy. They end by themselves.
                let longest = Budget::brief(self.postgres.timeout).answer;
                let _ = timeout(longest, self.postgres.pool.releases.closed()).await;
            }
            let (how, delay, error) = how.parts();
            // A text of the database cannot have it.
            let error = error.replace('\0', "\u{fffd}");
            let name = &*job.function;
            let claim = job.claim.cast_signed();
            let delay = far(delay);
            let values = values![name, job.id, claim, how, delay, error];
            let row = self.call("settle_call", name, values, 0).await?;
            let held = column(&row, 0).map_err(failed)?;
            let first = column(&row, 1).map_err(failed)?;
            if first {
                self.wake(&job.function);
            }
            Ok(held)
        })
    }

    fn supersede(&self, function: Arc<str>, key: String, began: Duration) -> JobFuture<'_, usize> {
        // An answer may be late, and a newer job stored meanwhile: so the older ones are named.
        Box::pin(async move {
            let name = &*function;
            let look = || self.single_jobs(name, &key);
            let older = stored_before(began, look, |job: &SingleJob| job.age).await?;
            self.remove_superseded(name, older).await
        })
    }

    fn supersede_older(&self, job: Job) -> JobFuture<'_, usize> {
        Box::pin(async move {
            let mut jobs = self.single_jobs(&job.function, &job.key).await?;
            let own = jobs.iter().find(|own| own.id == job.id).map(|job| job.stored);
            jobs.retain(|job| Some(job.stored) < own);
            self.remove_superseded(&job.function, jobs).await
        })
    }

    fn list(
        &self,
        function: Arc<str>,
        state: JobState,
        first: usize,
        most: usize,
    ) -> JobFuture<'_, Page> {
        Box::pin(async move {
            let name = &*function;
            let state = state.to_string();
            let most = most.min(TAKEN_MAX) as i64;
            let first = i64::try_from(first).unwrap_or(i64::MAX);
            let budget = of_bytes(self.max_size, self.postgres.timeout);
            let values = values![name, state, first, most];
            let link = Pool::link_of(name);
            let rows = self.list(link, "list_calls", values, budget).await?;
            let total =
                rows.first().map_or_else(|| Err(unexpected("no row")), |row| number(row, 0));
            let info = |row: &Row| {
                Ok(JobInfo {
                    function: Arc::clone(&function),
                    id: column(row, 1)?,
                    arguments: column(row, 2)?,
                    key: read_back(column(row, 3)?),
                    attempts: number(row, 4)? as u32,
                    busy: number(row, 5)? as u32,
                    error: column(row, 6)?,
                    when: When::from_millis(column(row, 7)?),
                })
            };
            let jobs: Result<_, RemoteError> = rows.iter().skip(1).map(info).collect();
            Ok(Page { total: total.map_err(failed)? as usize, jobs: jobs.map_err(failed)? })
        })
    }

    fn retry(&self, function: Arc<str>, id: String) -> JobFuture<'_, bool> {
        Box::pin(async move { Ok(self.amend(&function, Some(id), 0, true).await? > 0) })
    }

    fn remove(&self, function: Arc<str>, id: String) -> JobFuture<'_, bool> {
        Box::pin(async move { Ok(self.amend(&function, Some(id), 0, false).await? > 0) })
    }

    fn retry_dead(&self, function: Arc<str>, most: usize) -> JobFuture<'_, usize> {
        Box::pin(async move { self.amend(&function, None, most, true).await })
    }

    fn remove_dead(&self, function: Arc<str>, most: usize) -> JobFuture<'_, usize> {
        Box::pin(async move { self.amend(&function, None, most, false).await })
    }
}

/// Without the requests.
impl fmt::Debug for PostgresJobs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresJobs").field("postgres", &self.postgres).finish_non_exhaustive()
    }
}

/// A row of `take_calls`: its kind and its job.
fn job(row: &Row) -> Result<(&str, Job), RemoteError> {
    let job = Job {
        function: column::<&str>(row, 1)?.into(),
        id: column(row, 2)?,
        arguments: column(row, 3)?,
        key: read_back(column(row, 4)?),
        attempt: number(row, 5)? as u32,
        busy: number(row, 6)? as u32,
        claim: number(row, 7)?,
    };
    Ok((column(row, 0)?, job))
}

/// A job of those that there is one of for each key.
struct SingleJob {
    id: String,
    /// When it was stored, in microseconds of the server's clock.
    stored: i64,
    /// How long ago that was.
    age: Duration,
}

fn single_job(row: &Row) -> Result<SingleJob, RemoteError> {
    let age = Duration::from_millis(number(row, 2)?);
    Ok(SingleJob { id: column(row, 0)?, stored: column(row, 1)?, age })
}

/// A column that is never negative.
fn number(row: &Row, nth: usize) -> Result<u64, RemoteError> {
    column::<i64>(row, nth).map(|number| number.max(0).cast_unsigned())
}

fn far(time: Duration) -> i64 {
    millis(time.min(FAR))
}
