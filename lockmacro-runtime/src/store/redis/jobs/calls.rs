//! Questions about the deferred calls of one function, each a call of a script on its server.

use std::sync::Arc;
use std::time::Duration;

use redis::Value;
use tokio::task::JoinSet;

use crate::jobs::call::Job;
use crate::jobs::limits::{DEAD_MAX, note_abandoned};
use crate::store::redis::client::budget::Budget;
use crate::store::redis::client::budget::TRIES;
use crate::store::redis::client::error::CallError;
use crate::store::redis::client::error::unexpected;
use crate::store::redis::client::node::Node;
use crate::store::redis::client::retry::Retry;
use crate::store::redis::client::script::Script;
use crate::store::redis::scripts::jobs;
use crate::store::redis::store::Redis;
use crate::store::waiters::Waiter;
use crate::value::companion::slot;
use crate::value::error::LockError;
use crate::value::key::LockKey;

/// What the keys of functions start with.
pub(crate) const CALLS: &str = "lm1:jobs:";
/// How long a worker with nothing to do waits for news at most.
const TICK: Duration = Duration::from_secs(2);
/// The same when nobody can tell it.
const TICK_POLLING: Duration = Duration::from_millis(250);

/// How many bytes the calls of one reply have at most, unless it is one call: a reply holds up all
/// others of its connection.
pub(crate) const BUDGET: &str = "262144";
/// What a network is expected to carry, in bytes a second.
const BANDWIDTH: f64 = 4.0 * 1024.0 * 1024.0;

/// The deferred calls on the server of some locks.
#[derive(Debug, Clone)]
pub(crate) struct Calls {
    redis: Arc<Redis>,
    /// How many bytes of arguments one call may have.
    max_size: usize,
}

/// Which calls are asked for. The same question again is answered by the same calls.
#[derive(Debug, Clone)]
pub(crate) struct Question<'a> {
    pub(crate) id: &'a str,
    pub(crate) most: usize,
    pub(crate) lease: Duration,
    /// Whether others must not be held up: then the time of one answer is all there is.
    pub(crate) brief: bool,
}

impl Calls {
    pub(crate) fn new(redis: &Arc<Redis>, max_size: usize) -> Self {
        Self { redis: Arc::clone(redis), max_size }
    }

    /// Takes note of a call that has failed because of the server; tells whether to log it at WARN.
    pub(crate) fn call_failed(&self, error: &LockError) -> bool {
        self.redis.call_failed(error)
    }

    pub(crate) fn budget(&self) -> Budget {
        self.redis.budget()
    }

    /// Budget for a call of a script with so many bytes, there or back.
    pub(crate) fn budget_for(&self, bytes: usize) -> Budget {
        // An hour is more than any timeout may be.
        let more = Duration::from_secs_f64((bytes as f64 / BANDWIDTH).min(3_600.0));
        Budget::new(self.redis.answer() + more, self.redis.timeout + more * TRIES)
    }

    /// Budget for a reply with calls.
    pub(crate) fn budget_for_calls(&self) -> Budget {
        self.budget_for(self.max_size)
    }

    /// Asks whether the user may do what the calls of a function need, unless it is known.
    /// CallError of the server passes, or is told by the next question.
    pub(crate) async fn allowed(&self, function: &str) -> Result<(), LockError> {
        let key = key_of(function);
        match self.redis.ask_rights_for_calls(&key, self.redis.brief()).await {
            Err(error @ CallError::Final(_)) => Err(error.into_error(&key)),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Calls a script until it is answered, or the manager's timeout is over.
    pub(crate) async fn ask(
        &self,
        script: &'static Script,
        function: &str,
        args: &[&str],
    ) -> Result<Value, LockError> {
        self.ask_for(script, function, args, self.redis.budget()).await
    }

    /// The same with another patience.
    pub(crate) async fn ask_for(
        &self,
        script: &'static Script,
        function: &str,
        args: &[&str],
        budget: Budget,
    ) -> Result<Value, LockError> {
        let keys = [key_of(function)];
        let mut retry = Retry::new(budget);
        loop {
            let error = match self.redis.eval(script, &keys, args, retry.budget).await {
                Ok(value) => return Ok(value),
                Err(CallError::Transient(transient)) => match retry.after(transient).await {
                    Ok(()) => continue,
                    Err(error) => error,
                },
                Err(error) => error,
            };
            let [key] = keys;
            return Err(error.into_error(&key));
        }
    }

    /// The same for an answer of yes or no.
    pub(crate) async fn whether(
        &self,
        script: &'static Script,
        function: &str,
        args: &[&str],
    ) -> Result<bool, LockError> {
        whether(&self.ask(script, function, args).await?)
    }

    /// One who hears of news of a function.
    pub(crate) fn join(&self, function: &str) -> Waiter {
        let slot = slot(key_of(function).as_str());
        self.redis.grants.waiters.join(slot, 0, crate::value::token::chance() as u64)
    }

    /// In how long something of a function is due. Takes nothing. The waiter hears of news.
    pub(crate) async fn look(
        &self,
        function: &Arc<str>,
        waiter: &Waiter,
    ) -> Result<Duration, LockError> {
        let nothing = Question { id: "", most: 0, lease: Duration::ZERO, brief: true };
        Ok(self.take(function, nothing, waiter).await?.1)
    }

    /// Takes calls of one function, and tells when to look again. The waiter hears of news.
    pub(crate) async fn take(
        &self,
        function: &Arc<str>,
        question: Question<'_>,
        waiter: &Waiter,
    ) -> Result<(Vec<Job>, Duration), LockError> {
        let Question { id, most, lease, brief } = question;
        let usual = if brief { self.redis.brief() } else { self.budget() };
        let received = self.listen(waiter, usual).await?;
        let tick = if received { TICK } else { TICK_POLLING };
        let idle = match received {
            true => {
                format!("{}|{}", waiter.number(), self.redis.grants.channel(waiter.slot()))
            }
            false => String::new(),
        };
        let budget = match self.budget_for_calls() {
            // A look is answered without any call.
            _ if most == 0 => usual,
            long if brief => Budget::new(long.answer, long.answer),
            long => long,
        };
        let (most, dead_max) = (most.to_string(), DEAD_MAX.to_string());
        let args = [&*most, &millis(lease), &idle, &millis(tick), id, BUDGET, &dead_max];
        let reply = self.ask_for(&jobs::TAKE, function, &args, budget).await?;
        let Value::Array(parts) = &reply else { return Err(unexpected_reply(&reply)) };
        let [Value::Int(again), Value::Int(strays), Value::Array(dead), calls @ ..] =
            parts.as_slice()
        else {
            return Err(unexpected_reply(&reply));
        };
        for call in dead {
            if let Some([id, times]) = fields(call).as_deref() {
                note_abandoned(function, id, times.parse().unwrap_or_default());
            }
        }
        if *strays > 0 {
            tracing::error!(%function, strays, "entries that are no deferred calls were removed: they had no arguments, or an id that is not UTF-8");
        }
        let calls = calls.iter().filter_map(|call| {
            let [id, arguments, key, tried, taken, busy] = fields(call)?.try_into().ok()?;
            let (attempt, taken) = (tried.parse().ok()?, taken.parse().ok()?);
            let (function, busy) = (Arc::clone(function), busy.parse().ok()?);
            Some(Job { function, id, arguments, key, attempt, busy, taken })
        });
        let again = Duration::from_millis(u64::try_from(*again).unwrap_or_default());
        Ok((calls.collect(), again.min(tick)))
    }

    /// Those of some calls that are still the worker's, which has them for the whole of a lease then.
    pub(crate) async fn still_taken(&self, taken: Vec<Job>, lease: Duration) -> Vec<Job> {
        let mut keeping = JoinSet::new();
        for (nth, job) in taken.into_iter().enumerate() {
            let calls = self.clone();
            keeping.spawn(async move {
                // What is not known to be its own is left to its lease.
                let kept = calls.keep(&job, lease, calls.redis.brief()).await.unwrap_or(false);
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

    pub(crate) async fn keep(
        &self,
        job: &Job,
        lease: Duration,
        budget: Budget,
    ) -> Result<bool, LockError> {
        let args = [&*job.id, &job.taken.to_string(), &millis(lease)];
        whether(&self.ask_for(&jobs::KEEP, &job.function, &args, budget).await?)
    }

    /// Sees to it that news can be heard, where they can.
    async fn listen(&self, waiter: &Waiter, budget: Budget) -> Result<bool, LockError> {
        let listen = |node: Node| async move { node.listen(waiter.slot(), budget).await };
        let listened = self.redis.nodes.route(|| waiter.slot(), budget, listen).await;
        match listened {
            Ok(received) => Ok(received),
            Err(CallError::Transient(_)) => Ok(false),
            Err(error) => Err(error.into_error(&LockKey::from("lm1:jobs"))),
        }
    }
}

fn whether(reply: &Value) -> Result<bool, LockError> {
    match reply {
        Value::Int(done @ (0 | 1)) => Ok(*done == 1),
        other => Err(unexpected_reply(other)),
    }
}

fn key_of(function: &str) -> LockKey {
    [CALLS, function].concat().into()
}

pub(crate) fn millis(time: Duration) -> String {
    time.as_millis().to_string()
}

pub(crate) fn unexpected_reply(reply: &Value) -> LockError {
    unexpected(reply).into_error(&LockKey::from("lm1:jobs"))
}

pub(crate) fn fields(reply: &Value) -> Option<Vec<String>> {
    match reply {
        Value::Array(fields) => fields.iter().map(text).collect(),
        _ => None,
    }
}

/// What is stored may be anything: what is no text is told as far as it is one.
pub(crate) fn text(reply: &Value) -> Option<String> {
    match reply {
        Value::BulkString(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        Value::Int(number) => Some(number.to_string()),
        _ => None,
    }
}
