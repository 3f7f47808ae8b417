//! What is seen of locks from outside: who holds them, and who waits.

use crate::value::token::Token;
use std::time::Duration;
use std::time::SystemTime;

use crate::value::key::LockKey;

/// So many odd things are told at most.
pub const ODD_MAX: usize = 100;

/// What was found.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Found<T> {
    /// In the order of their keys or places.
    pub found: Vec<T>,
    /// What was passed over, or is not as it should be: the first [`ODD_MAX`].
    pub odd: Vec<Odd>,
    /// Whether there is more than was asked for.
    pub more: bool,
}

/// A key that is not what it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Odd {
    /// Its name, as far as it is text.
    pub key: String,
    /// What is odd about it.
    pub what: String,
}

/// A lock that was held when it was looked at.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct HeldLock {
    /// Its key.
    pub key: LockKey,
    /// The holder's label; `None` for a value that this crate did not write.
    pub owner: Option<String>,
    /// The holder's [note](crate::Lock::holder_note), if it left one.
    pub note: Option<String>,
    /// Since when it is held, as in [`LockError::held_since`].
    pub since: Option<SystemTime>,
    /// When the lease ends unless the holder renews or releases it; `None` when it has no end.
    pub left: Option<Duration>,
    /// How many wait; `None` when something else is in the place of their line.
    pub waiters: Option<usize>,
    pub(crate) token: Option<Token>,
}

/// A place in the line of those who wait for a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueuedWaiter {
    /// The waiter's label; `None` for something that this crate did not write.
    pub owner: Option<String>,
    /// The waiter's [note](crate::Lock::holder_note), if it left one.
    pub note: Option<String>,
    /// For how much longer the place is kept unless the waiter is heard of; `None` when that is not
    /// known.
    pub left: Option<Duration>,
}
