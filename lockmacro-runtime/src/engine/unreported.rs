//! Errors that a return type cannot carry.

use crate::engine::telemetry;
use crate::value::error::LockError;
use crate::value::key::{Listed, LockKey};

/// Which errors the driver reports itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Errors {
    /// None: the caller's return type carries them.
    Carried,
    /// All of them.
    Reported,
    /// All but the loss of a body that has finished, from which the caller recovers.
    ReportedUnlessLate,
}

/// Logs an error that a return type cannot carry. A busy lock is none.
///
/// # Panics
/// When there is no manager, no runtime, or a blocking lock on the one thread of a runtime: the
/// program is wrong then, and its caller would go on as if somebody else had done the work.
pub(crate) fn unreported(name: &str, keys: &[LockKey], error: &LockError) {
    if error.is_busy() {
        return;
    }
    let keys = keys.split_first().map(|(first, more)| Listed { first, more });
    telemetry::unreported(name, keys, error);
    if let LockError::NotInstalled | LockError::NoRuntime | LockError::BlockingInAsync = error {
        panic!("`{name}` cannot return this error, so its body never runs: {error}");
    }
}
