//! The engine's own files, under the names by which they know each other.

#[path = "../../../../lockmacro-runtime/src/sys/backoff.rs"]
pub(crate) mod backoff;
#[path = "../../../../lockmacro-runtime/src/engine/queue/key_queue.rs"]
pub(crate) mod key_queue;
#[path = "../../../../lockmacro-runtime/src/protocol/lease.rs"]
pub(crate) mod lease_of_protocol;
#[path = "../../../../lockmacro-runtime/src/engine/lease/life.rs"]
pub(crate) mod life;

pub(crate) mod queue {
    pub(crate) use super::key_queue;
}

pub(crate) mod lease {
    pub(crate) use super::life;
}

pub(crate) mod protocol {
    pub(crate) use super::lease_of_protocol as lease;
}
