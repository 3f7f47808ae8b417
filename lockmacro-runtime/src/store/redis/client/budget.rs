//! The time limits of a call.

use std::time::Duration;

use crate::value::time::Instant;

/// Unanswered commands that fit into the manager's timeout.
pub(crate) const CALLS_PER_TIMEOUT: u32 = 4;

/// The time limits of a call: for each command, and for the whole.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Budget {
    /// Longest time for the answer to one command.
    pub(crate) answer: Duration,
    /// The end of the whole call, retries included.
    pub(crate) until: Instant,
    /// Whether a single unanswered call is enough to discard the connection.
    pub(crate) strict: bool,
}

impl Budget {
    /// From now on: up to `answer` for each command, and `all` for the whole.
    pub(crate) fn new(answer: Duration, all: Duration) -> Self {
        Self { answer, until: Instant::now() + all, strict: false }
    }
}
