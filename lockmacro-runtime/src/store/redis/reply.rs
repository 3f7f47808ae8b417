//! The reply of a server to a request for a lock.

use redis::{FromRedisValue, Value, from_redis_value_ref};

use crate::protocol::request::Request;
use crate::store::redis::client::error::unexpected;
use crate::store::remote::error::RemoteError;
use crate::store::remote::reply::Reply;
use crate::sys::time::Moment;
use crate::value::error::LockError;
use crate::value::fence::FenceBlock;

/// Reads a reply. The error does not quote it.
pub(crate) fn parsed<T: FromRedisValue>(reply: Value) -> Result<T, RemoteError> {
    from_redis_value_ref(&reply).map_err(|_| unexpected(&reply))
}

/// Reads the reply to a request that was sent at `sent`.
pub(crate) fn answer(request: &Request, sent: Moment, reply: Value) -> Result<Reply, RemoteError> {
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
            Err(RemoteError::Final(LockError::KeyNotALock { key }))
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

/// The fences of one lock.
fn fences_of(reply: &Value) -> Result<FenceBlock, RemoteError> {
    let Value::BulkString(block) = reply else { return Err(unexpected(reply)) };
    let block = str::from_utf8(block).ok().and_then(|block| block.parse().ok());
    block.ok_or_else(|| unexpected(reply))
}
