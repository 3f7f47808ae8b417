//! Observer of lock errors: the worker of deferred calls, which has to know why a call's body did
//! not run.

use std::sync::OnceLock;

use crate::value::error::LockError;

/// Receives the errors of locks, on the task or thread on which they occur, and whether a return
/// type could not carry the error. If it could, a lock was not acquired.
pub(crate) static OBSERVER: OnceLock<fn(&LockError, bool)> = OnceLock::new();

/// Reports that a lock was not acquired.
pub(crate) fn refused(error: &LockError) {
    OBSERVER.get().inspect(|observer| observer(error, false));
}

/// Reports an error that a return type could not carry.
pub(crate) fn unreported(error: &LockError) {
    OBSERVER.get().inspect(|observer| observer(error, true));
}
