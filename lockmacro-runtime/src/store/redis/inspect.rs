//! Reading the locks of a server, by SCAN and by scripts that do not write.

use std::collections::BTreeMap;
use std::slice;
use std::time::Duration;

use redis::Value;

use crate::store::redis::client::budget::Budget;
use crate::store::redis::client::error::{CallError, unexpected_reply};
use crate::store::redis::client::node::Node;
use crate::store::redis::client::retry::Retry;
use crate::store::redis::client::script::ScriptCall;
#[cfg(feature = "defer")]
use crate::store::redis::jobs::calls::CALLS;
use crate::store::redis::scripts::inspect;
use crate::store::redis::store::Redis;
use crate::value::error::LockError;
use crate::value::holder::Holder;
use crate::value::inspection::{Found, HeldLock, ODD_MAX, Odd, QueuedWaiter};
use crate::value::key::LockKey;
use crate::value::token::{TOKEN_MAX, Token, label_of};

/// Most keys that one script call reads.
const KEYS_PER_CALL: usize = 100;
/// Keys that the server scans for one reply.
const SCAN_COUNT: &str = "1000";
/// Most waiters of a queue that are returned.
const WAITERS_MAX: usize = 1_000;

impl Redis {
    /// The locks whose keys match a pattern; with `foreign` also the strings of other programs.
    pub(crate) async fn held(
        &self,
        pattern: &str,
        foreign: bool,
        most: usize,
    ) -> Result<Found<HeldLock>, LockError> {
        let (mut locks, mut odd) = (BTreeMap::new(), Vec::new());
        let mut scan = self.scan(pattern, "string").await?;
        while locks.len() <= most
            && let Some(names) = scan.next(self).await?
        {
            let keys: Vec<_> =
                names.into_iter().filter_map(|name| usable(name, &mut odd)).collect();
            for lock in self.look_at(&keys, &mut odd).await? {
                if foreign || lock.token.is_some() {
                    locks.insert(lock.key.clone(), lock);
                }
            }
        }
        let more = locks.len() > most;
        Ok(Found { found: locks.into_values().take(most).collect(), odd, more })
    }

    /// The holder of one key.
    pub(crate) async fn holder(&self, key: &LockKey) -> Result<Option<HeldLock>, LockError> {
        let mut odd = Vec::new();
        let lock = self.look_at(slice::from_ref(key), &mut odd).await?.pop();
        match odd.pop() {
            Some(_) if lock.is_none() => Err(LockError::KeyNotALock { key: key.clone() }),
            _ => Ok(lock),
        }
    }

    /// The first waiters in the queue of a key.
    pub(crate) async fn queue(
        &self,
        key: &LockKey,
        most: usize,
    ) -> Result<Found<QueuedWaiter>, LockError> {
        let most = most.clamp(1, WAITERS_MAX);
        let keys = slice::from_ref(key);
        let reply =
            self.ask_server(Read::Script(inspect::QUEUE.with(keys, &[&*most.to_string()]))).await;
        let reply = reply.map_err(|error| error.into_error(key))?;
        let Value::Array(parts) = &reply else { return Err(unexpected_reply(&reply)) };
        let [Value::Int(total), waiters @ ..] = parts.as_slice() else {
            return Err(unexpected_reply(&reply));
        };
        let waiter = |waiter: &[Value]| match waiter {
            [Value::BulkString(token), Value::Int(left), Value::Int(callers)] => {
                let Holder { owner, note, .. } = Holder::of(label_of(token), None);
                let (left, callers) = (millis(*left), usize::try_from(*callers).ok());
                Ok(QueuedWaiter { owner, note, left, callers })
            }
            _ => Err(unexpected_reply(&reply)),
        };
        let found: Vec<_> = waiters.chunks(3).map(waiter).collect::<Result<_, _>>()?;
        let more = usize::try_from(*total).is_ok_and(|total| total > found.len());
        Ok(Found { found, odd: Vec::new(), more })
    }

    /// The functions that have deferred calls.
    #[cfg(feature = "defer")]
    pub(crate) async fn deferred_functions(&self, most: usize) -> Result<Found<String>, LockError> {
        let (mut functions, mut odd) = (std::collections::BTreeSet::new(), Vec::new());
        let mut scan = self.scan(&[CALLS, "*"].concat(), "hash").await?;
        while functions.len() <= most
            && let Some(names) = scan.next(self).await?
        {
            for name in names {
                match String::from_utf8(name) {
                    Ok(name) => {
                        functions.extend(name.strip_prefix(CALLS).map(str::to_owned));
                    }
                    Err(name) => note(&mut odd, &name.into_bytes(), NOT_UTF8),
                }
            }
        }
        let more = functions.len() > most;
        Ok(Found { found: functions.into_iter().take(most).collect(), odd, more })
    }

    /// Reads the locks on some keys; keys that are gone are left out.
    async fn look_at(
        &self,
        keys: &[LockKey],
        odd: &mut Vec<Odd>,
    ) -> Result<Vec<HeldLock>, LockError> {
        let (mut locks, mut left) = (Vec::new(), keys);
        while !left.is_empty() {
            let few = &left[..left.len().min(KEYS_PER_CALL)];
            let (now, _) = few.split_at(self.at_once(few));
            let longest = TOKEN_MAX.to_string();
            let reply =
                match self.ask_server(Read::Script(inspect::LOCKS.with(now, &[&longest]))).await {
                    // From now on the keys are sent one slot at a time.
                    Err(CallError::CrossSlot) if self.at_once(few) < now.len() => continue,
                    reply => reply.map_err(|error| error.into_error(&now[0]))?,
                };
            let Value::Array(replies) = &reply else { return Err(unexpected_reply(&reply)) };
            for (key, lock) in now.iter().zip(replies) {
                locks.extend(read(key, lock, odd)?);
            }
            left = &left[now.len()..];
        }
        Ok(locks)
    }

    async fn scan(&self, pattern: &str, kind: &'static str) -> Result<Scan, LockError> {
        let nodes = self.nodes.all(self.budget().until).await;
        let nodes = nodes.map_err(|error| error.into_error(&LockKey::from(pattern)))?;
        Ok(Scan { nodes, cursor: b"0".to_vec(), pattern: pattern.to_owned(), kind })
    }

    /// Asks until there is an answer, or the manager's timeout is over.
    async fn ask_server(&self, read: Read<'_>) -> Result<Value, CallError> {
        let ask = |budget, _| self.ask_server_once(&read, budget);
        Retry::new(self.budget()).repeat(ask).await
    }

    async fn ask_server_once(&self, read: &Read<'_>, budget: Budget) -> Result<Value, CallError> {
        match read {
            Read::Script(call) => self.eval(*call, budget).await,
            Read::Scan(node, command) => node.call((*command).clone(), budget).await,
        }
    }
}

enum Read<'a> {
    Script(ScriptCall<'a>),
    Scan(&'a Node, &'a redis::Cmd),
}

/// A scan of the keys of all primaries, the last one first.
struct Scan {
    nodes: Vec<Node>,
    cursor: Vec<u8>,
    pattern: String,
    kind: &'static str,
}

impl Scan {
    /// The next keys, perhaps none; `None` at the end. A key may be returned twice.
    async fn next(&mut self, redis: &Redis) -> Result<Option<Vec<Vec<u8>>>, LockError> {
        let Some(node) = self.nodes.last() else { return Ok(None) };
        let mut scan = redis::cmd("SCAN");
        scan.arg(&self.cursor).arg("MATCH").arg(&self.pattern);
        scan.arg("COUNT").arg(SCAN_COUNT).arg("TYPE").arg(self.kind);
        let reply = redis.ask_server(Read::Scan(node, &scan)).await;
        let reply = reply.map_err(|error| error.into_error(&LockKey::from(&*self.pattern)))?;
        let Value::Array(mut parts) = reply else { return Err(unexpected_reply(&reply)) };
        let (Some(Value::Array(names)), Some(Value::BulkString(cursor))) =
            (parts.pop(), parts.pop())
        else {
            return Err(unexpected_reply(&Value::Array(parts)));
        };
        if cursor == b"0" {
            self.nodes.pop();
        }
        self.cursor = cursor;
        let names = names.into_iter().filter_map(|name| match name {
            Value::BulkString(name) => Some(name),
            _ => None,
        });
        Ok(Some(names.collect()))
    }
}

const NOT_UTF8: &str = "its name is not UTF-8";

/// The name of a key as the key of a lock. Notes a name that cannot be one; leaves out the engine's
/// own keys.
fn usable(name: Vec<u8>, odd: &mut Vec<Odd>) -> Option<LockKey> {
    let key = match String::from_utf8(name) {
        Ok(name) => LockKey::found(name),
        Err(name) => {
            note(odd, &name.into_bytes(), NOT_UTF8);
            return None;
        }
    };
    if key.is_reserved() {
        return None;
    }
    if let Err(error) = key.check() {
        note(odd, key.as_str().as_bytes(), &LockError::from(error).to_string());
        return None;
    }
    Some(key)
}

/// Reads the reply about a lock; `None` when the key is gone.
fn read(key: &LockKey, reply: &Value, odd: &mut Vec<Odd>) -> Result<Option<HeldLock>, LockError> {
    let Value::Array(parts) = reply else { return Err(unexpected_reply(reply)) };
    let [Value::BulkString(value), numbers @ ..] = parts.as_slice() else {
        return Err(unexpected_reply(reply));
    };
    let [Value::Int(left), Value::Int(waiters), Value::Int(other), Value::Int(sharing)] = numbers
    else {
        return Err(unexpected_reply(reply));
    };
    if *other == 1 {
        note(odd, key.as_str().as_bytes(), "it holds another type of value");
        return Ok(None);
    }
    if *left == -2 {
        return Ok(None);
    }
    let waiters = usize::try_from(*waiters).ok();
    if waiters.is_none() {
        note(odd, key.as_str().as_bytes(), "its queue key holds another type of value");
    }
    let token = Token::found(value);
    let left = millis(*left);
    let shown = token.as_ref().and_then(|_| label_of(value));
    let Holder { owner, note, since, .. } = Holder::of(shown, left);
    let sharing = usize::try_from(*sharing).ok().filter(|sharing| *sharing > 0);
    Ok(Some(HeldLock { key: key.clone(), owner, note, since, left, sharing, waiters, token }))
}

fn note(odd: &mut Vec<Odd>, key: &[u8], what: &str) {
    if odd.len() < ODD_MAX {
        odd.push(Odd { key: String::from_utf8_lossy(key).into_owned(), what: what.to_owned() });
    }
}

/// A duration; `None` for a negative number, which stands for none or an unknown one.
fn millis(number: i64) -> Option<Duration> {
    u64::try_from(number).ok().map(Duration::from_millis)
}
