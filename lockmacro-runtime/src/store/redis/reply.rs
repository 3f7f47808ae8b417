//! The reply of a server to a request for a lock.

use std::time::Duration;

use redis::Value;

use crate::store::redis::client::error::{CallError, unexpected};
use crate::value::fence::{Fence, Fences};
use crate::value::time::Moment;
use crate::value::token::{hash_of, label_of};

/// Reads the reply to a request that was sent at `sent`.
pub(crate) fn answer(reply: Value, sent: Moment) -> Result<Reply, CallError> {
    match reply {
        Value::Int(1) => Ok(Reply::Granted { sent, fences: Fences::default() }),
        Value::BulkString(number) => {
            Ok(Reply::Granted { sent, fences: [fence(&number)?].into_iter().collect() })
        }
        Value::Array(parts) => match parts.as_slice() {
            [Value::Int(left), Value::BulkString(held), queued @ ..] => Ok(Reply::Busy {
                nth: 0,
                owner: label_of(held),
                held: hash_of(held),
                left: u64::try_from(*left).ok().map(Duration::from_millis),
                queued: match queued {
                    [Value::Int(rank), Value::BulkString(time)] => {
                        let server = number(time).ok_or_else(|| unexpected(&queued[1]))?;
                        Some((u32::try_from(*rank).ok(), server))
                    }
                    _ => None,
                },
            }),
            _ => Err(unexpected(&Value::Array(parts))),
        },
        other => Err(unexpected(&other)),
    }
}

pub(crate) enum Reply {
    Granted {
        sent: Moment,
        fences: Fences,
    },
    /// The `nth` of several keys is held by another token. `queued` is for waiters: the number of
    /// waiters before it, `None` when the queue is full; and the server's time in microseconds.
    Busy {
        /// A hash of the key's value.
        held: u64,
        nth: usize,
        owner: Option<String>,
        left: Option<Duration>,
        queued: Option<(Option<u32>, u64)>,
    },
}

impl Reply {
    /// Whether the lock is free all the same: the queue began with more dead waiters than one call
    /// removes.
    pub(crate) fn is_held_by_nobody(&self) -> bool {
        let nobody = hash_of(b"");
        matches!(self, Self::Busy { held, left: Some(Duration::ZERO), .. } if *held == nobody)
    }
}

fn number(reply: &[u8]) -> Option<u64> {
    std::str::from_utf8(reply).ok()?.parse().ok()
}

pub(crate) fn fence(reply: &[u8]) -> Result<Fence, CallError> {
    let fence = number(reply).and_then(|number| Fence::try_from(number).ok());
    fence.ok_or_else(|| unexpected(&Value::BulkString(Vec::new())))
}
