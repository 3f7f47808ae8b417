//! The limits of a queue of jobs, and the errors of jobs beyond them.

use std::time::Duration;

use crate::value::error::{LockError, UnavailableReason};

/// Largest number of waiting jobs of one function. The next job is refused with
/// [`LockError::Unavailable`].
pub const WAITING_MAX: usize = 1_000_000;
/// Largest number of dead jobs of one function. The latest ones are kept.
pub const DEAD_MAX: usize = 10_000;

/// An answer is late after this time: before, two jobs have no order where a network is between
/// them and their queue.
pub(crate) const SIMULTANEOUS: Duration = Duration::from_millis(100);
/// Default number of attempts.
pub(crate) const ATTEMPTS: u32 = 10;
/// Default limit of the arguments of one job, in bytes.
pub(crate) const SIZE_MAX: usize = 1 << 20;

/// The error of a job that is dead because its workers always die. The text follows
/// the number of runs.
pub(crate) const ABANDONED: &str = " runs have ended without a report: \
    look for workers that crash or block, then retry the job";

/// The error when too many jobs of a function wait.
pub(crate) fn full(function: &str) -> LockError {
    let detail = format!(
        "{WAITING_MAX} jobs of `{function}` wait already: run more workers, or defer fewer calls"
    );
    LockError::because(UnavailableReason::TooManyJobs, detail)
}

/// The error of a job whose runs have ended this often without a report.
pub(crate) fn abandoned(times: u64) -> String {
    format!("{times}{ABANDONED}")
}

/// Logs a job that was found dead while jobs were taken.
pub(crate) fn note_abandoned(function: &str, id: &str, times: u64) {
    let error = abandoned(times);
    tracing::error!(function, id, times, error, "job is dead");
}

/// Refuses arguments that are too large to be stored.
pub(crate) fn check_size(arguments: &str, limit: usize) -> Result<(), LockError> {
    let size = arguments.len();
    if size <= limit {
        return Ok(());
    }
    let detail = format!(
        "the arguments of the job have {size} bytes, and the limit is {limit}: store an \
         id instead, or raise the limit"
    );
    Err(LockError::invalid("max_job_size", detail))
}
