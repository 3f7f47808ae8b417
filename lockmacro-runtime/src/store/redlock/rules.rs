//! What holds for all nodes of a Redlock.

use std::time::Duration;

use crate::value::error::LockError;
use crate::value::unavailability::Unavailability;

/// What a manager is told about its nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rules {
    /// No lock of any process has a longer ttl.
    pub(crate) longest_ttl: Duration,
    /// A restart makes no node forget a lock.
    pub(crate) durable: bool,
    /// A node is waited for no longer than that, nor a tenth of the ttl.
    pub(crate) node: Duration,
    /// For how long a node keeps the last fence of a key, unless its URL says so.
    pub(crate) fence_retention: Duration,
}

/// What is told of an answer of which it is not known who has given it.
pub(crate) fn replaced() -> LockError {
    let detail = "the connection was replaced".to_owned();
    LockError::Unavailable { reason: Unavailability::Disconnected, detail }
}
