//! What it means to have lost a lock, and what is to become of the body then.

use std::fmt;
use std::iter;

use crate::value::key::{Listed, LockKey};

/// A lock that was lost while it was held: from then on somebody else may hold it. One on several
/// keys is lost with any of them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the lock `{}` was lost: {cause}", self.listed())]
pub struct Lost {
    key: LockKey,
    more: Vec<LockKey>,
    cause: LossCause,
}

impl Lost {
    pub(crate) fn new(keys: Listed<'_>, cause: LossCause) -> Self {
        Self { key: keys.first.clone(), more: keys.more.to_vec(), cause }
    }

    /// The key that was held; the first one of several.
    pub fn key(&self) -> &LockKey {
        &self.key
    }

    /// Every key that was held.
    pub fn keys(&self) -> impl Iterator<Item = &LockKey> {
        iter::once(&self.key).chain(&self.more)
    }

    pub(crate) fn listed(&self) -> Listed<'_> {
        Listed { first: &self.key, more: &self.more }
    }

    /// How it was lost.
    pub fn cause(&self) -> LossCause {
        self.cause
    }
}

/// How a lock was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LossCause {
    /// The body took longer than the lock may be held: its ttl, or its `max_hold`.
    Expired,
    /// The server could not be asked in time to renew the lease.
    NotRenewed,
    /// The server says that the key is not ours: somebody deleted or overwrote it, or the server
    /// came back without it.
    Taken,
    /// It was given back, and only a guard that looks at it is left.
    Released,
}

impl LossCause {
    /// The cause in one word, for metrics.
    pub(crate) fn label(self) -> &'static str {
        match self {
            LossCause::Expired => "expired",
            LossCause::NotRenewed => "not_renewed",
            LossCause::Taken => "taken",
            LossCause::Released => "released",
        }
    }
}

impl fmt::Display for LossCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LossCause::Expired => "it was held for longer than it may be",
            LossCause::NotRenewed => "the lease could not be renewed in time",
            LossCause::Taken => "the server says that it is not ours",
            LossCause::Released => "it was given back already",
        })
    }
}

/// What becomes of a body whose lock is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum OnLost {
    /// An async body is dropped at its next await, and the caller gets [`LockError::Lost`](crate::LockError::Lost). A
    /// blocking body cannot be stopped: it is treated as with `Error`.
    #[default]
    Cancel,
    /// The body runs on to its end, then the caller gets [`LockError::Lost`](crate::LockError::Lost) in place of its value.
    /// A body's own error is kept.
    Error,
    /// The body runs on to its end, and its value stands. The loss is logged.
    Finish,
}
