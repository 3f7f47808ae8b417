//! The manager's own thread.
//!
//! The [`background`] thread has a runtime and a connection of its own, so that leases are renewed
//! and dropped locks are released also while the runtimes of the callers are blocked, or gone. It
//! starts with its first task. It renews by the [`timers`]. Callers that are not async block
//! their own threads, and are driven from there ([`blocking`]).

pub(crate) mod background;
pub(crate) mod blocking;
pub(crate) mod timers;
