//! The requests about the jobs of one function, each a call of a script.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use redis::{FromRedisValue, ParsingError, Value, from_redis_value};

use super::scripts;
use crate::defer::job::Job;
use crate::defer::limits::{ABANDONED, DEAD_MAX, note_abandoned};
use crate::defer::queue::budget::of_bytes;
use crate::store::redis::client::node::Node;
use crate::store::redis::client::script::Script;
use crate::store::redis::reply::parsed;
use crate::store::redis::store::Redis;
use crate::store::remote::budget::{Budget, Retry};
use crate::store::subscriptions::Subscription;
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
pub(crate) const REPLY_BYTES_MAX: &str = "262144";

/// Calls a script until it is answered, or the budget is used up.
pub(crate) async fn ask<T: FromRedisValue>(
    redis: &Redis,
    script: &'static Script,
    function: &str,
    args: &[&str],
    budget: Budget,
) -> Result<T, LockError> {
    let keys = [key_of(function)];
    let eval = |budget, _| redis.eval(script.with(&keys, args), budget);
    let reply = Retry::new(budget).repeat(eval).await.and_then(parsed);
    reply.map_err(|error| error.into_error(&keys[0]))
}

/// Takes jobs of one function with arguments of at most `size` bytes; returns them and when to
/// look again. A request with the same `id` gets the same jobs. The waiter receives pushes. A
/// `brief` request has the time of one answer for all of it.
pub(crate) async fn take_jobs(
    redis: &Redis,
    (function, subscription): (&Arc<str>, &Subscription),
    id: &str,
    most: usize,
    lease: Duration,
    size: usize,
    brief: bool,
) -> Result<(Vec<Job>, Duration), LockError> {
    let usual = if brief { redis.brief() } else { redis.budget() };
    let received = listen_for(redis, subscription, usual).await?;
    let tick = if received { TICK } else { TICK_POLLING };
    let idle = if received {
        format!("{}|{}", subscription.number(), redis.grants.channel(subscription.slot()))
    } else {
        String::new()
    };
    let budget = match of_bytes(size, redis.timeout) {
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
        ask(redis, &scripts::TAKE, function, &args, budget).await?;
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
pub(crate) async fn still_taken(redis: &Redis, taken: Vec<Job>, lease: Duration) -> Vec<Job> {
    let keeping = taken.iter().map(|job| keep_job(redis, job, lease, redis.brief()));
    let kept = join_all(keeping).await;
    // A job whose state is unknown is left to its lease.
    let is_kept = |(job, kept): (Job, Result<bool, _>)| kept.unwrap_or(false).then_some(job);
    taken.into_iter().zip(kept).filter_map(is_kept).collect()
}

pub(crate) async fn keep_job(
    redis: &Redis,
    job: &Job,
    lease: Duration,
    budget: Budget,
) -> Result<bool, LockError> {
    let args = [&*job.id, &job.claim.to_string(), &millis(lease)];
    ask(redis, &scripts::KEEP, &job.function, &args, budget).await
}

/// Subscribes to the pushes of a function; returns whether they can be received.
async fn listen_for(
    redis: &Redis,
    subscription: &Subscription,
    budget: Budget,
) -> Result<bool, LockError> {
    let listen = |node: Node| async move { node.listen(subscription.slot(), budget).await };
    let listened = redis.nodes.route(|| subscription.slot(), budget, listen).await;
    match listened {
        Ok(received) => Ok(received),
        Err(error) => match error.transient() {
            Ok(_) => Ok(false),
            Err(error) => Err(error.into_error(&LockKey::from("lm1:jobs"))),
        },
    }
}

pub(crate) fn key_of(function: &str) -> LockKey {
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

/// The id, the arguments and the key of a job, and how often it was tried, taken and busy.
type TakenJob = (Text, Text, Text, u32, u64, u32);
