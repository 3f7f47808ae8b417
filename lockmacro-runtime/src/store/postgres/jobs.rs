//! The queue of deferred calls in PostgreSQL. The functions of `jobs.sql` do each operation in one
//! round trip.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::select;
use tokio::time::timeout;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::batch::Batch;
use super::connection::{PUSHES, Pool};
use super::error::{of_call, unexpected};
use super::store::Postgres;
use super::values::{Values, column, millis, stored};
use crate::jobs::call::{Job, JobInfo, JobState, NewJob, Page, Settled, Stored, TakeOptions, When};
use crate::jobs::deferrer::{Answer, Deferrer, StopWaiting};
use crate::jobs::limits::{ABANDONED, DEAD_MAX, WAITING_MAX, check_size, full, note_abandoned};
use crate::store::calls::budget::{Budget, CALLS_PER_TIMEOUT, Retry};
use crate::store::calls::error::CallError;
use crate::store::waiters::Waiter;
use crate::value::error::LockError;
use crate::value::key::LockKey;
use crate::value::random::random_name;
use crate::value::sync::Mutex;
use crate::value::time::Instant;

/// Longest time for which an idle worker waits for a push.
const TICK: Duration = Duration::from_secs(2);
/// The same where pushes cannot be received.
const TICK_POLLING: Duration = Duration::from_millis(250);
/// Shortest pause after a look that found no call.
const PAUSE_MIN: Duration = Duration::from_millis(1);

/// Most bytes in the calls of one reply, unless it is a single call: a large reply delays all
/// others on its connection.
const REPLY_BYTES_MAX: i64 = 256 * 1024;
/// Assumed bandwidth of the network, in bytes a second.
const BANDWIDTH: f64 = 4.0 * 1024.0 * 1024.0;
/// Most calls that are taken at once.
const TAKEN_MAX: usize = 1_000;
/// Longest delay and lease: the times of the database have an end.
const FAR: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);
/// Most workers of a manager whose requests are kept.
const IDLE_MAX: usize = 16;

/// The deferred calls in the database of a manager's locks.
pub(crate) struct PostgresJobs {
    postgres: Arc<Postgres>,
    /// Most bytes in the arguments of one call.
    max_size: usize,
    /// The workers between their requests.
    idle: Mutex<Vec<Taker>>,
    /// The functions with a new call for idle workers.
    wakes: Arc<Batch<String, ()>>,
}

/// A worker that takes calls.
struct Taker {
    functions: Vec<Arc<str>>,
    waiter: Waiter,
    /// The id of the unanswered request for calls: those that were taken by a lost answer are found
    /// by it.
    request: Option<String>,
}

impl PostgresJobs {
    pub(crate) fn new(postgres: Arc<Postgres>, max_size: usize) -> Self {
        Self { postgres, max_size, idle: Mutex::default(), wakes: Batch::new() }
    }

    /// Calls a function of the schema until it is answered, or the budget is used up.
    async fn call(
        &self,
        function: &str,
        statement: &str,
        values: Values<'_>,
        budget: Budget,
    ) -> Result<Vec<Row>, CallError> {
        let (pool, link) = (&self.postgres.pool, Pool::link_of(function));
        let call = |budget, _| pool.call(link, statement, values, budget);
        Retry::new(budget).repeat(call).await
    }

    /// The same, for a function that returns one row.
    async fn call_one<T>(
        &self,
        function: &str,
        statement: &str,
        values: Values<'_>,
        read: impl FnOnce(&Row) -> Result<T, CallError>,
    ) -> Result<T, LockError> {
        let rows = self.call(function, statement, values, self.budget_for(0)).await;
        let row = rows.and_then(|rows| rows.into_iter().next().ok_or_else(unexpected));
        row.and_then(|row| read(&row)).map_err(failed)
    }

    /// Budget for a call with this many bytes, in the request or in the reply.
    fn budget_for(&self, bytes: usize) -> Budget {
        let more = Duration::from_secs_f64((bytes as f64 / BANDWIDTH).min(3_600.0));
        let usual = self.postgres.timeout;
        Budget::new(usual / CALLS_PER_TIMEOUT + more, usual + more * CALLS_PER_TIMEOUT)
    }

    /// Pushes to workers that wait for calls of a function, in the background: see `Pool::push`.
    fn wake(&self, function: &str) {
        let (pool, statements) = (&self.postgres.pool, &self.postgres.statements);
        let (pool, statements, budget) =
            (Arc::clone(pool), Arc::clone(statements), self.budget_for(0).answer);
        drop(self.wakes.send(function.to_owned(), move |functions| {
            let (pool, statements) = (Arc::clone(&pool), Arc::clone(&statements));
            async move {
                let (values, budget): (Values<'_>, _) =
                    (&[(&functions, Type::TEXT_ARRAY)], Budget::new(budget, budget));
                let sent = pool.call(PUSHES, &statements.jobs.wake, values, budget).await;
                if let Err(error) = sent {
                    tracing::debug!(?error, "pushes not sent: their waiters ask again");
                }
                vec![(); functions.len()]
            }
        }));
    }

    fn taker(&self, functions: &[Arc<str>]) -> Taker {
        // No code under this mutex leaves the list half changed.
        let mut idle = self.idle.lock();
        if let Some(nth) = idle.iter().position(|taker| taker.functions == functions) {
            return idle.swap_remove(nth);
        }
        let waiter = self.postgres.pool.waiters.join(0, random_name() as u64);
        Taker { functions: functions.to_vec(), waiter, request: None }
    }

    fn keep_taker(&self, taker: Taker) {
        let mut idle = self.idle.lock();
        if idle.len() == IDLE_MAX {
            idle.remove(0);
        }
        idle.push(taker);
    }

    /// Takes calls that are due. Returns them, and when to look again.
    async fn take_now(
        &self,
        taker: &mut Taker,
        options: &TakeOptions,
    ) -> Result<(Vec<Job>, Duration), LockError> {
        let (pool, budget) = (&self.postgres.pool, self.budget_for(self.max_size));
        let functions: Vec<_> = options.functions.iter().map(|function| &**function).collect();
        let most = options.limit.min(TAKEN_MAX) as i64;
        // Before the request: a push may be sent as soon as the request is answered.
        let listens = pool.listen(self.postgres.brief().until).await.is_ok();
        let tick = if listens { TICK } else { TICK_POLLING };
        let worker = listens.then(|| format!("{:020}", taker.waiter.number()));
        let mut repeated = taker.request.is_some();
        let request = taker.request.get_or_insert_with(|| format!("{:032x}", random_name()));
        let (request, lease, tick_millis) = (&*request, far(options.lease), millis(tick));
        let (functions, worker) = (&functions, &worker);
        let mut sent = Instant::now();
        let ask = |budget, _| {
            let again = repeated;
            (repeated, sent) = (true, Instant::now());
            async move {
                let values: Values<'_> = &[
                    (functions, Type::TEXT_ARRAY),
                    (&most, Type::INT8),
                    (&lease, Type::INT8),
                    (&request, Type::TEXT),
                    (&again, Type::BOOL),
                    (&REPLY_BYTES_MAX, Type::INT8),
                    (&(DEAD_MAX as i64), Type::INT8),
                    (&ABANDONED, Type::TEXT),
                    (worker, Type::TEXT),
                    (&pool.channel, Type::TEXT),
                    (&tick_millis, Type::INT8),
                ];
                let link = Pool::link_of(functions.first().unwrap_or(&""));
                let rows = pool.call(link, &self.postgres.statements.jobs.take, values, budget);
                Ok((rows.await?, again))
            }
        };
        let (rows, again) = Retry::new(budget).repeat(ask).await.map_err(failed)?;
        let (mut taken, mut pause) = (Vec::new(), tick);
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

    /// Retries or removes one call, or this many dead letters.
    async fn amend(
        &self,
        function: &str,
        id: Option<String>,
        dead: usize,
        retries: bool,
    ) -> Result<usize, LockError> {
        let dead = dead.min(TAKEN_MAX) as i64;
        let values: Values<'_> = &[
            (&function, Type::TEXT),
            (&id, Type::TEXT),
            (&dead, Type::INT8),
            (&retries, Type::BOOL),
        ];
        let statement = &self.postgres.statements.jobs.amend;
        let amended = self.call_one(function, statement, values, |row| number(row, 0)).await?;
        if retries && amended > 0 {
            self.wake(function);
        }
        Ok(amended as usize)
    }
}

impl Deferrer for PostgresJobs {
    fn call_failed(&self, _: &LockError) -> bool {
        self.postgres.pool.monitor.is_news()
    }

    fn put(&self, job: NewJob) -> Answer<'_, Stored> {
        Box::pin(async move {
            check_size(&job.arguments, self.max_size)?;
            let NewJob { function, id, arguments, key, delay, unique, attempts } = job;
            let (key, bytes) = (LockKey::from(key), arguments.len());
            let values: Values<'_> = &[
                (&&*function, Type::TEXT),
                (&id, Type::TEXT),
                (&far(delay), Type::INT8),
                (&arguments, Type::TEXT),
                (&stored(&key), Type::TEXT),
                (&unique, Type::BOOL),
                (&i64::from(attempts), Type::INT8),
                (&(WAITING_MAX as i64), Type::INT8),
            ];
            let statement = &self.postgres.statements.jobs.put;
            let rows = self.call(&function, statement, values, self.budget_for(bytes)).await;
            let rows = rows.map_err(failed)?;
            let row = rows.first().ok_or_else(|| failed(unexpected()))?;
            let id: Option<String> = column(row, 0).map_err(failed)?;
            let Some(id) = id else { return Err(full(&function)) };
            let due = Duration::from_millis(number(row, 1).map_err(failed)?);
            if column(row, 2).map_err(failed)? {
                self.wake(&function);
            }
            Ok(Stored { id, due })
        })
    }

    fn take<'a>(&'a self, options: TakeOptions, mut stop: StopWaiting<'a>) -> Answer<'a, Vec<Job>> {
        Box::pin(async move {
            if options.limit == 0 {
                return Ok(Vec::new());
            }
            let (mut taker, mut pause) = (self.taker(&options.functions), Duration::ZERO);
            let taken = loop {
                let wait = async {
                    if !pause.is_zero() {
                        // With or without a push, it looks again.
                        let _ = timeout(pause, taker.waiter.signal()).await;
                    }
                };
                select! {
                    biased;
                    () = &mut stop => break Ok(Vec::new()),
                    () = wait => {}
                }
                match self.take_now(&mut taker, &options).await {
                    Ok((taken, again)) if taken.is_empty() => pause = again,
                    other => break other.map(|(taken, _)| taken),
                }
            };
            self.keep_taker(taker);
            taken
        })
    }

    fn keep(&self, job: Job, lease: Duration) -> Answer<'_, bool> {
        Box::pin(async move {
            let values: Values<'_> = &[
                (&&*job.function, Type::TEXT),
                (&job.id, Type::TEXT),
                (&job.claim.cast_signed(), Type::INT8),
                (&far(lease), Type::INT8),
            ];
            let statement = &self.postgres.statements.jobs.keep;
            self.call_one(&job.function, statement, values, |row| column(row, 0)).await
        })
    }

    fn settle(&self, job: Job, how: Settled) -> Answer<'_, bool> {
        Box::pin(async move {
            if how == Settled::Returned {
                // The next worker must not find the locks of the body busy. They end by themselves.
                let longest = self.postgres.brief().answer;
                let _ = timeout(longest, self.postgres.pool.releases.answered()).await;
            }
            let (how, delay, error) = match how {
                Settled::Done => ("done", Duration::ZERO, String::new()),
                Settled::Again { delay, error } => ("again", delay, error),
                Settled::Dead { error } => ("dead", Duration::ZERO, error),
                Settled::Busy { delay, error } => ("busy", delay, error),
                Settled::Returned => ("back", Duration::ZERO, String::new()),
            };
            // A text of the database cannot have it.
            let error = error.replace('\0', "\u{fffd}");
            let values: Values<'_> = &[
                (&&*job.function, Type::TEXT),
                (&job.id, Type::TEXT),
                (&job.claim.cast_signed(), Type::INT8),
                (&how, Type::TEXT),
                (&far(delay), Type::INT8),
                (&error, Type::TEXT),
                (&(DEAD_MAX as i64), Type::INT8),
            ];
            let read = |row: &Row| Ok((column(row, 0)?, column(row, 1)?));
            let statement = &self.postgres.statements.jobs.settle;
            let (held, first) = self.call_one(&job.function, statement, values, read).await?;
            if first {
                self.wake(&job.function);
            }
            Ok(held)
        })
    }

    fn list(
        &self,
        function: Arc<str>,
        state: JobState,
        first: usize,
        most: usize,
    ) -> Answer<'_, Page> {
        Box::pin(async move {
            let values: Values<'_> = &[
                (&&*function, Type::TEXT),
                (&state.to_string(), Type::TEXT),
                (&i64::try_from(first).unwrap_or(i64::MAX), Type::INT8),
                (&(most.min(TAKEN_MAX) as i64), Type::INT8),
                (&REPLY_BYTES_MAX, Type::INT8),
            ];
            let (statement, budget) =
                (&self.postgres.statements.jobs.list, self.budget_for(self.max_size));
            let rows = self.call(&function, statement, values, budget).await.map_err(failed)?;
            let total = rows.first().map_or_else(|| Err(unexpected()), |row| number(row, 0));
            let info = |row: &Row| {
                Ok(JobInfo {
                    function: Arc::clone(&function),
                    id: column(row, 1)?,
                    arguments: column(row, 2)?,
                    key: key(column(row, 3)?),
                    attempts: number(row, 4)? as u32,
                    busy: number(row, 5)? as u32,
                    error: column(row, 6)?,
                    when: When::from_millis(column(row, 7)?),
                })
            };
            let jobs: Result<_, CallError> = rows.iter().skip(1).map(info).collect();
            Ok(Page { total: total.map_err(failed)? as usize, jobs: jobs.map_err(failed)? })
        })
    }

    fn retry(&self, function: Arc<str>, id: String) -> Answer<'_, bool> {
        Box::pin(async move { Ok(self.amend(&function, Some(id), 0, true).await? > 0) })
    }

    fn remove(&self, function: Arc<str>, id: String) -> Answer<'_, bool> {
        Box::pin(async move { Ok(self.amend(&function, Some(id), 0, false).await? > 0) })
    }

    fn retry_dead(&self, function: Arc<str>, most: usize) -> Answer<'_, usize> {
        Box::pin(async move { self.amend(&function, None, most, true).await })
    }

    fn remove_dead(&self, function: Arc<str>, most: usize) -> Answer<'_, usize> {
        Box::pin(async move { self.amend(&function, None, most, false).await })
    }
}

/// Without the requests.
impl fmt::Debug for PostgresJobs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresJobs").field("postgres", &self.postgres).finish_non_exhaustive()
    }
}

/// A row of `take_calls`: its kind and its call.
fn job(row: &Row) -> Result<(&str, Job), CallError> {
    let job = Job {
        function: column::<&str>(row, 1)?.into(),
        id: column(row, 2)?,
        arguments: column(row, 3)?,
        key: key(column(row, 4)?),
        attempt: number(row, 5)? as u32,
        busy: number(row, 6)? as u32,
        claim: number(row, 7)?,
    };
    Ok((column(row, 0)?, job))
}

/// The key of a text of the database: see [`stored`].
fn key(text: &str) -> String {
    match text.strip_prefix("lm1:") {
        Some(key) if key.contains("%00") => key.replace("%00", "\0").replace("%25", "%"),
        _ => text.to_owned(),
    }
}

/// A column that is never negative.
fn number(row: &Row, nth: usize) -> Result<u64, CallError> {
    column::<i64>(row, nth).map(|number| number.max(0).cast_unsigned())
}

fn far(time: Duration) -> i64 {
    millis(time.min(FAR))
}

fn failed(error: CallError) -> LockError {
    of_call(error, &LockKey::from(""))
}
