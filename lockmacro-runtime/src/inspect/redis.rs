//! Reading the locks of a server, by SCAN and by scripts that do not write.

pub(crate) mod facts;
pub(crate) mod rights;
pub(crate) mod scripts;

use std::collections::BTreeMap;
use std::pin::pin;
use std::slice;
use std::string::FromUtf8Error;
use std::time::Duration;

use futures_util::stream::{Stream, TryStreamExt, try_unfold};
use redis::{FromRedisValue, cmd};

use crate::inspect::found::{HeldLock, Listing, QueuedWaiter, SKIPPED_MAX, Skipped};
use crate::inspect::inspection::Inspection;
use crate::protocol::answer::StoreFuture;
use crate::store::backend::Backend;
use crate::store::redis::client::node::Node;
use crate::store::redis::client::script::ScriptCall;
use crate::store::redis::reply::parsed;
use crate::store::redis::store::Redis;
use crate::store::remote::budget::Retry;
use crate::store::remote::error::RemoteError;
use crate::value::error::LockError;
use crate::value::holder::Holder;
use crate::value::key::LockKey;
use crate::value::token::{TOKEN_MAX, Token};

/// Most keys that one script call reads.
const KEYS_PER_CALL: usize = 100;
/// Keys that the server scans for one reply.
const SCAN_COUNT: &str = "1000";
/// Most waiters or holders of a key that are returned.
const LISTED_MAX: usize = 1_000;

impl Inspection for Redis {
    fn held<'a>(
        &'a self,
        pattern: &'a str,
        foreign: bool,
        limit: usize,
    ) -> StoreFuture<'a, Result<Listing<HeldLock>, LockError>> {
        Box::pin(async move {
            let mut locks = BTreeMap::new();
            let mut skipped = Vec::new();
            let mut scan = pin!(scan(self, pattern, "string").await?);
            while locks.len() <= limit
                && let Some(names) = scan.try_next().await?
            {
                let keys: Vec<_> =
                    names.into_iter().filter_map(|name| usable(name, &mut skipped)).collect();
                for lock in look_at(self, &keys, &mut skipped).await? {
                    if foreign || lock.token.is_some() {
                        locks.insert(lock.key.clone(), lock);
                    }
                }
            }
            let truncated = locks.len() > limit;
            Ok(Listing { items: locks.into_values().take(limit).collect(), skipped, truncated })
        })
    }

    fn holder<'a>(
        &'a self,
        key: &'a LockKey,
    ) -> StoreFuture<'a, Result<Option<HeldLock>, LockError>> {
        Box::pin(async move {
            let mut skipped = Vec::new();
            let lock = look_at(self, slice::from_ref(key), &mut skipped).await?.pop();
            match skipped.pop() {
                Some(_) if lock.is_none() => Err(LockError::KeyNotALock { key: key.clone() }),
                _ => Ok(lock),
            }
        })
    }

    fn holders<'a>(
        &'a self,
        key: &'a LockKey,
        limit: usize,
    ) -> StoreFuture<'a, Result<Listing<Holder>, LockError>> {
        Box::pin(async move {
            let limit = limit.clamp(1, LISTED_MAX);
            let keys = slice::from_ref(key);
            let args = [&*(limit + 1).to_string()];
            let reply: Result<Vec<(Vec<u8>, i64)>, _> =
                read(self, scripts::HOLDERS.with(keys, &args)).await;
            let holders = reply.map_err(|error| error.into_error(key))?.into_iter();
            let mut items: Vec<_> =
                holders.map(|(value, left)| Holder::of(&value, lease(left))).collect();
            let truncated = items.len() > limit;
            items.truncate(limit);
            Ok(Listing { items, skipped: Vec::new(), truncated })
        })
    }

    fn queue<'a>(
        &'a self,
        key: &'a LockKey,
        limit: usize,
    ) -> StoreFuture<'a, Result<Listing<QueuedWaiter>, LockError>> {
        Box::pin(async move {
            let limit = limit.clamp(1, LISTED_MAX);
            let keys = slice::from_ref(key);
            let args = [&*limit.to_string()];
            let reply: Result<(usize, Vec<WaiterReply>), _> =
                read(self, scripts::QUEUE.with(keys, &args)).await;
            let (total, waiters) = reply.map_err(|error| error.into_error(key))?;
            let waiters = waiters.into_iter().map(|(token, left, callers, usual_hold)| {
                let Holder { owner, note, asked, .. } = Holder::of(&token, None);
                let [left, usual_hold] = [left, usual_hold].map(|ms| ms.map(Duration::from_millis));
                QueuedWaiter { owner, note, asked, left, callers, usual_hold }
            });
            let items: Vec<_> = waiters.collect();
            let truncated = total > items.len();
            Ok(Listing { items, skipped: Vec::new(), truncated })
        })
    }
}

/// Reads the locks on some keys; keys that are gone are left out.
async fn look_at(
    redis: &Redis,
    keys: &[LockKey],
    skipped: &mut Vec<Skipped>,
) -> Result<Vec<HeldLock>, LockError> {
    let mut locks = Vec::new();
    let mut left = keys;
    while !left.is_empty() {
        let few = &left[..left.len().min(KEYS_PER_CALL)];
        let (now, _) = few.split_at(redis.at_once(few));
        let longest = [&*TOKEN_MAX.to_string()];
        let looked = read(redis, scripts::LOCKS.with(now, &longest)).await;
        let replies: Vec<LockReply> = match looked {
            // From now on the keys are sent one slot at a time.
            Err(RemoteError::CrossSlot) if redis.at_once(few) < now.len() => continue,
            replies => replies.map_err(|error| error.into_error(&now[0]))?,
        };
        locks.extend(now.iter().zip(replies).filter_map(|(key, reply)| lock(key, reply, skipped)));
        left = &left[now.len()..];
    }
    Ok(locks)
}

/// The keys of all primaries that match a pattern, the last primary first. A reply may have
/// none, and a key may be returned twice.
pub(crate) async fn scan<'a>(
    redis: &'a Redis,
    pattern: &'a str,
    kind: &'a str,
) -> Result<impl Stream<Item = Result<Vec<Vec<u8>>, LockError>>, LockError> {
    let failed = move |error: RemoteError| error.into_error(&LockKey::from(pattern));
    let nodes = redis.nodes.all(redis.budget().until).await.map_err(failed)?;
    Ok(try_unfold((nodes, 0), move |(mut nodes, cursor): (Vec<Node>, u64)| async move {
        let Some(node) = nodes.last() else { return Ok(None) };
        let mut scan = cmd("SCAN");
        scan.arg(cursor).arg("MATCH").arg(pattern);
        scan.arg("COUNT").arg(SCAN_COUNT).arg("TYPE").arg(kind);
        let ask = |budget, _| node.call(scan.clone(), budget);
        let reply = Retry::new(redis.budget()).repeat(ask).await.and_then(parsed);
        let (cursor, names) = reply.map_err(failed)?;
        if cursor == 0 {
            nodes.pop();
        }
        Ok(Some((names, (nodes, cursor))))
    }))
}
/// Calls a script that reads, until it is answered.
async fn read<T: FromRedisValue>(redis: &Redis, call: ScriptCall<'_>) -> Result<T, RemoteError> {
    let eval = |budget, _| redis.eval(call, budget);
    Retry::new(redis.budget()).repeat(eval).await.and_then(parsed)
}

/// The token of a waiter, the milliseconds until it counts as dead, its number of callers, and the
/// usual hold time in milliseconds.
type WaiterReply = (Vec<u8>, Option<u64>, Option<usize>, Option<u64>);

/// The value of a lock, `None` when it holds another type; its PTTL, the number of its waiters, and
/// the number of those who share it.
type LockReply = (Option<Vec<u8>>, i64, Option<usize>, usize);

/// The name of a key, noted where it is not UTF-8.
pub(crate) fn text(name: Vec<u8>, skipped: &mut Vec<Skipped>) -> Option<String> {
    let note = |name: FromUtf8Error| note(skipped, &name.into_bytes(), "its name is not UTF-8");
    String::from_utf8(name).map_err(note).ok()
}

/// The name of a key as the key of a lock. Notes a name that cannot be one; leaves out the engine's
/// own keys.
fn usable(name: Vec<u8>, skipped: &mut Vec<Skipped>) -> Option<LockKey> {
    let key = LockKey::found(text(name, skipped)?)?;
    let note = |error| note(skipped, key.as_str().as_bytes(), &LockError::from(error).to_string());
    key.check().map_err(note).ok().map(|()| key)
}

/// The lock that a reply tells of; `None` when the key is gone.
fn lock(
    key: &LockKey,
    (value, left, waiters, sharing): LockReply,
    skipped: &mut Vec<Skipped>,
) -> Option<HeldLock> {
    let Some(value) = value else {
        note(skipped, key.as_str().as_bytes(), "it holds another type of value");
        return None;
    };
    if left == -2 {
        return None;
    }
    if waiters.is_none() {
        note(skipped, key.as_str().as_bytes(), "its queue key holds another type of value");
    }
    let token = Token::found(&value);
    let key = key.clone();
    let holder = Holder::of(&value, lease(left));
    let sharing = Some(sharing).filter(|sharing| *sharing > 0);
    Some(HeldLock { key, holder, sharing, waiters, token })
}

/// The rest of a lease. It is negative for a key that does not expire.
fn lease(left: i64) -> Option<Duration> {
    u64::try_from(left).ok().map(Duration::from_millis)
}

fn note(skipped: &mut Vec<Skipped>, key: &[u8], reason: &str) {
    if skipped.len() < SKIPPED_MAX {
        skipped.push(Skipped {
            key: String::from_utf8_lossy(key).into_owned(),
            reason: reason.to_owned(),
        });
    }
}
