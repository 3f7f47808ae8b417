//! How long a call may take.

use std::time::Duration;

use tokio::time::Instant;

/// The manager's timeout is good for so many unanswered commands.
pub(crate) const TRIES: u32 = 4;

/// How long a call may take: the command by itself, and all that it needs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Budget {
    pub(crate) answer: Duration,
    pub(crate) until: Instant,
    /// Whether a single silence is enough to give the connection up.
    pub(crate) strict: bool,
}

impl Budget {
    /// From now on: up to `answer` for each command, and `all` for everything.
    pub(crate) fn new(answer: Duration, all: Duration) -> Self {
        Self { answer, until: Instant::now() + all, strict: false }
    }
}
