//! Who else is told of errors of locks: the worker of a deferred call, which has to know why the
//! call's body did not run.

use std::sync::OnceLock;

use crate::value::error::LockError;

/// Takes note of errors, on the task or thread that meets them.
pub(crate) struct Observer {
    /// A lock could not be had.
    pub(crate) refused: fn(&LockError),
    /// A return type could not carry the error.
    pub(crate) unreported: fn(&LockError),
}

static OBSERVER: OnceLock<Observer> = OnceLock::new();

/// Has the observer told from now on. The first one stays.
#[cfg(feature = "defer")]
pub(crate) fn observe(observer: Observer) {
    let _ = OBSERVER.set(observer);
}

/// Tells that a lock could not be had.
pub(crate) fn refused(error: &LockError) {
    if let Some(observer) = OBSERVER.get() {
        (observer.refused)(error);
    }
}

/// Tells of an error that a return type could not carry.
pub(crate) fn unreported(error: &LockError) {
    if let Some(observer) = OBSERVER.get() {
        (observer.unreported)(error);
    }
}
