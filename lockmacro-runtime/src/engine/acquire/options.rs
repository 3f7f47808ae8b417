//! The options of a lock.

use std::time::Duration;

use crate::value::loss::OnLost;

/// How the keys are acquired, held and released.
#[derive(Debug, Clone, Default)]
pub(crate) struct LockOptions {
    /// `None` for that of the manager, which is renewed.
    pub(crate) ttl: Option<Duration>,
    pub(crate) renews: bool,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) min_hold: Option<Duration>,
    /// `None` for that of the manager.
    pub(crate) wait: Option<Duration>,
    pub(crate) on_lost: OnLost,
    pub(crate) fenced: bool,
    pub(crate) releases_in_background: bool,
}

/// How long a caller waits for a lock that somebody else holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WaitMode {
    /// As the lock says, or its manager.
    AsSet,
    /// The lock is asked for once, whatever it says.
    Never,
}

impl LockOptions {
    pub(crate) fn is_renewed(&self) -> bool {
        self.renews || self.ttl.is_none()
    }
}
