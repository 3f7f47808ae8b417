//! Deferred calls on a Redis server, by a script for each thing that is done with them.

use std::sync::Arc;
use std::time::Duration;

use redis::Value;
use tokio::select;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::looks::{Kept, Looks};
use super::node::Patience;
use super::script::{Script, jobs};
use super::tries::Tries;
use super::trouble::Trouble;
use super::{Nodes, Redis, unexpected};
use crate::defer::{
    Answer, DEAD_MAX, Deferrer, Enough, Job, JobInfo, JobState, NewJob, Order, Page, Settled,
    Stored, WAITING_MAX, full,
};
use crate::error::LockError;
use crate::key::LockKey;
use crate::side;
use crate::waiting::Waiter;

/// What the keys of functions start with.
pub(super) const CALLS: &str = "lm1:jobs:";
/// How long a worker with nothing to do waits for news at most.
const TICK: Duration = Duration::from_secs(2);
/// The same when nobody can tell it.
const TICK_UNHEARD: Duration = Duration::from_millis(250);
/// Shortest pause after a look that found nothing to take.
const PAUSE_MIN: Duration = Duration::from_millis(1);
/// So many calls are taken at once.
const TAKEN_MAX: usize = 1_000;

/// The deferred calls on the server of some locks.
#[derive(Debug)]
pub(crate) struct RedisJobs {
    calls: Calls,
    looks: Kept,
}

/// What can be asked about them.
#[derive(Debug, Clone)]
pub(super) struct Calls(Arc<Redis>);

impl RedisJobs {
    pub(crate) fn new(redis: &Arc<Redis>) -> Self {
        Self { calls: Calls(Arc::clone(redis)), looks: Kept::default() }
    }

    /// Takes calls of one function, and tells when to look again.
    async fn take_of(
        &self,
        looks: &Looks,
        nth: usize,
        order: &Order,
    ) -> Result<(Vec<Job>, Duration), LockError> {
        let (function, waiter) = looks.of(nth);
        let asked = Instant::now();
        let others = order.functions.len() > 1;
        let patience = if others { self.calls.0.brief() } else { self.calls.0.patience() };
        let (most, lease) = (order.most.min(TAKEN_MAX), order.lease);
        let (taken, again) = self.calls.take(function, most, lease, waiter, patience).await?;
        // Its leases count from before it was sent, and are to be prolonged by now.
        match asked.elapsed() < lease / 3 {
            true => Ok((taken, again)),
            false => Ok((self.calls.still_its(taken, lease).await, again)),
        }
    }
}

impl Calls {
    /// Calls a script until it is answered, or the manager's timeout is over.
    async fn ask(
        &self,
        script: &Script,
        function: &str,
        args: &[&str],
    ) -> Result<Value, LockError> {
        self.ask_for(script, function, args, self.0.patience()).await
    }

    /// The same with another patience.
    async fn ask_for(
        &self,
        script: &Script,
        function: &str,
        args: &[&str],
        patience: Patience,
    ) -> Result<Value, LockError> {
        let keys = [key_of(function)];
        let mut tries = Tries::new(patience);
        loop {
            let trouble = match self.0.eval(script, &keys, args, tries.patience).await {
                Ok(value) => return Ok(value),
                Err(Trouble::Passing(passing)) => match tries.after(passing).await {
                    Ok(()) => continue,
                    Err(trouble) => trouble,
                },
                Err(trouble) => trouble,
            };
            let [key] = keys;
            return Err(trouble.into_error(&key));
        }
    }

    /// The same for an answer of yes or no.
    async fn whether(
        &self,
        script: &Script,
        function: &str,
        args: &[&str],
    ) -> Result<bool, LockError> {
        whether(&self.ask(script, function, args).await?)
    }

    /// One who hears of news of a function.
    pub(super) fn join(&self, function: &str) -> Waiter {
        let slot = side::slot(key_of(function).as_str());
        self.0.nodes.grants().waiters.join(slot, crate::token::chance() as u64)
    }

    /// In how long something of a function is due. Takes nothing. The waiter hears of news.
    pub(super) async fn look(
        &self,
        function: &Arc<str>,
        waiter: &Waiter,
    ) -> Result<Duration, LockError> {
        let looked = self.take(function, 0, Duration::ZERO, waiter, self.0.brief());
        Ok(looked.await?.1)
    }

    /// Takes calls of one function, and tells when to look again. The waiter hears of news.
    async fn take(
        &self,
        function: &Arc<str>,
        most: usize,
        lease: Duration,
        waiter: &Waiter,
        patience: Patience,
    ) -> Result<(Vec<Job>, Duration), LockError> {
        let heard = self.listen(waiter, patience).await?;
        let tick = if heard { TICK } else { TICK_UNHEARD };
        let idle = match heard {
            true => format!("{}|{}", waiter.number, self.0.nodes.grants().channel(waiter.slot())),
            false => String::new(),
        };
        let args = [&*most.to_string(), &millis(lease), &idle, &millis(tick)];
        let reply = self.ask_for(&jobs::TAKE, function, &args, patience).await?;
        let Value::Array(parts) = &reply else { return Err(strange(&reply)) };
        let [Value::Int(again), Value::Int(strays), calls @ ..] = parts.as_slice() else {
            return Err(strange(&reply));
        };
        if *strays > 0 {
            tracing::error!(%function, strays, "what is no deferred call was removed: it had no arguments, or an id that is no text");
        }
        let calls = calls.iter().filter_map(|call| {
            let [id, arguments, key, tried, taken] = fields(call)?.try_into().ok()?;
            let (attempt, taken) = (tried.parse().ok()?, taken.parse().ok()?);
            Some(Job { function: Arc::clone(function), id, arguments, key, attempt, taken })
        });
        let again = Duration::from_millis(u64::try_from(*again).unwrap_or_default());
        Ok((calls.collect(), again.min(tick)))
    }

    /// Those of some calls that are still the worker's, which has them for the whole of a lease then.
    async fn still_its(&self, taken: Vec<Job>, lease: Duration) -> Vec<Job> {
        let mut keeping = JoinSet::new();
        for (nth, job) in taken.into_iter().enumerate() {
            let calls = self.clone();
            keeping.spawn(async move {
                // What is not known to be its own is left to its lease.
                let kept = calls.keep(&job, lease, calls.0.brief()).await.unwrap_or(false);
                kept.then_some((nth, job))
            });
        }
        let mut kept = Vec::new();
        while let Some(job) = keeping.join_next().await {
            kept.extend(job.ok().flatten());
        }
        kept.sort_unstable_by_key(|(nth, _)| *nth);
        kept.into_iter().map(|(_, job)| job).collect()
    }

    async fn keep(
        &self,
        job: &Job,
        lease: Duration,
        patience: Patience,
    ) -> Result<bool, LockError> {
        let args = [&*job.id, &job.taken.to_string(), &millis(lease)];
        whether(&self.ask_for(&jobs::KEEP, &job.function, &args, patience).await?)
    }

    /// Sees to it that news can be heard, where they can.
    async fn listen(&self, waiter: &Waiter, patience: Patience) -> Result<bool, LockError> {
        let listened = match &self.0.nodes {
            Nodes::One(node) => node.listen(waiter.slot(), patience).await,
            Nodes::Cluster(cluster) => match cluster.way(waiter.slot(), patience).await {
                Ok(mut way) => loop {
                    let node = way.node.clone();
                    let listened = node.listen(waiter.slot(), patience).await;
                    if let Some(listened) = way.follow(listened).await {
                        break listened;
                    }
                },
                Err(trouble) => Err(trouble),
            },
        };
        match listened {
            Ok(heard) => Ok(heard),
            Err(Trouble::Passing(_)) => Ok(false),
            Err(trouble) => Err(trouble.into_error(&LockKey::from("lm1:jobs"))),
        }
    }
}

impl Deferrer for RedisJobs {
    fn put(&self, job: NewJob) -> Answer<'_, Stored> {
        Box::pin(async move {
            let NewJob { function, id, arguments, key, delay, unique } = job;
            let (delay, unique) = (millis(delay), if unique { "1" } else { "0" });
            let args = [&id, &delay, &arguments, &key, unique, &WAITING_MAX.to_string()];
            match self.calls.ask(&jobs::PUT, &function, &args).await? {
                Value::Array(parts) => match parts.as_slice() {
                    [id, Value::Int(due)] => {
                        let id = text(id).ok_or_else(|| strange(id))?;
                        let due = Duration::from_millis(u64::try_from(*due).unwrap_or_default());
                        Ok(Stored { id, due })
                    }
                    _ => Err(strange(&Value::Nil)),
                },
                Value::Int(0) => Err(full(&function)),
                other => Err(strange(&other)),
            }
        })
    }

    fn take<'a>(&'a self, order: Order, mut enough: Enough<'a>) -> Answer<'a, Vec<Job>> {
        Box::pin(async move {
            if order.most == 0 {
                return Ok(Vec::new());
            }
            let mut looks = self.looks.take(&self.calls, &order.functions);
            loop {
                let (nth, due) = select! {
                    biased;
                    () = &mut enough => return Ok(Vec::new()),
                    next = looks.next() => next,
                };
                let found = match due {
                    Ok(Duration::ZERO) => self.take_of(&looks, nth, &order).await,
                    other => other.map(|again| (Vec::new(), again)),
                };
                match found {
                    Ok((taken, again)) if taken.is_empty() => {
                        looks.well(nth, again.max(PAUSE_MIN));
                    }
                    // What it has is run before others are waited for.
                    Ok((taken, _)) => {
                        looks.well(nth, Duration::ZERO);
                        self.looks.put(looks);
                        return Ok(taken);
                    }
                    Err(error) => looks.troubled(nth, error)?,
                }
            }
        })
    }

    fn keep(&self, job: Job, lease: Duration) -> Answer<'_, bool> {
        Box::pin(async move { self.calls.keep(&job, lease, self.calls.0.patience()).await })
    }

    fn settle(&self, job: Job, how: Settled) -> Answer<'_, bool> {
        Box::pin(async move {
            let (how, delay, error) = match how {
                Settled::Done => ("done", Duration::ZERO, String::new()),
                Settled::Again { delay, error } => ("again", delay, error),
                Settled::Dead { error } => ("dead", Duration::ZERO, error),
                Settled::Back => ("back", Duration::ZERO, String::new()),
            };
            let (taken, delay) = (job.taken.to_string(), millis(delay));
            let args = [&*job.id, &taken, how, &delay, &error, &DEAD_MAX.to_string()];
            self.calls.whether(&jobs::SETTLE, &job.function, &args).await
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
            let args = [state.name(), &first.to_string(), &most.min(TAKEN_MAX).to_string()];
            let reply = self.calls.ask(&jobs::LIST, &function, &args).await?;
            let Value::Array(parts) = &reply else { return Err(strange(&reply)) };
            let [Value::Int(total), calls @ ..] = parts.as_slice() else {
                return Err(strange(&reply));
            };
            let jobs = calls.iter().filter_map(|call| {
                let mut fields = fields(call)?.into_iter();
                let mut field = || fields.next();
                Some(JobInfo {
                    function: Arc::clone(&function),
                    id: field()?,
                    arguments: field()?,
                    key: field()?,
                    attempts: field()?.parse().unwrap_or_default(),
                    error: field().filter(|error| !error.is_empty()),
                    in_millis: field()?.parse().ok()?,
                })
            });
            Ok(Page { total: usize::try_from(*total).unwrap_or_default(), jobs: jobs.collect() })
        })
    }

    fn retry(&self, function: Arc<str>, id: String) -> Answer<'_, bool> {
        Box::pin(async move { self.calls.whether(&jobs::AMEND, &function, &[&id, "retry"]).await })
    }

    fn remove(&self, function: Arc<str>, id: String) -> Answer<'_, bool> {
        Box::pin(async move { self.calls.whether(&jobs::AMEND, &function, &[&id, "remove"]).await })
    }
}

fn whether(reply: &Value) -> Result<bool, LockError> {
    match reply {
        Value::Int(done @ (0 | 1)) => Ok(*done == 1),
        other => Err(strange(other)),
    }
}

fn key_of(function: &str) -> LockKey {
    [CALLS, function].concat().into()
}

fn millis(time: Duration) -> String {
    time.as_millis().to_string()
}

fn strange(reply: &Value) -> LockError {
    unexpected(reply).into_error(&LockKey::from("lm1:jobs"))
}

fn fields(reply: &Value) -> Option<Vec<String>> {
    match reply {
        Value::Array(fields) => fields.iter().map(text).collect(),
        _ => None,
    }
}

/// What is stored may be anything: what is no text is told as far as it is one.
fn text(reply: &Value) -> Option<String> {
    match reply {
        Value::BulkString(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        Value::Int(number) => Some(number.to_string()),
        _ => None,
    }
}
