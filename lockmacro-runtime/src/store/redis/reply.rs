//! The reply of a server to a request for a lock.

use std::time::Duration;

use redis::Value;

use crate::protocol::other_holder::OtherHolder;
use crate::store::redis::client::error::{CallError, unexpected};
use crate::value::fence::{FenceBlock, Fences};
use crate::value::time::Moment;
use crate::value::token::hash_of;

/// Reads the reply to a request that was sent at `sent`.
pub(crate) fn answer(reply: Value, sent: Moment) -> Result<Reply, CallError> {
    match reply {
        Value::Int(1) => Ok(Reply::Granted { sent, fences: Fences::default() }),
        Value::BulkString(block) => {
            Ok(Reply::Granted { sent, fences: [fences_of(&block)?].into_iter().collect() })
        }
        Value::Array(parts) => match parts.as_slice() {
            [Value::Int(left), Value::BulkString(value), queued @ ..] => {
                let queued = match queued {
                    [Value::Int(rank), Value::BulkString(time)] => {
                        let server = number(time).ok_or_else(|| unexpected(&queued[1]))?;
                        Some((u32::try_from(*rank).ok(), server))
                    }
                    _ => None,
                };
                Ok(Reply::contended(0, value, *left, queued))
            }
            _ => Err(unexpected(&Value::Array(parts))),
        },
        other => Err(unexpected(&other)),
    }
}

/// The number of waiters before a waiter, `None` when the queue is full; and the server's time in
/// microseconds.
type Queued = (Option<u32>, u64);

pub(crate) enum Reply {
    Granted {
        sent: Moment,
        fences: Fences,
    },
    /// The `nth` of several keys is held by another token. `queued` is for waiters.
    Contended {
        nth: usize,
        holder: OtherHolder,
        /// A hash of the key's value.
        value: u64,
        queued: Option<Queued>,
    },
}

impl Reply {
    /// The reply for a key with this value and this rest of its ttl in milliseconds, which is
    /// negative for a key without one.
    pub(crate) fn contended(nth: usize, value: &[u8], left: i64, queued: Option<Queued>) -> Self {
        let left = u64::try_from(left).ok().map(Duration::from_millis);
        let holder = OtherHolder::of(value, left);
        Self::Contended { nth, holder, value: hash_of(value), queued }
    }

    /// Whether the lock is free all the same: the queue began with more dead waiters than one call
    /// removes.
    pub(crate) fn is_held_by_nobody(&self) -> bool {
        let nobody = hash_of(b"");
        matches!(self, Self::Contended { holder, value, .. }
            if holder.left == Some(Duration::ZERO) && *value == nobody)
    }
}

fn number(reply: &[u8]) -> Option<u64> {
    std::str::from_utf8(reply).ok()?.parse().ok()
}

/// The fences of one lock.
pub(crate) fn fences_of(reply: &[u8]) -> Result<FenceBlock, CallError> {
    let block = std::str::from_utf8(reply).ok().and_then(|block| block.parse().ok());
    block.ok_or_else(|| unexpected(&Value::BulkString(Vec::new())))
}
