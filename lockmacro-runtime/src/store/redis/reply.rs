//! The reply of a server to a request for a lock.

use std::time::Duration;

use redis::{FromRedisValue, Value, from_redis_value_ref};

use crate::protocol::answer::Grant;
use crate::protocol::request::Request;
use crate::store::redis::client::error::{CallError, unexpected};
use crate::value::applied::Applied;
use crate::value::error::LockError;
use crate::value::fence::FenceBlock;
use crate::value::holder::Holder;
use crate::value::time::Moment;
use crate::value::token::hash_of;

/// Reads a reply. The error does not quote it.
pub(crate) fn parsed<T: FromRedisValue>(reply: Value) -> Result<T, CallError> {
    from_redis_value_ref(&reply).map_err(|_| unexpected(&reply))
}

/// Reads the reply to a request that was sent at `sent`.
pub(crate) fn answer(request: &Request, sent: Moment, reply: Value) -> Result<Reply, CallError> {
    let granted = |fences| Ok(Reply::granted(request, sent, fences));
    let parts = match &reply {
        Value::Int(1) => return granted(Vec::new()),
        Value::BulkString(_) => return granted([fences_of(&reply)?].into_iter().collect()),
        Value::Array(parts) => parts.as_slice(),
        _ => &[],
    };
    let nth_of = |nth: &i64| usize::try_from(*nth).unwrap_or_default();
    match parts {
        [Value::BulkString(_), ..] => {
            granted(parts.iter().map(fences_of).collect::<Result<_, _>>()?)
        }
        [Value::Int(nth)] => {
            let key = request.keys().get(nth_of(nth)).unwrap_or(&request.key).clone();
            Err(CallError::Final(LockError::KeyNotALock { key }))
        }
        [Value::Int(left), Value::BulkString(value)] => Ok(Reply::contended(0, value, *left, None)),
        [Value::Int(left), Value::BulkString(value), Value::Int(nth)] => {
            Ok(Reply::contended(nth_of(nth), value, *left, None))
        }
        [Value::Int(left), Value::BulkString(value), Value::Int(rank), time] => {
            let server = from_redis_value_ref(time).map_err(|_| unexpected(time))?;
            let queued = (u32::try_from(*rank).ok(), server);
            Ok(Reply::contended(0, value, *left, Some(queued)))
        }
        _ => Err(unexpected(&reply)),
    }
}

/// The number of waiters before a waiter, `None` when the queue is full; and the server's time in
/// microseconds.
type Queued = (Option<u32>, u64);

pub(crate) enum Reply {
    Granted(Grant),
    /// The `nth` of several keys is held by another token. `queued` is for waiters.
    Contended {
        nth: usize,
        holder: Holder,
        /// A hash of the key's value.
        value: u64,
        queued: Option<Queued>,
    },
}

impl Reply {
    /// The reply that grants a request that was sent at `sent`.
    pub(crate) fn granted(request: &Request, sent: Moment, fences: Vec<FenceBlock>) -> Self {
        let (ttl, earlier) = (request.ttl, Applied::No);
        Self::Granted(Grant { sent, at: sent, ttl, earlier, fences })
    }

    /// The reply for a key with this value and this rest of its ttl in milliseconds, which is
    /// negative for a key without one.
    fn contended(nth: usize, value: &[u8], left: i64, queued: Option<Queued>) -> Self {
        let left = u64::try_from(left).ok().map(Duration::from_millis);
        let holder = Holder::of(value, left);
        Self::Contended { nth, holder, value: hash_of(value), queued }
    }

    /// Whether the lock is free all the same: the queue began with more dead waiters than one call
    /// removes.
    pub(crate) fn is_held_by_nobody(&self) -> bool {
        let nobody = hash_of(b"");
        matches!(self, Self::Contended { holder, value, .. }
            if holder.free_within == Some(Duration::ZERO) && *value == nobody)
    }
}

/// The fences of one lock.
fn fences_of(reply: &Value) -> Result<FenceBlock, CallError> {
    let Value::BulkString(block) = reply else { return Err(unexpected(reply)) };
    let block = str::from_utf8(block).ok().and_then(|block| block.parse().ok());
    block.ok_or_else(|| unexpected(reply))
}
