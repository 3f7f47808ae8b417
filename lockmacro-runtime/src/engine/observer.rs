//! Observer of lock errors: the worker of deferred calls, which has to know why a call's body did
//! not run.

use std::sync::OnceLock;

use crate::value::error::LockError;

/// Receives the errors of locks, on the task or thread on which they occur.
pub(crate) struct Observer {
    /// A lock was not acquired.
    pub(crate) refused: fn(&LockError),
    /// A return type could not carry the error.
    pub(crate) unreported: fn(&LockError),
}

static OBSERVER: OnceLock<Observer> = OnceLock::new();

/// Registers the observer. Later calls are ignored.
#[cfg(feature = "defer")]
pub(crate) fn observe(observer: Observer) {
    let _ = OBSERVER.set(observer);
}

/// Reports that a lock was not acquired.
pub(crate) fn refused(error: &LockError) {
    if let Some(observer) = OBSERVER.get() {
        (observer.refused)(error);
    }
}

/// Reports an error that a return type could not carry.
pub(crate) fn unreported(error: &LockError) {
    if let Some(observer) = OBSERVER.get() {
        (observer.unreported)(error);
    }
}
