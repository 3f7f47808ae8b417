//! The reply of a server to a request for a lock.

use std::time::Duration;

use crate::protocol::answer::Grant;
use crate::protocol::request::Request;
use crate::sys::time::Moment;
use crate::value::applied::Applied;
use crate::value::fence::FenceBlock;
use crate::value::holder::Holder;
use crate::value::token::hash_of;

/// The number of waiters before a waiter, `None` when the queue is full; and the server's time in
/// microseconds.
pub(crate) type Queued = (Option<u32>, u64);

pub(crate) enum Reply {
    Granted(Grant),
    /// The `nth` of several keys is held by another token. `queued` is for waiters.
    Contended {
        nth: usize,
        holder: Box<Holder>,
        /// A hash of the key's value.
        value: u64,
        queued: Option<Queued>,
    },
}

impl Reply {
    /// The reply that grants a request that was sent at `sent`.
    pub(crate) fn granted(request: &Request, sent: Moment, fences: Vec<FenceBlock>) -> Self {
        let ttl = request.ttl;
        let earlier = Applied::No;
        Self::Granted(Grant { sent, at: sent, ttl, earlier, fences })
    }

    /// The reply for a key with this value and this rest of its ttl in milliseconds, which is
    /// negative for a key without one.
    pub(crate) fn contended(nth: usize, value: &[u8], left: i64, queued: Option<Queued>) -> Self {
        let left = u64::try_from(left).ok().map(Duration::from_millis);
        let holder = Box::new(Holder::of(value, left));
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
