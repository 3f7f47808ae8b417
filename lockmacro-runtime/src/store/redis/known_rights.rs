//! The rights of the user, as far as they are known.

use std::sync::atomic::AtomicBool;

/// The rights of the user, as the last check found them.
#[derive(Debug, Default)]
pub(crate) struct Rights {
    /// A check was made.
    pub(crate) asked: AtomicBool,
    /// The user may use every key. Otherwise a lock that a plain SET is granted may not be
    /// releasable, because its companion keys are denied.
    pub(crate) every_key: AtomicBool,
}
