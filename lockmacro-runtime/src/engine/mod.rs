//! One lock, from the request to the release.
//!
//! - [`acquire`]: from a [`LockSpec`](acquire::spec::LockSpec) to a held lock, or to the error that
//!   the caller gets: one future, which tasks and blocked threads poll alike.
//! - [`lease`]: a held lock: its lease, its renewal, its loss, and how it ends.
//! - [`queue`]: the callers of one process for one key.
//! - [`cleanup`]: a token, from before it is sent until it is known to be gone, and the background
//!   thread of a manager.
//!
//! Below them is what all locks of a manager share: the [`core`].

pub(crate) mod acquire;
pub(crate) mod blocking;
pub(crate) mod cleanup;
pub(crate) mod core;
pub(crate) mod current;
pub(crate) mod hold_times;
pub(crate) mod in_flight;
pub(crate) mod lease;
pub(crate) mod manager;
pub(crate) mod observer;
pub(crate) mod queue;
pub(crate) mod telemetry;
