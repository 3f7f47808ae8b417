//! The settings of all nodes of a Redlock.

use std::time::Duration;

use crate::store::redis::client::url::not_replicated;
use crate::value::error::LockError;

/// The settings of the nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rules {
    /// The longest ttl of any lock of any process.
    pub(crate) longest_ttl: Duration,
    /// Whether the nodes keep their locks over a restart.
    pub(crate) durable: bool,
    /// How long a node may take to answer, if that is less than a tenth of the ttl.
    pub(crate) node: Duration,
}

/// The error for a Redlock that is to be replicated.
pub(crate) fn no_replicas() -> LockError {
    not_replicated("the nodes of a Redlock stand for each other")
}
