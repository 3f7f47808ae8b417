//! Answers of a store: a grant, the holder of a contended lock, the result of a release, or a
//! failure.

use std::pin::Pin;
use std::time::Duration;

use crate::sys::time::Moment;
use crate::value::applied::Applied;
use crate::value::error::LockError;
use crate::value::fence::FenceBlock;
use crate::value::holder::Holder;

/// Answer to a request.
#[derive(Debug)]
pub(crate) enum Answer {
    Granted(Grant),
    /// Another holder has the lock, or the `nth` of several keys. `earlier` as in [`Grant`].
    Contended {
        nth: usize,
        holder: Box<Holder>,
        queue: Queueing,
        earlier: Applied,
    },
    /// A grant of the lock, or of a part of it, came too late: it ended before the caller had it.
    /// The engine requests the lock again with another token, as a request with this one may still
    /// arrive. The inner answer is for callers that have no time for that.
    Stale(Box<Result<Answer, Failed>>),
}

/// Whether a refused caller was in the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Queueing {
    /// The caller did not wait.
    Outside,
    /// The wait ended in vain, with this number of waiters ahead.
    Left(u32),
    /// The queue was full.
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
