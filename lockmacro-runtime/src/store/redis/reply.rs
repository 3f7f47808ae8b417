//! The reply of a server to a request for a lock.

use redis::{FromRedisValue, Value, from_redis_value_ref};

use crate::protocol::answer::{Answer, Contention, Queueing};
use crate::protocol::request::Request;
use crate::store::redis::client::error::unexpected;
use crate::store::remote::error::RemoteError;
use crate::sys::time::Moment;
use crate::value::error::LockError;
use crate::value::fence::FenceBlock;

/// Reads a reply. The error does not quote it.
pub(crate) fn parsed<T: FromRedisValue>(reply: Value) -> Result<T, RemoteError> {
    from_redis_value_ref(&reply).map_err(|_| unexpected(&reply))
}

/// Reads the reply to a request that was sent at `sent`.
pub(crate) fn answer(request: &Request, sent: Moment, reply: Value) -> Result<Answer, RemoteError> {
    let granted = |fences| Ok(Answer::granted(request, sent, fences));
    let contended = |contention| Ok(Answer::Contended(contention));
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
            let key = request.ask.keys().get(nth_of(nth)).unwrap_or(&request.ask.key).clone();
            Err(RemoteError::Final(LockError::KeyNotALock { key }))
        }
        [Value::Int(left), Value::BulkString(value)] => contended(Contention::of(0, value, *left)),
        [Value::Int(left), Value::BulkString(value), Value::Int(nth)] => {
            contended(Contention::of(nth_of(nth), value, *left))
        }
        [Value::Int(left), Value::BulkString(value), Value::Int(rank), time] => {
            let at = from_redis_value_ref(time).map_err(|_| unexpected(time))?;
            let queue = u32::try_from(*rank).map_or(Queueing::Full, Queueing::Behind);
            contended(Contention { queue, at, ..Contention::of(0, value, *left) })
        }
        _ => Err(unexpected(&reply)),
    }
}

/// The fences of one lock.
fn fences_of(reply: &Value) -> Result<FenceBlock, RemoteError> {
    let Value::BulkString(block) = reply else { return Err(unexpected(reply)) };
    let block = str::from_utf8(block).ok().and_then(|block| block.parse().ok());
    block.ok_or_else(|| unexpected(reply))
}
