//! Deferred calls on a Redis server.

pub(crate) mod calls;
pub(crate) mod queue;
