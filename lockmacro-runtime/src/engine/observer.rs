//! Observer of lock errors: the worker of jobs, which has to know why a call's body did
//! not run.

use std::sync::OnceLock;

use crate::value::error::LockError;

/// Receives the errors of locks, on the task or thread on which they occur, and whether a return
/// type could not carry the error. If it could, a lock was not acquired.
pub(crate) static OBSERVER: OnceLock<fn(&LockError, bool)> = OnceLock::new();

/// An error that a caller gets, or if it is `unreported`, that a return type cannot carry.
pub(crate) fn observe(error: &LockError, unreported: bool) {
    OBSERVER.get().inspect(|observer| observer(error, unreported));
}
