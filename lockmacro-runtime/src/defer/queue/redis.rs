//! The queue of jobs on a Redis server. The scripts of `redis/` do each operation in one round trip.

mod looks;
pub(crate) mod requests;
pub(crate) mod scripts;

use std::sync::Arc;
use std::time::Duration;

use tokio::select;

use self::looks::{Look, Looks};
use self::requests::{REPLY_BYTES_MAX, Text, ask, keep_job, millis, still_taken, take_jobs};
use crate::defer::job::{Job, JobInfo, JobState, NewJob, Page, Settled, Stored, TakeOptions, When};
use crate::defer::job_queue::{JobFuture, JobQueue, StopWaiting};
use crate::defer::limits::{DEAD_MAX, WAITING_MAX, check_size, full};
use crate::defer::queue::budget::of_bytes;
use crate::defer::queue::superseded::stored_before;
use crate::store::backend::Backend;
use crate::store::redis::store::Redis;
use crate::sys::random::random_name;
use crate::sys::sync::Mutex;
use crate::sys::time::Instant;
use crate::value::error::LockError;

/// Most workers of a manager whose looks are kept.
const IDLE_MAX: usize = 16;

/// Shortest pause after a look that found no job.
const PAUSE_MIN: Duration = Duration::from_millis(1);
/// Most jobs that are taken at once.
const TAKEN_MAX: usize = 1_000;
/// Most jobs that can be skipped: a script counts exactly up to there.
const FIRST_MAX: usize = 1 << 48;

/// The id, the arguments and the key of a job, how often it was tried and busy, its last error,
/// and its time in milliseconds from now.
type ListedJob = (Text, Text, Text, [Text; 2], Text, i64);

/// The jobs on the server of a manager's locks.
#[derive(Debug)]
pub(crate) struct RedisJobs {
    redis: Arc<Redis>,
    /// Most bytes in the arguments of one job.
    max_size: usize,
    /// The looks of workers between their requests.
    idle_looks: Mutex<Vec<Looks>>,
}

impl RedisJobs {
    pub(crate) fn new(redis: Arc<Redis>, max_size: usize) -> Self {
        Self { redis, max_size, idle_looks: Mutex::default() }
    }

    /// Removes jobs of a key, each with its id and the time when it was stored.
    async fn remove_superseded(
        &self,
        function: &str,
        key: &str,
        older: &[(String, String, i64)],
    ) -> Result<usize, LockError> {
        if older.is_empty() {
            return Ok(0);
        }
        let mut remove = vec![key];
        older.iter().for_each(|(id, stored, _)| remove.extend([&**id, &**stored]));
        let budget = self.redis.budget();
        ask(&self.redis, &scripts::SUPERSEDE, function, &remove, budget).await
    }

    /// Takes jobs of one function; returns them and when to look again.
    async fn take_of(
        &self,
        looks: &mut Looks,
        nth: usize,
        options: &TakeOptions,
    ) -> Result<(Vec<Job>, Duration), LockError> {
        let most = options.limit.min(TAKEN_MAX);
        let lease = options.lease;
        let (id, asked) = looks.open_request(nth);
        let Look { function, subscription, .. } = &looks.functions[nth];
        // Other functions must not be delayed.
        let is_brief = looks.functions.len() > 1;
        let size = self.max_size;
        let taking =
            take_jobs(&self.redis, (function, subscription), &id, most, lease, size, is_brief);
        let (taken, again) = taking.await?;
        looks.functions[nth].open_request = None;
        // The leases count from before the request, and may be due for renewal by now.
        if asked.elapsed() < lease / 3 {
            Ok((taken, again))
        } else {
            Ok((still_taken(&self.redis, taken, lease).await, again))
        }
    }

    /// The kept looks of a worker of these functions, or new ones.
    fn looks(&self, functions: &[Arc<str>]) -> Looks {
        // No code under this mutex leaves the list half changed.
        let mut idle = self.idle_looks.lock();
        let is_its =
            |looks: &Looks| looks.functions.iter().map(|look| &look.function).eq(functions);
        match idle.iter().position(is_its) {
            Some(nth) => idle.swap_remove(nth),
            None => Looks::new(&self.redis, functions),
        }
    }

    fn keep_looks(&self, looks: Looks) {
        let mut idle = self.idle_looks.lock();
        if idle.len() == IDLE_MAX {
            idle.remove(0);
        }
        idle.push(looks);
    }

    /// Retries or removes the oldest dead jobs.
    async fn amend_dead(&self, function: &str, how: &str, most: usize) -> Result<usize, LockError> {
        match most.min(TAKEN_MAX) {
            0 => Ok(0),
            most => self.amend(function, how, "", most).await,
        }
    }

    /// Retries or removes one job, or this many dead jobs.
    async fn amend(
        &self,
        function: &str,
        how: &str,
        id: &str,
        dead: usize,
    ) -> Result<usize, LockError> {
        let dead = dead.to_string();
        let budget = self.redis.budget();
        ask(&self.redis, &scripts::RETRY_OR_REMOVE, function, &[how, id, &dead], budget).await
    }
}

impl JobQueue for RedisJobs {
    fn take_failed(&self, _: &LockError) -> bool {
        self.redis.is_news()
    }

    fn put(&self, job: NewJob) -> JobFuture<'_, Stored> {
        Box::pin(async move {
            let NewJob { function, id, arguments, key, delay, keep, attempts } = job;
            check_size(&arguments, self.max_size)?;
            let (keep, at_most) = keep.parts();
            let delay = millis(delay);
            let at_most = millis(at_most);
            let most = WAITING_MAX.to_string();
            let attempts = attempts.to_string();
            let start = (random_name() as u32 >> 2).to_string();
            let args = [&id, &delay, &arguments, &key, keep, &most, &attempts, &at_most, &start];
            let budget = of_bytes(arguments.len(), self.redis.timeout);
            match ask(&self.redis, &scripts::PUT, &function, &args, budget).await? {
                Some((Text(id), due)) => Ok(Stored { id, due: Duration::from_millis(due) }),
                None => Err(full(&function)),
            }
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
            let mut looks = self.looks(&options.functions);
            loop {
                let (nth, due) = select! {
                    biased;
                    () = &mut stop => return Ok(Vec::new()),
                    next = looks.next() => next,
                };
                let now = Instant::now();
                let found = match due {
                    Ok(due) if due <= now => self.take_of(&mut looks, nth, &options).await,
                    other => other.map(|due| (Vec::new(), due - now)),
                };
                let answer = match found {
                    Ok((taken, again)) if taken.is_empty() => {
                        looks.succeeded(nth, again.max(PAUSE_MIN));
                        continue;
                    }
                    // These jobs run before others are waited for.
                    Ok((taken, _)) => {
                        looks.succeeded(nth, Duration::ZERO);
                        Ok(taken)
                    }
                    Err(error) => match looks.failed(nth, error) {
                        None => continue,
                        Some(error) => Err(error),
                    },
                };
                self.keep_looks(looks);
                return answer;
            }
        })
    }

    fn keep(&self, job: Job, lease: Duration) -> JobFuture<'_, bool> {
        Box::pin(async move { keep_job(&self.redis, &job, lease, self.redis.budget()).await })
    }

    fn settle(&self, job: Job, how: Settled) -> JobFuture<'_, bool> {
        Box::pin(async move {
            let (how, delay, error) = how.parts();
            let taken = job.claim.to_string();
            let delay = millis(delay);
            let args = [&*job.id, &taken, how, &delay, &error, &DEAD_MAX.to_string()];
            ask(&self.redis, &scripts::SETTLE, &job.function, &args, self.redis.budget()).await
        })
    }

    fn supersede(&self, function: Arc<str>, key: String, began: Duration) -> JobFuture<'_, usize> {
        // An answer may be late, and a newer job stored meanwhile: so the older ones are named.
        Box::pin(async move {
            let look = || async {
                let budget = self.redis.budget();
                ask(&self.redis, &scripts::SUPERSEDE, &function, &[&*key], budget).await
            };
            // Negative where the server's clock was set back.
            let age = |(.., age): &(String, String, i64)| {
                Duration::from_millis(u64::try_from(*age).unwrap_or_default())
            };
            let older = stored_before(began, look, age).await?;
            self.remove_superseded(&function, &key, &older).await
        })
    }

    fn supersede_older(&self, job: Job) -> JobFuture<'_, usize> {
        Box::pin(async move {
            let budget = self.redis.budget();
            let found: Vec<(String, String, i64)> =
                ask(&self.redis, &scripts::SUPERSEDE, &job.function, &[&*job.key], budget).await?;
            let millis = |stored: &str| stored.parse::<u64>().ok();
            let own = found.iter().find(|(id, ..)| *id == job.id);
            let own = own.and_then(|(_, stored, _)| millis(stored));
            let is_older = |(_, stored, _): &(String, String, i64)| {
                millis(stored).zip(own).is_some_and(|(stored, own)| stored < own)
            };
            let older: Vec<_> = found.into_iter().filter(is_older).collect();
            self.remove_superseded(&job.function, &job.key, &older).await
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
            let first = first.min(FIRST_MAX);
            let most = most.min(TAKEN_MAX);
            let state = state.to_string();
            let first = first.to_string();
            let most = most.to_string();
            let args = [&*state, &*first, &*most, REPLY_BYTES_MAX];
            let budget = of_bytes(self.max_size, self.redis.timeout);
            let (total, jobs): (_, Vec<ListedJob>) =
                ask(&self.redis, &scripts::LIST, &function, &args, budget).await?;
            let info = |(id, arguments, key, [attempts, busy], error, millis): ListedJob| JobInfo {
                function: Arc::clone(&function),
                id: id.0,
                arguments: arguments.0,
                key: key.0,
                attempts: attempts.0.parse().unwrap_or_default(),
                busy: busy.0.parse().unwrap_or_default(),
                error: Some(error.0).filter(|error| !error.is_empty()),
                when: When::from_millis(millis),
            };
            Ok(Page { total, jobs: jobs.into_iter().map(info).collect() })
        })
    }

    fn retry(&self, function: Arc<str>, id: String) -> JobFuture<'_, bool> {
        Box::pin(async move { Ok(self.amend(&function, "retry", &id, 0).await? > 0) })
    }

    fn remove(&self, function: Arc<str>, id: String) -> JobFuture<'_, bool> {
        Box::pin(async move { Ok(self.amend(&function, "remove", &id, 0).await? > 0) })
    }

    fn retry_dead(&self, function: Arc<str>, most: usize) -> JobFuture<'_, usize> {
        Box::pin(async move { self.amend_dead(&function, "retry", most).await })
    }

    fn remove_dead(&self, function: Arc<str>, most: usize) -> JobFuture<'_, usize> {
        Box::pin(async move { self.amend_dead(&function, "remove", most).await })
    }
}
