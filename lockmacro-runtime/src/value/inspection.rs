//! Results of an inspection: held locks and their waiters.

use std::time::{Duration, SystemTime};

use crate::value::key::LockKey;
use crate::value::token::Token;

/// Most odd keys in a result.
pub const ODD_MAX: usize = 100;

/// The result of a search for locks or waiters.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Found<T> {
    /// Locks by key, or waiters by rank.
    pub found: Vec<T>,
    /// Keys that were skipped, or have an unexpected value: the first [`ODD_MAX`].
    pub odd: Vec<Odd>,
    /// Whether there are more than the caller's limit.
    pub more: bool,
}

/// A key with an unexpected value.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Odd {
    /// The key. Bytes that are no text are replaced.
    pub key: String,
    /// The unexpected finding.
    pub what: String,
}

/// A lock that was held at the time of the inspection.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct HeldLock {
    /// The key of the lock.
    pub key: LockKey,
    /// The holder's label; `None` for a value that this crate did not write.
    pub owner: Option<String>,
    /// The holder's [note](crate::Lock::holder_note), if there is one.
    pub note: Option<String>,
    /// Since when the lock is held, as in
    /// [`LockError::held_since`](crate::LockError::held_since).
    pub since: Option<SystemTime>,
    /// The rest of the lease, unless the holder renews or releases it; of holders that share the
    /// lock, the longest. `None` when it has no end.
    pub left: Option<Duration>,
    /// Number of holders, of which `owner` is the last that came; `None` for an exclusive lock.
    pub sharing: Option<usize>,
    /// Number of places in the queue: one for the exclusive callers of a process, and one for each
    /// caller that wants to share the lock. `None` when the key of the queue has an unexpected
    /// value.
    pub waiters: Option<usize>,
    pub(crate) token: Option<Token>,
}

/// A process in the queue of a lock. Its callers wait in a line of their own.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueuedWaiter {
    /// The waiter's label; `None` for a value that this crate did not write.
    pub owner: Option<String>,
    /// The waiter's [note](crate::Lock::holder_note), if there is one.
    pub note: Option<String>,
    /// How long the waiter stays in the queue unless it asks again; `None` when that is not
    /// known.
    pub left: Option<Duration>,
    /// Number of callers in its process that waited when it asked last; `None` when that is not
    /// known.
    pub callers: Option<usize>,
}
