//! Times and numbers that all parts of the engine share.

use std::time::Duration;

/// Shortest ttl. A shorter lease could be over before a busy machine has started the body.
pub(crate) const TTL_MIN: Duration = Duration::from_millis(50);
/// Longest ttl.
pub(crate) const TTL_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// Default ttl.
pub(crate) const TTL_DEFAULT: Duration = Duration::from_secs(30);
/// How long a waiter stays in the queue without asking again.
pub(crate) const WAITER_TTL: Duration = Duration::from_secs(10);
/// How long a lock is handed off until its new holder confirms it.
pub(crate) const CONFIRM_WINDOW: Duration = Duration::from_secs(5);
/// The wait that stands for a wait without an end.
pub(crate) const FOR_EVER: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);
/// Most waiters for one key.
pub(crate) const QUEUE_MAX: usize = 10_000;
