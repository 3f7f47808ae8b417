//! Errors that a return type cannot carry.

use crate::engine::telemetry;
use crate::value::error::LockError;
use crate::value::key::{Listed, LockKey};

/// Which errors are logged by the engine, because the caller's return type cannot carry them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Errors {
    /// None.
    Carried,
    /// All.
    Reported,
    /// All but a loss after the body has finished, from which the caller recovers.
    ReportedUnlessLate,
}

/// Logs an error that a return type cannot carry. A busy lock is no error here.
///
/// # Panics
/// When there is no manager, no runtime, or a blocking lock on the only thread of a runtime. These
/// are bugs of the program, and the caller would go on as if another process had done the work.
pub(crate) fn unreported(name: &str, keys: &[LockKey], error: &LockError) {
    if error.is_busy() {
        return;
    }
    telemetry::unreported(name, Some(keys).filter(|keys| !keys.is_empty()).map(Listed), error);
    if let LockError::NotInstalled | LockError::NoRuntime | LockError::BlockingInAsync = error {
        panic!("`{name}` cannot return this error, so its body never runs: {error}");
    }
}
