//! What a store answers: a grant, who holds the lock, what a release has found, or a failure.

use std::pin::Pin;
use std::time::Duration;

use crate::value::error::LockError;
use crate::value::fence::Fences;
use crate::value::time::Moment;

/// What came of asking for a lock.
#[derive(Debug)]
pub(crate) enum Answer {
    /// It is held.
    Granted(Grant),
    /// Somebody else holds it, or the `nth` of several keys. `resent` as in [`Grant`].
    Busy {
        nth: usize,
        owner: Option<String>,
        left: Option<Duration>,
        queue: Queueing,
        resent: bool,
    },
    /// It was held, in part at least, and was lost before the caller was told. This is told when
    /// there is no time to begin anew; by another token, because what was sent for this one may
    /// still arrive.
    Lost(Box<Result<Answer, Failed>>),
}

/// What a caller that got no lock has to do with the line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Queueing {
    /// It was not to wait.
    Outside,
    /// It waited in vain, and so many were before it.
    Left(u32),
    /// There was no place any more.
    Full,
}

/// A lock that was granted.
#[derive(Debug)]
pub(crate) struct Grant {
    /// When the request that brought it left.
    pub(crate) sent: Moment,
    /// When it was there, as far as the caller knows.
    pub(crate) at: Moment,
    /// For how long. A lock that was handed over has less than was asked for until it is renewed.
    pub(crate) ttl: Duration,
    /// There was an earlier request whose fate is unknown.
    pub(crate) resent: bool,
    /// One for each key, if they were asked for.
    pub(crate) fences: Fences,
}

/// What a release found; of several, the last of these that one of them found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Released {
    /// The lock was still held.
    Held,
    /// It is not held now. Whether it was cannot be told: an earlier release had no answer.
    Unconfirmed,
    /// It was not held any more.
    NotHeld,
}

/// Why there is no answer. `written` tells that the token may have been written all the same.
#[derive(Debug)]
pub(crate) struct Failed {
    pub(crate) error: LockError,
    pub(crate) written: bool,
}

/// A question to a backend. Boxed: it takes kilobytes, and a future that waits for a lock, or holds
/// it, must not carry them. Without its type, which would be too deep for the compiler's default
/// `recursion_limit` in a caller's program.
pub(crate) type Asked<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
