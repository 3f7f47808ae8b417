//! What one node of a Redlock says.

use std::time::Duration;

use crate::value::error::LockError;
use crate::value::fence::Fences;

/// What a server answers to who asks for a lock.
#[derive(Debug)]
pub(crate) enum Vote {
    Granted(Fences),
    /// `held` is a hash of the whole value: two holders of one process have the same label.
    Busy {
        owner: Option<String>,
        held: u64,
        left: Option<Duration>,
    },
}

/// Why a server did not answer.
#[derive(Debug, Clone)]
pub(crate) struct NodeError {
    pub(crate) error: Box<LockError>,
    /// What was asked may have been done, or may be yet.
    pub(crate) unknown: bool,
    /// It may be over soon.
    pub(crate) transient: bool,
}

/// Who a server is.
#[derive(Debug)]
pub(crate) struct NodeInfo {
    /// The connection by which it was asked.
    pub(crate) connection: u64,
    /// Another one after every start.
    pub(crate) run_id: String,
    /// How long ago it was started, in whole seconds.
    pub(crate) uptime: Duration,
}
