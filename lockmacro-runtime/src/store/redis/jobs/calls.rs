//! The requests about the deferred calls of one function, each a call of a script.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use redis::{FromRedisValue, ParsingError, Value, from_redis_value};

use crate::jobs::call::Job;
use crate::jobs::limits::{ABANDONED, DEAD_MAX, note_abandoned};
use crate::store::redis::client::budget::{Budget, CALLS_PER_TIMEOUT, Retry};
use crate::store::redis::client::node::Node;
use crate::store::redis::client::script::Script;
use crate::store::redis::reply::parsed;
use crate::store::redis::scripts::jobs;
use crate::store::redis::store::Redis;
use crate::store::servers::Servers;
use crate::store::waiters::Waiter;
use crate::value::companion::slot;
use crate::value::error::LockError;
use crate::value::key::LockKey;
use crate::value::random::random_name;

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
    pub(crate) redis: Arc<Redis>,
    /// Most bytes in the arguments of one call.
    pub(crate) max_size: usize,
}

impl Calls {
    pub(crate) fn new(redis: &Arc<Redis>, max_size: usize) -> Self {
        Self { redis: Arc::clone(redis), max_size }
    }

    /// Budget for a script call with this many bytes, in the request or in the reply.
    pub(crate) fn budget_for(&self, bytes: usize) -> Budget {
        // An hour is more than any timeout may be.
        let more = Duration::from_secs_f64((bytes as f64 / BANDWIDTH).min(3_600.0));
        Budget::new(self.redis.answer_time() + more, self.redis.timeout + more * CALLS_PER_TIMEOUT)
    }

    /// Calls a script until it is answered, or the budget is used up.
    pub(crate) async fn ask<T: FromRedisValue>(
        &self,
        script: &'static Script,
        function: &str,
        args: &[&str],
        budget: Budget,
    ) -> Result<T, LockError> {
        let keys = [key_of(function)];
        let eval = |budget, _| self.redis.eval(script.with(&keys, args), budget);
        let reply = Retry::new(budget).repeat(eval).await;
        reply.and_then(parsed).map_err(|error| error.into_error(&keys[0]))
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
        Ok(self.take((function, waiter), "", 0, Duration::ZERO, true).await?.1)
    }

    /// Takes calls of one function; returns them and when to look again. A request with the same
    /// `id` gets the same calls. The waiter receives pushes. A `brief` request has the time of one
    /// answer for the whole call.
    pub(crate) async fn take(
        &self,
        (function, waiter): (&Arc<str>, &Waiter),
        id: &str,
        most: usize,
        lease: Duration,
        brief: bool,
    ) -> Result<(Vec<Job>, Duration), LockError> {
        let usual = if brief { self.redis.brief() } else { self.redis.budget() };
        let received = self.listen(waiter, usual).await?;
        let tick = if received { TICK } else { TICK_POLLING };
        let idle = match received {
            true => {
                format!("{}|{}", waiter.number(), self.redis.grants.channel(waiter.slot()))
            }
            false => String::new(),
        };
        let budget = match self.budget_for(self.max_size) {
            // No call is in the reply.
            _ if most == 0 => usual,
            long if brief => Budget::new(long.answer, long.answer),
            long => long,
        };
        let (most, dead_max) = (most.to_string(), DEAD_MAX.to_string());
        let (lease, tick_millis) = (millis(lease), millis(tick));
        let args = [&*most, &lease, &idle, &tick_millis, id, REPLY_BYTES_MAX, &dead_max, ABANDONED];
        let (again, strays, dead, calls): (_, u64, Vec<(Text, u64)>, Vec<TakenCall>) =
            self.ask(&jobs::TAKE, function, &args, budget).await?;
        for (Text(id), times) in dead {
            note_abandoned(function, &id, times);
        }
        if strays > 0 {
            tracing::error!(
                %function,
                strays,
                "entries that are no deferred calls were removed: \
                 they had no arguments, or an id that is not UTF-8"
            );
        }
        let job = |(Text(id), Text(arguments), Text(key), attempt, taken, busy)| {
            let function = Arc::clone(function);
            Job { function, id, arguments, key, attempt, busy, taken }
        };
        Ok((calls.into_iter().map(job).collect(), Duration::from_millis(again).min(tick)))
    }

    /// Those of these calls that the worker still has, renewed for a whole lease.
    pub(crate) async fn still_taken(&self, taken: Vec<Job>, lease: Duration) -> Vec<Job> {
        let keeping = taken.iter().map(|job| self.keep(job, lease, self.redis.brief()));
        let kept = join_all(keeping).await;
        // A call whose state is unknown is left to its lease.
        let is_kept = |(job, kept): (Job, Result<bool, _>)| kept.unwrap_or(false).then_some(job);
        taken.into_iter().zip(kept).filter_map(is_kept).collect()
    }

    pub(crate) async fn keep(
        &self,
        job: &Job,
        lease: Duration,
        budget: Budget,
    ) -> Result<bool, LockError> {
        let args = [&*job.id, &job.taken.to_string(), &millis(lease)];
        self.ask(&jobs::KEEP, &job.function, &args, budget).await
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

fn key_of(function: &str) -> LockKey {
    [CALLS, function].concat().into()
}

pub(crate) fn millis(time: Duration) -> String {
    time.as_millis().to_string()
}

/// A text in a reply. Bytes that are not UTF-8 are replaced, since other programs may have stored
/// them.
pub(crate) struct Text(pub(crate) String);

impl FromRedisValue for Text {
    fn from_redis_value(value: Value) -> Result<Self, ParsingError> {
        let bytes: Vec<u8> = from_redis_value(value)?;
        Ok(Self(String::from_utf8_lossy(&bytes).into_owned()))
    }
}

/// The id, the arguments and the key of a call, and how often it was tried, taken and busy.
type TakenCall = (Text, Text, Text, u32, u64, u32);
