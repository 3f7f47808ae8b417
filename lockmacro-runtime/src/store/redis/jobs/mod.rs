//! Deferred calls on a Redis server.

pub(crate) mod calls;
pub(crate) mod listing;
pub(crate) mod queue;
