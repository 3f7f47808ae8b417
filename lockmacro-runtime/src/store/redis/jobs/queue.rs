//! The queue of deferred calls on a Redis server, and the looks of its workers for calls that are
//! due, of many functions at once.
//!
//! A task for each function waits until a call may be due, and looks. A look takes no call: a node
//! that hangs delays its own functions only, and a look whose answer nobody reads has changed
//! nothing. The results are kept for the worker's next request.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use tokio::select;
use tokio::time::timeout;

use crate::jobs::call::{Job, JobInfo, JobState, NewJob, Page, Settled, Stored, TakeOptions};
use crate::jobs::deferrer::{Answer, Deferrer, StopWaiting};
use crate::jobs::limits::{DEAD_MAX, WAITING_MAX, check_size, full};
use crate::store::redis::jobs::calls::{Calls, REPLY_BYTES_MAX, Text, millis};
use crate::store::redis::scripts::jobs;
use crate::store::redis::store::Redis;
use crate::store::servers::Servers;
use crate::store::waiters::Waiter;
use crate::value::error::LockError;
use crate::value::random::random_name;
use crate::value::sync::Mutex;
use crate::value::task::{JoinSet, owned};
use crate::value::time::Instant;

/// Pause after an error of one function, while others work.
const RETRY_DELAY: Duration = Duration::from_secs(1);
/// Most workers of a manager whose looks are kept.
const IDLE_MAX: usize = 16;

/// Shortest pause after a look that found no call.
const PAUSE_MIN: Duration = Duration::from_millis(1);
/// Most calls that are taken at once.
const TAKEN_MAX: usize = 1_000;
/// Most calls that can be skipped: a script counts exactly up to there.
const FIRST_MAX: usize = 1 << 48;

/// The id, the arguments and the key of a call, how often it was tried and busy, its last error, and
/// its time in milliseconds from now.
type ListedCall = (Text, Text, Text, [Text; 2], Text, i64);

/// The deferred calls on the server of a manager's locks.
#[derive(Debug)]
pub(crate) struct RedisJobs {
    calls: Calls,
    /// The looks of workers between their requests.
    idle_looks: Mutex<Vec<Looks>>,
}

impl RedisJobs {
    /// A queue whose calls have at most `max_size` bytes of arguments.
    pub(crate) fn new(redis: &Arc<Redis>, max_size: usize) -> Self {
        Self { calls: Calls::new(redis, max_size), idle_looks: Mutex::default() }
    }

    /// Takes calls of one function; returns them and when to look again.
    async fn take_of(
        &self,
        looks: &mut Looks,
        nth: usize,
        options: &TakeOptions,
    ) -> Result<(Vec<Job>, Duration), LockError> {
        let (most, lease) = (options.most.min(TAKEN_MAX), options.lease);
        let (id, asked) = looks.open_request(nth);
        let Look { function, waiter, .. } = &looks.functions[nth];
        // Other functions must not be delayed.
        let is_brief = looks.functions.len() > 1;
        let taking = self.calls.take((function, waiter), &id, most, lease, is_brief);
        let (taken, again) = taking.await?;
        looks.functions[nth].open_request = None;
        // The leases count from before the request, and may be due for renewal by now.
        match asked.elapsed() < lease / 3 {
            true => Ok((taken, again)),
            false => Ok((self.calls.still_taken(taken, lease).await, again)),
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
            None => Looks::new(&self.calls, functions),
        }
    }

    fn keep_looks(&self, looks: Looks) {
        let mut idle = self.idle_looks.lock();
        if idle.len() == IDLE_MAX {
            idle.remove(0);
        }
        idle.push(looks);
    }

    /// Retries or removes the oldest dead letters.
    async fn amend_dead(&self, function: &str, how: &str, most: usize) -> Result<usize, LockError> {
        match most.min(TAKEN_MAX) {
            0 => Ok(0),
            most => self.amend(function, how, "", most).await,
        }
    }

    /// Retries or removes one call, or this many dead letters.
    async fn amend(
        &self,
        function: &str,
        how: &str,
        id: &str,
        dead: usize,
    ) -> Result<usize, LockError> {
        let (dead, budget) = (dead.to_string(), self.calls.redis.budget());
        self.calls.ask(&jobs::RETRY_OR_REMOVE, function, &[how, id, &dead], budget).await
    }
}

impl Deferrer for RedisJobs {
    fn call_failed(&self, _: &LockError) -> bool {
        self.calls.redis.is_news()
    }

    fn put(&self, job: NewJob) -> Answer<'_, Stored> {
        Box::pin(async move {
            let NewJob { function, id, arguments, key, delay, unique, attempts } = job;
            check_size(&arguments, self.calls.max_size)?;
            let (delay, unique) = (millis(delay), if unique { "1" } else { "0" });
            let (most, attempts) = (WAITING_MAX.to_string(), attempts.to_string());
            let args = [&id, &delay, &arguments, &key, unique, &most, &attempts];
            let budget = self.calls.budget_for(arguments.len());
            match self.calls.ask(&jobs::PUT, &function, &args, budget).await? {
                Some((Text(id), due)) => Ok(Stored { id, due: Duration::from_millis(due) }),
                None => Err(full(&function)),
            }
        })
    }

    fn take<'a>(&'a self, options: TakeOptions, mut stop: StopWaiting<'a>) -> Answer<'a, Vec<Job>> {
        Box::pin(async move {
            if options.most == 0 {
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
                    // These calls run before others are waited for.
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

    fn keep(&self, job: Job, lease: Duration) -> Answer<'_, bool> {
        Box::pin(async move { self.calls.keep(&job, lease, self.calls.redis.budget()).await })
    }

    fn settle(&self, job: Job, how: Settled) -> Answer<'_, bool> {
        Box::pin(async move {
            let (how, delay, error) = match how {
                Settled::Done => ("done", Duration::ZERO, String::new()),
                Settled::Again { delay, error } => ("again", delay, error),
                Settled::Dead { error } => ("dead", Duration::ZERO, error),
                Settled::Busy { delay, error } => ("busy", delay, error),
                Settled::Untried => ("back", Duration::ZERO, String::new()),
            };
            let (taken, delay) = (job.taken.to_string(), millis(delay));
            let args = [&*job.id, &taken, how, &delay, &error, &DEAD_MAX.to_string()];
            self.calls.ask(&jobs::SETTLE, &job.function, &args, self.calls.redis.budget()).await
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
            let (first, most) = (first.min(FIRST_MAX), most.min(TAKEN_MAX));
            let args = [state.name(), &first.to_string(), &most.to_string(), REPLY_BYTES_MAX];
            let budget = self.calls.budget_for(self.calls.max_size);
            let (total, calls): (_, Vec<ListedCall>) =
                self.calls.ask(&jobs::LIST, &function, &args, budget).await?;
            let info =
                |(id, arguments, key, [attempts, busy], error, in_millis): ListedCall| JobInfo {
                    function: Arc::clone(&function),
                    id: id.0,
                    arguments: arguments.0,
                    key: key.0,
                    attempts: attempts.0.parse().unwrap_or_default(),
                    busy: busy.0.parse().unwrap_or_default(),
                    error: Some(error.0).filter(|error| !error.is_empty()),
                    in_millis,
                };
            Ok(Page { total, jobs: calls.into_iter().map(info).collect() })
        })
    }

    fn retry(&self, function: Arc<str>, id: String) -> Answer<'_, bool> {
        Box::pin(async move { Ok(self.amend(&function, "retry", &id, 0).await? > 0) })
    }

    fn remove(&self, function: Arc<str>, id: String) -> Answer<'_, bool> {
        Box::pin(async move { Ok(self.amend(&function, "remove", &id, 0).await? > 0) })
    }

    fn retry_dead(&self, function: Arc<str>, most: usize) -> Answer<'_, usize> {
        Box::pin(async move { self.amend_dead(&function, "retry", most).await })
    }

    fn remove_dead(&self, function: Arc<str>, most: usize) -> Answer<'_, usize> {
        Box::pin(async move { self.amend_dead(&function, "remove", most).await })
    }
}

/// The looks of one worker at its functions.
#[derive(Debug)]
struct Looks {
    calls: Calls,
    functions: Vec<Look>,
    /// The function, and the time when a call is due: the result may wait here for long.
    asked: JoinSet<(usize, Result<Instant, LockError>)>,
}

#[derive(Debug)]
struct Look {
    function: Arc<str>,
    waiter: Arc<Waiter>,
    answered: bool,
    failing: bool,
    /// The id of the unanswered request for calls, and the time when it was first sent.
    open_request: Option<(String, Instant)>,
}

impl Looks {
    fn new(calls: &Calls, functions: &[Arc<str>]) -> Self {
        let look = |function: &Arc<str>| Look {
            function: Arc::clone(function),
            waiter: Arc::new(calls.join(function)),
            answered: false,
            failing: false,
            open_request: None,
        };
        let functions = functions.iter().map(look).collect();
        let mut looks = Self { calls: calls.clone(), functions, asked: JoinSet::new() };
        looks.ask_all();
        looks
    }

    /// The id of the request for calls of a function, and the time since when it is sent. The id
    /// stays the same until an answer arrives: calls that were taken by a lost answer are found by
    /// it.
    fn open_request(&mut self, nth: usize) -> (String, Instant) {
        let new = || (format!("{:032x}", random_name()), Instant::now());
        self.functions[nth].open_request.get_or_insert_with(new).clone()
    }

    /// Looks at a function after a pause, or on a push.
    fn ask(&mut self, nth: usize, pause: Duration) {
        let Look { function, waiter, .. } = &self.functions[nth];
        let (function, waiter) = (Arc::clone(function), Arc::clone(waiter));
        let calls = self.calls.clone();
        // Calls that an unanswered request has taken are not left to their leases.
        let open = self.functions[nth].open_request.is_some();
        // A single function delays no other: its calls are taken at once.
        let alone = self.functions.len() == 1;
        self.asked.spawn(owned(async move {
            if !pause.is_zero() {
                // With or without a push, it looks again.
                let _ = timeout(pause, waiter.signal()).await;
            }
            if alone {
                return (nth, Ok(Instant::now()));
            }
            let due = calls.look(&function, &waiter).await;
            (nth, due.map(|due| Instant::now() + if open { Duration::ZERO } else { due }))
        }));
    }

    fn ask_all(&mut self) {
        self.asked = JoinSet::new();
        for nth in 0..self.functions.len() {
            self.ask(nth, Duration::ZERO);
        }
    }

    /// The next result: the function, and the time when a call is due. Cancel safe.
    async fn next(&mut self) -> (usize, Result<Instant, LockError>) {
        loop {
            match self.asked.join_next().await {
                Some(Ok(answered)) => return answered,
                // The tasks have ended with the runtime of an earlier worker.
                Some(Err(_)) => self.ask_all(),
                None => pending().await,
            }
        }
    }

    /// Continues to look at a function that has answered.
    fn succeeded(&mut self, nth: usize, pause: Duration) {
        (self.functions[nth].answered, self.functions[nth].failing) = (true, false);
        self.ask(nth, pause);
    }

    /// Pauses a function after an error. Returns the error if all functions fail, or if the user may
    /// not take the calls of this one; a right that is taken away later does not end the worker.
    fn failed(&mut self, nth: usize, error: LockError) -> Option<LockError> {
        self.functions[nth].failing = true;
        let is_reported = match &error {
            LockError::AccessDenied { .. } => !self.functions[nth].answered,
            _ => self.functions.iter().all(|look| look.failing),
        };
        if is_reported {
            // The worker pauses or ends.
            self.ask(nth, Duration::ZERO);
            return Some(error);
        }
        let function = &self.functions[nth].function;
        match error.is_of_servers() && !self.calls.redis.is_news() {
            true => tracing::debug!(%function, %error, "deferred calls could not be taken"),
            false => tracing::warn!(%function, %error, "deferred calls could not be taken"),
        }
        self.ask(nth, RETRY_DELAY);
        None
    }
}
