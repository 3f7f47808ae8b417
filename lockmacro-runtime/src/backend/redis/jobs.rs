//! Deferred calls on a Redis server, by a script for each thing that is done with them.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use redis::Value;
use tokio::select;
use tokio::time::timeout;

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
use crate::waiting::Waiter;

/// What the keys of functions start with.
pub(super) const CALLS: &str = "lm1:jobs:";
/// How long a worker with nothing to do waits for news at most.
const TICK: Duration = Duration::from_secs(2);
/// The same when nobody can tell it.
const TICK_UNHEARD: Duration = Duration::from_millis(250);
/// So many calls are taken at once.
const TAKEN_MAX: usize = 1_000;

/// The deferred calls on the server of some locks.
#[derive(Debug)]
pub(crate) struct RedisJobs(Arc<Redis>);

impl RedisJobs {
    pub(crate) fn new(redis: &Arc<Redis>) -> Self {
        Self(Arc::clone(redis))
    }

    /// Calls a script until it is answered, or the manager's timeout is over.
    async fn ask(
        &self,
        script: &Script,
        function: &str,
        args: &[&str],
    ) -> Result<Value, LockError> {
        let keys = [key_of(function)];
        let mut tries = Tries::new(self.0.patience());
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
        match self.ask(script, function, args).await? {
            Value::Int(done @ (0 | 1)) => Ok(done == 1),
            other => Err(strange(&other)),
        }
    }

    /// Takes calls of one function, and tells when to look again. The waiter hears of news.
    async fn take_now(
        &self,
        function: &Arc<str>,
        most: usize,
        lease: Duration,
        waiter: &Waiter,
    ) -> Result<(Vec<Job>, Duration), LockError> {
        let heard = self.listen(waiter).await?;
        let tick = if heard { TICK } else { TICK_UNHEARD };
        let idle = match heard {
            true => format!("{}|{}", waiter.number, self.0.nodes.grants().channel(waiter.slot())),
            false => String::new(),
        };
        let args = [&*most.min(TAKEN_MAX).to_string(), &millis(lease), &idle, &millis(tick)];
        let reply = self.ask(&jobs::TAKE, function, &args).await?;
        let Value::Array(parts) = &reply else { return Err(strange(&reply)) };
        let [Value::Int(again), Value::Int(strays), calls @ ..] = parts.as_slice() else {
            return Err(strange(&reply));
        };
        if *strays > 0 {
            tracing::error!(%function, strays, "deferred calls without arguments were removed");
        }
        let calls = calls.iter().filter_map(|call| {
            let [id, arguments, key, tried, taken] = fields(call)?.try_into().ok()?;
            let (attempt, taken) = (tried.parse().ok()?, taken.parse().ok()?);
            Some(Job { function: Arc::clone(function), id, arguments, key, attempt, taken })
        });
        let again = Duration::from_millis(u64::try_from(*again).unwrap_or_default());
        // Zero is for who was told that it is enough.
        Ok((calls.collect(), again.clamp(Duration::from_millis(1), tick)))
    }

    /// Sees to it that news can be heard, where they can.
    async fn listen(&self, waiter: &Waiter) -> Result<bool, LockError> {
        let patience = self.0.patience();
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

    /// Asks for all functions, and tells when to look again. One in trouble holds up no other.
    async fn take_first(
        &self,
        order: &Order,
        waiters: &[Waiter],
        enough: &mut Enough<'_>,
    ) -> Result<(Vec<Job>, Duration), LockError> {
        let (mut taken, mut again, mut trouble, mut well) = (Vec::new(), TICK, None, false);
        let functions: Vec<_> = order.functions.iter().zip(waiters).collect();
        // Not always the same one first.
        let (late, early) = functions.split_at(fastrand::usize(..=functions.len()));
        for (function, waiter) in early.iter().chain(late) {
            let most = order.most.saturating_sub(taken.len());
            if most == 0 || is_ready(enough).await {
                return Ok((taken, Duration::ZERO));
            }
            match self.take_now(function, most, order.lease, waiter).await {
                Ok((calls, next)) => {
                    taken.extend(calls);
                    again = again.min(next);
                    well = true;
                }
                Err(error) => {
                    tracing::warn!(%function, %error, "deferred calls could not be taken");
                    trouble = Some(error);
                }
            }
        }
        match trouble {
            Some(error) if !well => Err(error),
            _ => Ok((taken, again)),
        }
    }
}

/// Whether it is ready now. Then it must not be asked again.
async fn is_ready(enough: &mut Enough<'_>) -> bool {
    poll_fn(|cx| Poll::Ready(enough.as_mut().poll(cx).is_ready())).await
}

/// Waits for the first news of any.
async fn news(waiters: &[Waiter]) {
    let mut all: Vec<_> = waiters.iter().map(|waiter| Box::pin(waiter.news())).collect();
    poll_fn(|cx| match all.iter_mut().any(|news| news.as_mut().poll(cx).is_ready()) {
        true => Poll::Ready(()),
        false => Poll::Pending,
    })
    .await;
}

impl Deferrer for RedisJobs {
    fn put(&self, job: NewJob) -> Answer<'_, Stored> {
        Box::pin(async move {
            let NewJob { function, id, arguments, key, delay, unique } = job;
            let (delay, unique) = (millis(delay), if unique { "1" } else { "0" });
            let args = [&id, &delay, &arguments, &key, unique, &WAITING_MAX.to_string()];
            match self.ask(&jobs::PUT, &function, &args).await? {
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
            let slots =
                order.functions.iter().map(|function| self.0.nodes.slot_of(&key_of(function)));
            let waiters: Vec<_> = slots
                .map(|slot| self.0.nodes.grants().waiters.join(slot, crate::token::chance() as u64))
                .collect();
            loop {
                let (taken, again) = self.take_first(&order, &waiters, &mut enough).await?;
                if !taken.is_empty() || again.is_zero() {
                    return Ok(taken);
                }
                // News or not, it looks again.
                let news = timeout(again, news(&waiters));
                select! {
                    biased;
                    () = &mut enough => return Ok(taken),
                    _ = news => {}
                }
            }
        })
    }

    fn keep(&self, job: Job, lease: Duration) -> Answer<'_, bool> {
        Box::pin(async move {
            let args = [&*job.id, &job.taken.to_string(), &millis(lease)];
            self.whether(&jobs::KEEP, &job.function, &args).await
        })
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
            self.whether(&jobs::SETTLE, &job.function, &args).await
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
            let reply = self.ask(&jobs::LIST, &function, &args).await?;
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
        Box::pin(async move { self.whether(&jobs::AMEND, &function, &[&id, "retry"]).await })
    }

    fn remove(&self, function: Arc<str>, id: String) -> Answer<'_, bool> {
        Box::pin(async move { self.whether(&jobs::AMEND, &function, &[&id, "remove"]).await })
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
