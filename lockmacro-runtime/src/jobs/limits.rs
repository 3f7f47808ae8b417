//! How many deferred calls are kept and how large they may be, and what is told of those beyond.

use crate::value::error::LockError;
use crate::value::unavailability::Unavailability;

/// So many calls of one function wait at most; the next one is refused with
/// [`LockError::Unavailable`].
pub const WAITING_MAX: usize = 1_000_000;
/// So many dead letters of one function are kept, the latest ones.
pub const DEAD_MAX: usize = 10_000;

/// How many bytes the arguments of one call may have, unless its manager is told another limit.
pub(crate) const SIZE_MAX: usize = 1 << 20;

/// What is told when too many calls of a function wait: not that somebody holds a lock.
pub(crate) fn full(function: &str) -> LockError {
    let detail = format!("{WAITING_MAX} calls of `{function}` wait already");
    LockError::unavailable(Unavailability::QueueFull, detail)
}

/// Why a call whose workers always die is given up.
pub(crate) fn abandoned(times: u64) -> String {
    format!("it was taken {times} times and no end was told")
}

/// Tells of a call that was given up while calls were asked for.
pub(crate) fn note_abandoned(function: &str, id: &str, times: u64) {
    let error = abandoned(times);
    tracing::error!(function, id, times, error, "deferred call is a dead letter");
}

/// Refuses arguments that are too large to be stored.
pub(crate) fn check_size(arguments: &str, limit: usize) -> Result<(), LockError> {
    let size = arguments.len();
    if size > limit { Err(LockError::TooLarge { size, limit }) } else { Ok(()) }
}
