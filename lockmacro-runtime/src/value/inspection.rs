//! Results of an inspection: held locks and their waiters.

use std::time::{Duration, SystemTime};

use crate::value::key::LockKey;
use crate::value::token::Token;

/// Most skipped keys in a listing.
pub const SKIPPED_MAX: usize = 100;

/// The result of a search for locks or waiters.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Listing<T> {
    /// Locks by key, or waiters by rank.
    pub items: Vec<T>,
    /// Keys that were skipped, or have an unexpected value: the first [`SKIPPED_MAX`].
    pub skipped: Vec<Skipped>,
    /// Whether there are more than the caller's limit.
    pub truncated: bool,
}

impl<T> Listing<T> {
    /// Makes a complete result without skipped keys, for tests of code that handles one.
    ///
    /// ```
    /// use lockmacro_runtime::inspect::{Listing, HeldLock};
    ///
    /// fn shown(held: &Listing<HeldLock>) -> String {
    ///     format!("{} locks{}", held.items.len(), if held.truncated { ", and more" } else { "" })
    /// }
    ///
    /// let mut held = Listing::new(vec![HeldLock::new("order:42")]);
    /// held.truncated = true;
    /// assert_eq!(shown(&held), "1 locks, and more");
    /// ```
    pub fn new(items: Vec<T>) -> Self {
        Self { items, skipped: Vec::new(), truncated: false }
    }
}

/// A key with an unexpected value.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Skipped {
    /// The key. Bytes that are no text are replaced.
    pub key: String,
    /// The unexpected finding.
    pub reason: String,
}

impl Skipped {
    /// Makes a skipped key, for tests of code that handles one.
    ///
    /// ```
    /// use lockmacro_runtime::inspect::{Listing, Skipped};
    ///
    /// let mut functions = Listing::new(vec!["orders::audit".to_owned()]);
    /// functions.skipped.push(Skipped::new("lm1:jobs:x", "it is a list"));
    /// assert_eq!(functions.skipped[0].reason, "it is a list");
    /// ```
    pub fn new(key: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { key: key.into(), reason: reason.into() }
    }
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
    /// Shared callers of one manager that asked together count as one.
    pub sharing: Option<usize>,
    /// Number of places in the queue: one for the exclusive callers of a process, and one for each
    /// caller that wants to share the lock. `None` when the key of the queue has an unexpected
    /// value.
    pub waiters: Option<usize>,
    pub(crate) token: Option<Token>,
}

impl HeldLock {
    /// Makes a lock of which nothing but its key is known, for tests of code that handles one. As
    /// no holder is known, [`force_release`](crate::LockManager::force_release) refuses it with
    /// [`LockError::KeyNotALock`](crate::LockError::KeyNotALock).
    ///
    /// ```
    /// use lockmacro_runtime::inspect::HeldLock;
    ///
    /// fn row(lock: &HeldLock) -> String {
    ///     format!("{} | {}", lock.key, lock.owner.as_deref().unwrap_or("?"))
    /// }
    ///
    /// let mut lock = HeldLock::new("order:42");
    /// lock.owner = Some("web-3:audit".to_owned());
    /// assert_eq!(row(&lock), "order:42 | web-3:audit");
    /// ```
    pub fn new(key: impl Into<LockKey>) -> Self {
        Self {
            key: key.into(),
            owner: None,
            note: None,
            since: None,
            left: None,
            sharing: None,
            waiters: None,
            token: None,
        }
    }
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

impl QueuedWaiter {
    /// Makes a waiter whose other fields are not known, for tests of code that handles one.
    ///
    /// ```
    /// use lockmacro_runtime::inspect::QueuedWaiter;
    ///
    /// let mut waiter = QueuedWaiter::new("web-3:audit");
    /// waiter.callers = Some(2);
    /// assert_eq!((waiter.owner.as_deref(), waiter.note), (Some("web-3:audit"), None));
    /// ```
    pub fn new(owner: impl Into<String>) -> Self {
        Self { owner: Some(owner.into()), note: None, left: None, callers: None }
    }
}
