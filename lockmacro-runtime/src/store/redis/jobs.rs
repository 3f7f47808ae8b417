//! The queue of jobs on a Redis server, and the looks of its workers for jobs that are
//! due, of many functions at once.
//!
//! A task for each function waits until a job may be due, and looks. A look takes no job: a node
//! that hangs delays its own functions only, and a look whose answer nobody reads has changed
//! nothing. The results are kept for the worker's next request.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use redis::{FromRedisValue, ParsingError, Value, from_redis_value};
use tokio::select;
use tokio::time::timeout;

use super::store::Redis;
use crate::jobs::job::{Job, JobInfo, JobState, NewJob, Page, Settled, Stored, TakeOptions, When};
use crate::jobs::job_queue::{JobFuture, JobQueue, StopWaiting};
use crate::jobs::limits::{ABANDONED, DEAD_MAX, WAITING_MAX, check_size, full, note_abandoned};
use crate::jobs::superseded::stored_before;
use crate::store::backend::Backend;
use crate::store::redis::client::node::Node;
use crate::store::redis::client::script::Script;
use crate::store::redis::scripts::jobs;
use crate::store::remote::budget::Budget;
use crate::store::subscriptions::Subscription;
use crate::sys::random::random_name;
use crate::sys::sync::Mutex;
use crate::sys::task::{JoinSet, owned};
use crate::sys::time::Instant;
use crate::value::companion::slot;
use crate::value::error::LockError;
use crate::value::key::LockKey;

/// Prefix of the keys of functions.
pub(crate) const CALLS: &str = "lm1:jobs:";
/// Longest time for which an idle worker waits for a push.
const TICK: Duration = Duration::from_secs(2);
/// The same where pushes cannot be received.
const TICK_POLLING: Duration = Duration::from_millis(250);

/// Most bytes in the jobs of one reply, unless it is a single job: a large reply delays all
/// others on its connection.
const REPLY_BYTES_MAX: &str = "262144";

/// Pause after an error of one function, while others work.
const RETRY_DELAY: Duration = Duration::from_secs(1);
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
    pub(crate) fn new(redis: &Arc<Redis>, max_size: usize) -> Self {
        Self { redis: Arc::clone(redis), max_size, idle_looks: Mutex::default() }
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
        self.redis.ask_queue(&jobs::SUPERSEDE, function, &remove, budget).await
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
            self.redis.take_jobs((function, subscription), &id, most, lease, size, is_brief);
        let (taken, again) = taking.await?;
        looks.functions[nth].open_request = None;
        // The leases count from before the request, and may be due for renewal by now.
        if asked.elapsed() < lease / 3 {
            Ok((taken, again))
        } else {
            Ok((self.redis.still_taken(taken, lease).await, again))
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
        self.redis.ask_queue(&jobs::RETRY_OR_REMOVE, function, &[how, id, &dead], budget).await
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
            let budget = Budget::of_bytes(arguments.len(), self.redis.timeout);
            match self.redis.ask_queue(&jobs::PUT, &function, &args, budget).await? {
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
        Box::pin(async move { self.redis.keep_job(&job, lease, self.redis.budget()).await })
    }

    fn settle(&self, job: Job, how: Settled) -> JobFuture<'_, bool> {
        Box::pin(async move {
            let (how, delay, error) = how.parts();
            let taken = job.claim.to_string();
            let delay = millis(delay);
            let args = [&*job.id, &taken, how, &delay, &error, &DEAD_MAX.to_string()];
            self.redis.ask_queue(&jobs::SETTLE, &job.function, &args, self.redis.budget()).await
        })
    }

    fn supersede(&self, function: Arc<str>, key: String, began: Duration) -> JobFuture<'_, usize> {
        // An answer may be late, and a newer job stored meanwhile: so the older ones are named.
        Box::pin(async move {
            let look = || async {
                let budget = self.redis.budget();
                self.redis.ask_queue(&jobs::SUPERSEDE, &function, &[&*key], budget).await
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
                self.redis.ask_queue(&jobs::SUPERSEDE, &job.function, &[&*job.key], budget).await?;
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
            let budget = Budget::of_bytes(self.max_size, self.redis.timeout);
            let (total, jobs): (_, Vec<ListedJob>) =
                self.redis.ask_queue(&jobs::LIST, &function, &args, budget).await?;
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

/// The looks of one worker at its functions.
#[derive(Debug)]
struct Looks {
    redis: Arc<Redis>,
    functions: Vec<Look>,
    /// The function, and the time when a job is due: the result may wait here for long.
    asked: JoinSet<(usize, Result<Instant, LockError>)>,
}

#[derive(Debug)]
struct Look {
    function: Arc<str>,
    subscription: Arc<Subscription>,
    answered: bool,
    failing: bool,
    /// The id of the unanswered request for jobs, and the time when it was first sent.
    open_request: Option<(String, Instant)>,
}

impl Looks {
    fn new(redis: &Arc<Redis>, functions: &[Arc<str>]) -> Self {
        let look = |function: &Arc<str>| {
            let slot = slot(key_of(function).as_str());
            let function = Arc::clone(function);
            let subscription =
                Arc::new(redis.grants.subscriptions.join(slot, random_name() as u64));
            Look { function, subscription, answered: false, failing: false, open_request: None }
        };
        let functions = functions.iter().map(look).collect();
        let mut looks = Self { redis: Arc::clone(redis), functions, asked: JoinSet::new() };
        looks.ask_all();
        looks
    }

    /// The id of the request for jobs of a function, and the time since when it is sent. The id
    /// stays the same until an answer arrives: jobs that were taken by an answer that did not
    /// arrive are found by it.
    fn open_request(&mut self, nth: usize) -> (String, Instant) {
        let new = || (format!("{:032x}", random_name()), Instant::now());
        self.functions[nth].open_request.get_or_insert_with(new).clone()
    }

    /// Looks at a function after a pause, or on a push.
    fn ask(&mut self, nth: usize, pause: Duration) {
        let Look { function, subscription, .. } = &self.functions[nth];
        let function = Arc::clone(function);
        let subscription = Arc::clone(subscription);
        let redis = Arc::clone(&self.redis);
        // Jobs that an unanswered request has taken are not left to their leases.
        let open = self.functions[nth].open_request.is_some();
        // A single function delays no other: its jobs are taken at once.
        let alone = self.functions.len() == 1;
        self.asked.spawn(owned(async move {
            if !pause.is_zero() {
                // With or without a push, it looks again.
                let _ = timeout(pause, subscription.signal()).await;
            }
            if alone {
                return (nth, Ok(Instant::now()));
            }
            // No job is taken.
            let looked =
                redis.take_jobs((&function, &subscription), "", 0, Duration::ZERO, 0, true).await;
            let pause = looked.map(|(_, due)| if open { Duration::ZERO } else { due });
            (nth, pause.map(|pause| Instant::now() + pause))
        }));
    }

    fn ask_all(&mut self) {
        self.asked = JoinSet::new();
        for nth in 0..self.functions.len() {
            self.ask(nth, Duration::ZERO);
        }
    }

    /// The next result: the function, and the time when a job is due. Cancel safe.
    async fn next(&mut self) -> (usize, Result<Instant, LockError>) {
        loop {
            match self.asked.join_next().await {
                Some(Ok(answered)) => return answered,
                None if self.functions.is_empty() => pending().await,
                // They were given up, or have ended with the runtime of an earlier worker.
                Some(Err(_)) | None => self.ask_all(),
            }
        }
    }

    /// Continues to look at a function that has answered.
    fn succeeded(&mut self, nth: usize, pause: Duration) {
        (self.functions[nth].answered, self.functions[nth].failing) = (true, false);
        self.ask(nth, pause);
    }

    /// Pauses a function after an error. Returns the error if all functions fail, or if the user
    /// may not take the jobs of this one; a right that is taken away later does not end the
    /// worker.
    fn failed(&mut self, nth: usize, error: LockError) -> Option<LockError> {
        self.functions[nth].failing = true;
        let is_reported = match &error {
            LockError::AccessDenied { .. } => !self.functions[nth].answered,
            _ => self.functions.iter().all(|look| look.failing),
        };
        if is_reported {
            // The worker pauses or ends. After that, what was found before it says nothing.
            self.asked = JoinSet::new();
            return Some(error);
        }
        let function = &self.functions[nth].function;
        if error.is_of_servers() && !self.redis.is_news() {
            tracing::debug!(%function, %error, "jobs could not be taken")
        } else {
            tracing::warn!(%function, %error, "jobs could not be taken")
        }
        self.ask(nth, RETRY_DELAY);
        None
    }
}

/// The requests about the jobs of one function, each a call of a script.
impl Redis {
    /// Calls a script until it is answered, or the budget is used up.
    async fn ask_queue<T: FromRedisValue>(
        &self,
        script: &'static Script,
        function: &str,
        args: &[&str],
        budget: Budget,
    ) -> Result<T, LockError> {
        let keys = [key_of(function)];
        let reply = self.eval_until(script.with(&keys, args), budget).await;
        reply.map_err(|error| error.into_error(&keys[0]))
    }

    /// Takes jobs of one function with arguments of at most `size` bytes; returns them and when to
    /// look again. A request with the same `id` gets the same jobs. The waiter receives pushes. A
    /// `brief` request has the time of one answer for all of it.
    async fn take_jobs(
        &self,
        (function, subscription): (&Arc<str>, &Subscription),
        id: &str,
        most: usize,
        lease: Duration,
        size: usize,
        brief: bool,
    ) -> Result<(Vec<Job>, Duration), LockError> {
        let usual = if brief { self.brief() } else { self.budget() };
        let received = self.listen_for(subscription, usual).await?;
        let tick = if received { TICK } else { TICK_POLLING };
        let idle = if received {
            format!("{}|{}", subscription.number(), self.grants.channel(subscription.slot()))
        } else {
            String::new()
        };
        let budget = match Budget::of_bytes(size, self.timeout) {
            // No job is in the reply.
            _ if most == 0 => usual,
            long if brief => Budget::new(long.answer, long.answer),
            long => long,
        };
        let most = most.to_string();
        let dead_max = DEAD_MAX.to_string();
        let lease = millis(lease);
        let tick_millis = millis(tick);
        let args = [&*most, &lease, &idle, &tick_millis, id, REPLY_BYTES_MAX, &dead_max, ABANDONED];
        let (again, strays, dead, jobs): (_, u64, Vec<(Text, u64)>, Vec<TakenJob>) =
            self.ask_queue(&jobs::TAKE, function, &args, budget).await?;
        for (Text(id), times) in dead {
            note_abandoned(function, &id, times);
        }
        if strays > 0 {
            tracing::error!(
                %function,
                strays,
                "entries that are no jobs were removed: \
                 they had no arguments, or an id that is not UTF-8"
            );
        }
        let job = |(Text(id), Text(arguments), Text(key), attempt, taken, busy)| {
            let function = Arc::clone(function);
            Job { function, id, arguments, key, attempt, busy, claim: taken }
        };
        Ok((jobs.into_iter().map(job).collect(), Duration::from_millis(again).min(tick)))
    }

    /// Those of these jobs that the worker still has, renewed for a whole lease.
    async fn still_taken(&self, taken: Vec<Job>, lease: Duration) -> Vec<Job> {
        let keeping = taken.iter().map(|job| self.keep_job(job, lease, self.brief()));
        let kept = join_all(keeping).await;
        // A job whose state is unknown is left to its lease.
        let is_kept = |(job, kept): (Job, Result<bool, _>)| kept.unwrap_or(false).then_some(job);
        taken.into_iter().zip(kept).filter_map(is_kept).collect()
    }

    async fn keep_job(
        &self,
        job: &Job,
        lease: Duration,
        budget: Budget,
    ) -> Result<bool, LockError> {
        let args = [&*job.id, &job.claim.to_string(), &millis(lease)];
        self.ask_queue(&jobs::KEEP, &job.function, &args, budget).await
    }

    /// Subscribes to the pushes of a function; returns whether they can be received.
    async fn listen_for(
        &self,
        subscription: &Subscription,
        budget: Budget,
    ) -> Result<bool, LockError> {
        let listen = |node: Node| async move { node.listen(subscription.slot(), budget).await };
        let listened = self.nodes.route(|| subscription.slot(), budget, listen).await;
        match listened {
            Ok(received) => Ok(received),
            Err(error) => match error.transient() {
                Ok(_) => Ok(false),
                Err(error) => Err(error.into_error(&LockKey::from("lm1:jobs"))),
            },
        }
    }
}

fn key_of(function: &str) -> LockKey {
    [CALLS, function].concat().into()
}

fn millis(time: Duration) -> String {
    time.as_millis().to_string()
}

/// A text in a reply. Bytes that are not UTF-8 are replaced, since other programs may have stored
/// them.
struct Text(String);

impl FromRedisValue for Text {
    fn from_redis_value(value: Value) -> Result<Self, ParsingError> {
        let bytes: Vec<u8> = from_redis_value(value)?;
        Ok(Self(String::from_utf8_lossy(&bytes).into_owned()))
    }
}

/// The id, the arguments and the key of a job, and how often it was tried, taken and busy.
type TakenJob = (Text, Text, Text, u32, u64, u32);
