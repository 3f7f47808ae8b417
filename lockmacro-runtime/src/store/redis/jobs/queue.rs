//! The queue of deferred calls on a Redis server.

use std::sync::Arc;
use std::time::Duration;

use tokio::select;

use crate::jobs::call::{Job, JobInfo, JobState, NewJob, Page, Settled, Stored, TakeOptions};
use crate::jobs::deferrer::{Answer, Deferrer, StopWaiting};
use crate::jobs::limits::{DEAD_MAX, WAITING_MAX, check_size, full};
use crate::store::redis::jobs::calls::{Calls, REPLY_BYTES_MAX, TakeRequest, Text, millis};
use crate::store::redis::jobs::listing::{IdleLooks, Looks};
use crate::store::redis::scripts::jobs;
use crate::store::redis::store::Redis;
use crate::value::error::LockError;
use crate::value::time::Instant;

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
    idle_looks: IdleLooks,
}

impl RedisJobs {
    /// A queue whose calls have at most `max_size` bytes of arguments.
    pub(crate) fn new(redis: &Arc<Redis>, max_size: usize) -> Self {
        Self { calls: Calls::new(redis, max_size), idle_looks: IdleLooks::default() }
    }

    /// Takes calls of one function; returns them and when to look again.
    async fn take_of(
        &self,
        looks: &mut Looks,
        nth: usize,
        options: &TakeOptions,
    ) -> Result<(Vec<Job>, Duration), LockError> {
        let (most, lease) = (options.most.min(TAKEN_MAX), options.lease);
        let others = options.functions.len() > 1;
        let (id, asked) = looks.open_request(nth);
        let (function, waiter) = looks.of(nth);
        let request = TakeRequest { id: &id, most, lease, brief: others };
        let (taken, again) = self.calls.take(function, request, waiter).await?;
        looks.answered(nth);
        // The leases count from before the request, and may be due for renewal by now.
        match asked.elapsed() < lease / 3 {
            true => Ok((taken, again)),
            false => Ok((self.calls.still_taken(taken, lease).await, again)),
        }
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
        let (dead, budget) = (dead.to_string(), self.calls.budget());
        self.calls.ask(&jobs::RETRY_OR_REMOVE, function, &[how, id, &dead], budget).await
    }
}

impl Deferrer for RedisJobs {
    fn call_failed(&self, _: &LockError) -> bool {
        self.calls.is_news()
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
            let mut looks = self.idle_looks.take(&self.calls, &options.functions);
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
                self.idle_looks.put(looks);
                return answer;
            }
        })
    }

    fn keep(&self, job: Job, lease: Duration) -> Answer<'_, bool> {
        Box::pin(async move { self.calls.keep(&job, lease, self.calls.budget()).await })
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
            self.calls.ask(&jobs::SETTLE, &job.function, &args, self.calls.budget()).await
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
            let budget = self.calls.budget_for_calls();
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
