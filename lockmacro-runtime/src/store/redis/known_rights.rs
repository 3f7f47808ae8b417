//! The rights of the user, as the check when the manager connects found them.

use std::sync::atomic::AtomicBool;

#[derive(Debug, Default)]
pub(crate) struct Rights {
    /// The check was made.
    pub(crate) asked: AtomicBool,
    /// The user may use every key. Otherwise a lock that a plain SET is granted may not be
    /// releasable, because its companion keys are denied.
    pub(crate) every_key: AtomicBool,
    /// It was logged that waiters are served slowly.
    pub(crate) slow: AtomicBool,
    /// It was logged that the user may use channels of others.
    pub(crate) wide: AtomicBool,
}
