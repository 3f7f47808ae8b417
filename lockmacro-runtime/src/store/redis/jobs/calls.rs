//! The requests about the deferred calls of one function, each a call of a script.

use std::sync::Arc;
use std::time::Duration;

use redis::Value;

use crate::jobs::call::Job;
use crate::jobs::limits::{ABANDONED, DEAD_MAX, note_abandoned};
use crate::store::redis::client::budget::{Budget, CALLS_PER_TIMEOUT};
use crate::store::redis::client::error::unexpected_reply;
use crate::store::redis::client::node::Node;
use crate::store::redis::client::retry::Retry;
use crate::store::redis::client::script::Script;
use crate::store::redis::scripts::jobs;
use crate::store::redis::store::Redis;
use crate::store::servers::Servers;
use crate::store::waiters::Waiter;
use crate::value::companion::slot;
use crate::value::error::LockError;
use crate::value::key::LockKey;
use crate::value::random::random_name;
use crate::value::task::JoinSet;

/// Prefix of the keys of functions.
pub(crate) const CALLS: &str = "lm1:jobs:";
/// Longest time for which an idle worker waits for a push.
const TICK: Duration = Duration::from_secs(2);
/// The same where pushes cannot be received.
const TICK_POLLING: Duration = Duration::from_millis(250);

/// Most bytes in the calls of one reply, unless it is a single call: a large reply delays all
/// others on its connection.
pub(crate) const REPLY_BYTES_MAX: &str = "262144";
/// Assumed bandwidth of the network, in bytes a second.
const BANDWIDTH: f64 = 4.0 * 1024.0 * 1024.0;

/// The deferred calls on the server of a manager's locks.
#[derive(Debug, Clone)]
pub(crate) struct Calls {
    redis: Arc<Redis>,
    /// Most bytes in the arguments of one call.
    max_size: usize,
}

/// A request for calls. A repeated request gets the same calls.
#[derive(Debug, Clone)]
pub(crate) struct TakeRequest<'a> {
    pub(crate) id: &'a str,
    pub(crate) most: usize,
    pub(crate) lease: Duration,
    /// Whether other functions must not be delayed: the whole call then has the time of one answer.
    pub(crate) brief: bool,
}

impl Calls {
    pub(crate) fn new(redis: &Arc<Redis>, max_size: usize) -> Self {
        Self { redis: Arc::clone(redis), max_size }
    }

    /// Whether to log a call that has failed because of the server at WARN.
    pub(crate) fn is_news(&self) -> bool {
        self.redis.is_news()
    }

    pub(crate) fn budget(&self) -> Budget {
        self.redis.budget()
    }

    /// Budget for a script call with this many bytes, in the request or in the reply.
    pub(crate) fn budget_for(&self, bytes: usize) -> Budget {
        // An hour is more than any timeout may be.
        let more = Duration::from_secs_f64((bytes as f64 / BANDWIDTH).min(3_600.0));
        Budget::new(self.redis.answer() + more, self.redis.timeout + more * CALLS_PER_TIMEOUT)
    }

    /// Budget for a reply with calls.
    pub(crate) fn budget_for_calls(&self) -> Budget {
        self.budget_for(self.max_size)
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

    /// The same with another budget.
    pub(crate) async fn ask_for(
        &self,
        script: &'static Script,
        function: &str,
        args: &[&str],
        budget: Budget,
    ) -> Result<Value, LockError> {
        let keys = [key_of(function)];
        let eval = |budget, _| self.redis.eval(script.with(&keys, args), budget);
        let value = Retry::new(budget).repeat(eval).await;
        value.map_err(|error| error.into_error(&keys[0]))
    }

    /// The same for a reply of 0 or 1.
    pub(crate) async fn whether(
        &self,
        script: &'static Script,
        function: &str,
        args: &[&str],
    ) -> Result<bool, LockError> {
        whether(&self.ask(script, function, args).await?)
    }

    /// Registers for the pushes of a function.
    pub(crate) fn join(&self, function: &str) -> Waiter {
        let slot = slot(key_of(function).as_str());
        self.redis.grants.waiters.join(slot, random_name() as u64)
    }

    /// The time until a call of a function is due; takes no call. The waiter receives pushes.
    pub(crate) async fn look(
        &self,
        function: &Arc<str>,
        waiter: &Waiter,
    ) -> Result<Duration, LockError> {
        let nothing = TakeRequest { id: "", most: 0, lease: Duration::ZERO, brief: true };
        Ok(self.take(function, nothing, waiter).await?.1)
    }

    /// Takes calls of one function; returns them and when to look again. The waiter receives
    /// pushes.
    pub(crate) async fn take(
        &self,
        function: &Arc<str>,
        request: TakeRequest<'_>,
        waiter: &Waiter,
    ) -> Result<(Vec<Job>, Duration), LockError> {
        let TakeRequest { id, most, lease, brief } = request;
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
            // No call is in the reply.
            _ if most == 0 => usual,
            long if brief => Budget::new(long.answer, long.answer),
            long => long,
        };
        let (most, dead_max) = (most.to_string(), DEAD_MAX.to_string());
        let (lease, tick_millis) = (millis(lease), millis(tick));
        let args = [&*most, &lease, &idle, &tick_millis, id, REPLY_BYTES_MAX, &dead_max, ABANDONED];
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
            tracing::error!(
                %function,
                strays,
                "entries that are no deferred calls were removed: \
                 they had no arguments, or an id that is not UTF-8"
            );
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

    /// Those of these calls that the worker still has, renewed for a whole lease.
    pub(crate) async fn still_taken(&self, taken: Vec<Job>, lease: Duration) -> Vec<Job> {
        let mut keeping = JoinSet::new();
        for (nth, job) in taken.into_iter().enumerate() {
            let calls = self.clone();
            keeping.spawn(async move {
                // A call whose state is unknown is left to its lease.
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

    /// Subscribes to the pushes of a function; returns whether they can be received.
    async fn listen(&self, waiter: &Waiter, budget: Budget) -> Result<bool, LockError> {
        let listen = |node: Node| async move { node.listen(waiter.slot(), budget).await };
        let listened = self.redis.nodes.route(|| waiter.slot(), budget, listen).await;
        match listened {
            Ok(received) => Ok(received),
            Err(error) => match error.transient() {
                Ok(_) => Ok(false),
                Err(error) => Err(error.into_error(&LockKey::from("lm1:jobs"))),
            },
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

pub(crate) fn fields(reply: &Value) -> Option<Vec<String>> {
    match reply {
        Value::Array(fields) => fields.iter().map(text).collect(),
        _ => None,
    }
}

/// Reads text; bytes that are not UTF-8 are replaced, since other programs may have stored them.
pub(crate) fn text(reply: &Value) -> Option<String> {
    match reply {
        Value::BulkString(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        Value::Int(number) => Some(number.to_string()),
        _ => None,
    }
}
