//! Results of an inspection: held locks and their waiters, and the servers.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use crate::value::error::LockError;
use crate::value::holder::Holder;
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

/// A key with an unexpected value.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Skipped {
    /// The key. Bytes that are no text are replaced.
    pub key: String,
    /// The unexpected finding.
    pub reason: String,
}

/// A lock that was held at the time of the inspection.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct HeldLock {
    /// The key of the lock.
    pub key: LockKey,
    /// Its holder. Of holders that share the lock it is the last that came, and `free_within` is
    /// the longest of all their leases.
    pub holder: Holder,
    /// Number of holders; `None` for an exclusive lock. Shared callers of one manager that asked
    /// together count as one.
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
    /// use lockmacro_runtime::Holder;
    /// use lockmacro_runtime::inspect::HeldLock;
    ///
    /// fn row(lock: &HeldLock) -> String {
    ///     format!("{} | {}", lock.key, lock.holder)
    /// }
    ///
    /// let mut lock = HeldLock::new("order:42");
    /// lock.holder = Holder::new("web-3:audit");
    /// assert_eq!(row(&lock), "order:42 | web-3:audit");
    /// ```
    pub fn new(key: impl Into<LockKey>) -> Self {
        let key = key.into();
        let holder = Holder::default();
        Self { key, holder, sharing: None, waiters: None, token: None }
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
    /// When the first of its callers asked, by the clock of its machine and to a second; `None` for
    /// a value that this crate did not write.
    pub asked: Option<SystemTime>,
    /// How long the waiter stays in the queue unless it asks again, which it does every two
    /// seconds; `None` when that is not known.
    pub left: Option<Duration>,
    /// Number of callers in its process that waited when it asked last; `None` when that is not
    /// known.
    pub callers: Option<usize>,
    /// The usual hold time of the key or its template, as its process has seen it; `None` where it
    /// has seen none, and on PostgreSQL.
    pub usual_hold: Option<Duration>,
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
        let owner = Some(owner.into());
        Self { owner, note: None, asked: None, left: None, callers: None, usual_hold: None }
    }
}

/// A server on which locks are kept.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct InspectedServer {
    /// Its host and port, or the path of its socket.
    pub server: String,
    /// The facts about it, or why there are none.
    pub facts: Result<ServerFacts, LockError>,
}

/// The facts that a server tells of itself, and how it looks from here.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct ServerFacts {
    /// The shorter one of two round trips.
    pub round_trip: Duration,
    /// Seconds by which its clock is ahead of this machine's; `None` when that is not known. Leases
    /// do not depend on it.
    pub clock_ahead: Option<f64>,
    /// Seconds that its clock counts in one second of this machine; `None` when that is not known.
    /// Leases allow for 0.995 to 1.005.
    pub clock_rate: Option<f64>,
    /// The user that this program is to the server: by its login where the server does not tell it.
    pub user: Option<String>,
    /// The rights that the user lacks for locks with waiters, in the form that `ACL SETUSER` takes.
    /// `None` where the server does not tell them, as Redis does since 7.0.
    pub missing_rights: Option<Vec<String>>,
    /// Whether the user may use some keys only, so that more rights can be known with a key, and
    /// none was given.
    pub needs_key: bool,
    /// What locks need of Redis and the server lacks, which is only in part like it.
    pub lacks: Vec<String>,
    /// Whether waiters get their grants by pushes. Otherwise they poll.
    pub gets_pushes: bool,
    /// Why this node of a Redlock does not vote.
    pub no_vote: Option<LockError>,
    /// Why a Redis server did not answer INFO.
    pub no_info: Option<LockError>,
    /// The fields of INFO, and `save`, `appendfsync` and `min-replicas-to-write` of CONFIG, as far
    /// as the user may read them; of a PostgreSQL database those of its settings that matter to
    /// locks.
    pub settings: BTreeMap<String, String>,
}
