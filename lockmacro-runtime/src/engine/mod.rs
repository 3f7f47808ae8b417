//! One lock, from the request to the release.
//!
//! - [`acquire`]: from a [`LockSpec`](acquire::spec::LockSpec) to a held lock, or to the error that
//!   the caller gets: one future, which tasks and blocked threads poll alike.
//! - [`lease`]: a held lock: its lease, its renewal, its loss, and how it ends.
//! - [`queue`]: the callers of one process for one key.
//! - [`token`]: a secret, from before it is sent until it is released; what was dropped.
//! - [`thread`]: the manager's own thread, its timers, and callers that block theirs.
//!
//! Below them is what all locks of a manager share: the [`core`].

pub(crate) mod acquire;
pub(crate) mod core;
pub(crate) mod current;
pub(crate) mod hold_times;
pub(crate) mod lease;
pub(crate) mod manager;
pub(crate) mod observer;
pub(crate) mod queue;
#[cfg(any(feature = "defer", feature = "reuse"))]
pub(crate) mod sites;
pub(crate) mod telemetry;
pub(crate) mod thread;
pub(crate) mod token;
