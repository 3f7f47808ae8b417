//! The vote of one node of a Redlock.

use std::time::Duration;

use crate::protocol::other_holder::OtherHolder;
use crate::value::applied::Applied;
use crate::value::error::LockError;
use crate::value::fence::Fences;

/// Answer of a node to a request.
#[derive(Debug)]
pub(crate) enum Vote {
    Granted(Fences),
    /// `value` is a hash of the key's whole value: two holders of one process have the same label.
    Contended {
        holder: OtherHolder,
        value: u64,
    },
}

/// Why a node has not answered, and whether the request was applied all the same.
#[derive(Debug, Clone)]
pub(crate) struct NodeError {
    pub(crate) error: Box<LockError>,
    pub(crate) applied: Applied,
    /// Another try may succeed.
    pub(crate) transient: bool,
}

/// Identity of a node.
#[derive(Debug)]
pub(crate) struct NodeInfo {
    /// Number of the connection by which it was asked.
    pub(crate) connection: u64,
    /// The server's `run_id`, a new one after every start.
    pub(crate) run_id: String,
    /// Time since its start, in whole seconds.
    pub(crate) uptime: Duration,
}
