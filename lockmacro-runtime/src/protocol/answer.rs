//! Answers of a store: a grant, the holder of a contended lock, the result of a release, or a
//! failure.

use std::pin::Pin;
use std::time::Duration;

use crate::protocol::request::Request;
use crate::sys::time::Moment;
use crate::value::applied::Applied;
use crate::value::error::LockError;
use crate::value::fence::FenceBlock;
use crate::value::holder::Holder;
use crate::value::token::hash_of;

/// Answer to a request.
#[derive(Debug)]
pub(crate) enum Answer {
    Granted(Grant),
    Contended(Contention),
    /// A grant of the lock, or of a part of it, came too late: it ended before the caller had it.
    /// The engine requests the lock again with another token, as a request with this one may still
    /// arrive. The inner answer is for callers that have no time for that.
    Stale(Box<Result<Answer, Failed>>),
}

impl Answer {
    /// The grant that answers a request that was sent at `sent`.
    pub(crate) fn granted(request: &Request, sent: Moment, fences: Vec<FenceBlock>) -> Self {
        let ttl = request.ask.ttl;
        Self::Granted(Grant { sent, at: sent, ttl, earlier: Applied::No, fences })
    }

    /// The same answer after earlier requests with the token.
    pub(crate) fn after(self, earlier: Applied) -> Self {
        match self {
            Self::Granted(grant) => Self::Granted(Grant { earlier, ..grant }),
            Self::Contended(contention) => Self::Contended(Contention { earlier, ..contention }),
            Self::Stale(answer) => Self::Stale(answer),
        }
    }
}

/// Another holder has the lock, or one of several keys.
#[derive(Debug, Clone, Default)]
pub(crate) struct Contention {
    /// Index of the key among those of the request.
    pub(crate) nth: usize,
    pub(crate) holder: Box<Holder>,
    /// A hash of the key's whole value, as two holders of one process have the same label.
    pub(crate) value: u64,
    pub(crate) queue: Queueing,
    /// When a waiter was answered, in microseconds of the server's clock.
    pub(crate) at: u64,
    /// As in [`Grant`].
    pub(crate) earlier: Applied,
}

impl Contention {
    /// That of a key with this value, and with this rest of its ttl in milliseconds, which is
    /// negative for a key without one.
    pub(crate) fn of(nth: usize, value: &[u8], left: i64) -> Self {
        let left = u64::try_from(left).ok().map(Duration::from_millis);
        let holder = Box::new(Holder::of(value, left));
        Self { nth, holder, value: hash_of(value), ..Self::default() }
    }

    /// Whether the lock is free all the same: the queue began with more dead waiters than one call
    /// removes.
    pub(crate) fn is_of_nobody(&self) -> bool {
        self.holder.free_within == Some(Duration::ZERO) && self.value == hash_of(b"")
    }
}

/// The place of a caller that was not granted the lock.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Queueing {
    /// The caller does not wait.
    #[default]
    Outside,
    /// The caller waits, or did until its time was over, with this number of waiters ahead.
    Behind(u32),
    /// The queue is full.
    Full,
}

/// A lock that was granted.
#[derive(Debug)]
pub(crate) struct Grant {
    /// When the request that brought the grant was sent.
    pub(crate) sent: Moment,
    /// When the lock was granted, as far as the client knows.
    pub(crate) at: Moment,
    /// How long the lock is granted. A hand-off is for the confirm window, until it is renewed.
    pub(crate) ttl: Duration,
    /// Whether the earlier requests with this token were applied.
    pub(crate) earlier: Applied,
    /// One for each key, if the request asked for fences.
    pub(crate) fences: Vec<FenceBlock>,
}

/// The finding of a release. For several keys or nodes, the last of these that any of them found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Released {
    /// The lock was still held.
    Held,
    /// The lock is not held now. Whether it was is unknown: an earlier release had no answer.
    Unconfirmed,
    /// The lock was not held any more.
    NotHeld,
}

impl Released {
    /// The finding of a release after `earlier` ones of the same token, which may have released the
    /// lock.
    pub(crate) fn of(was_held: bool, earlier: Applied) -> Self {
        match earlier {
            _ if was_held => Self::Held,
            Applied::No => Self::NotHeld,
            Applied::Yes | Applied::Unknown => Self::Unconfirmed,
        }
    }
}

/// Why there is no answer, and whether the request was applied all the same.
#[derive(Debug)]
pub(crate) struct Failed {
    pub(crate) error: LockError,
    pub(crate) applied: Applied,
}

/// The future of a call to a store. Boxed: it takes kilobytes, which a future that waits for a
/// lock, or holds it, must not carry. A trait object, as the type would be too deep for the
/// compiler's default `recursion_limit` in a caller's program.
pub(crate) type StoreFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
