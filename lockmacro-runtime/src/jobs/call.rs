//! The values that a queue of deferred calls takes and returns.

use std::sync::Arc;
use std::time::Duration;

/// A call to store. Its `Debug` shows the length of the arguments, and not the arguments.
#[derive(Clone, PartialEq, Eq)]
pub struct NewJob {
    /// The function's name, the same in every process.
    pub function: Arc<str>,
    /// The id, chosen by the caller, so that a call which is stored twice is kept once.
    pub id: String,
    /// The arguments: a JSON array.
    pub arguments: String,
    /// The key that was busy.
    pub key: String,
    /// The time until it is due.
    pub delay: Duration,
    /// Whether a waiting call with the same key replaces this one.
    pub unique: bool,
    /// How often the call may be taken without being settled, and once more. After that it becomes
    /// a dead letter when any worker takes calls. The worker decides how often it may fail.
    pub attempts: u32,
}

/// A call that is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// The id of the call, or of the earlier call that replaces it.
    pub id: String,
    /// The time until it is due.
    pub due: Duration,
}

/// A call that a worker has taken. Its `Debug` shows the length of the arguments, and not the
/// arguments.
#[derive(Clone, PartialEq, Eq)]
pub struct Job {
    /// The function's name.
    pub function: Arc<str>,
    /// Its id.
    pub id: String,
    /// The arguments: a JSON array.
    pub arguments: String,
    /// The key that was busy.
    pub key: String,
    /// The number of attempts, this one included. An attempt that was settled as
    /// [`Busy`](Settled::Busy) or [`Untried`](Settled::Untried) does not count.
    pub attempt: u32,
    /// How often its lock was not acquired before.
    pub busy: u32,
    /// How often it was taken, or any other number that is different each time the call is taken.
    pub taken: u64,
}

/// The calls that a worker asks for.
#[derive(Debug, Clone)]
pub struct TakeOptions {
    /// The functions whose calls are taken.
    pub functions: Vec<Arc<str>>,
    /// The largest number of calls.
    pub most: usize,
    /// How long the calls belong to the worker, unless it renews the lease.
    pub lease: Duration,
}

/// How the work on a call has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Settled {
    /// It is done, and removed.
    Done,
    /// It failed, and is due again.
    Again {
        /// The time until it is due.
        delay: Duration,
        /// Why it failed.
        error: String,
    },
    /// Its lock was busy, or the lock's server failed: it is due again, and does not count as
    /// tried. `attempt` is one less, and `busy` one more.
    Busy {
        /// The time until it is due.
        delay: Duration,
        /// The holder, or the failure of the server.
        error: String,
    },
    /// It failed for good: a dead letter.
    Dead {
        /// Why it failed.
        error: String,
    },
    /// It is due again at once, and does not count as tried: `attempt` is one less.
    Untried,
}

/// The state of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum JobState {
    /// It waits until it is due and a worker takes it.
    Waiting,
    /// A worker has taken it.
    Running,
    /// It is a dead letter.
    Dead,
}

impl JobState {
    /// Returns the name in lower case.
    pub fn name(self) -> &'static str {
        match self {
            JobState::Waiting => "waiting",
            JobState::Running => "running",
            JobState::Dead => "dead",
        }
    }
}

/// A call in a list. Its `Debug` shows the length of the arguments, and not the arguments.
#[derive(Clone, PartialEq, Eq)]
pub struct JobInfo {
    /// The function's name.
    pub function: Arc<str>,
    /// Its id.
    pub id: String,
    /// The arguments: a JSON array, or the text that another program has stored in its place.
    pub arguments: String,
    /// The key that was busy.
    pub key: String,
    /// How often it was tried.
    pub attempts: u32,
    /// How often its lock was not acquired.
    pub busy: u32,
    /// The last error; a long one is cut to about 2 KiB.
    pub error: Option<String>,
    /// The time from now in milliseconds: until a waiting call is due, until the lease of a running
    /// call ends, or, negative, since a call became a dead letter.
    pub in_millis: i64,
}

/// Some of the calls in one state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// The number of all calls in this state.
    pub total: usize,
    /// The calls of this page.
    pub jobs: Vec<JobInfo>,
}
