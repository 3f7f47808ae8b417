//! Deferred calls as values.

use std::sync::Arc;
use std::time::Duration;

/// A call to be stored. Its `Debug` shows how long the arguments are, and not what they are.
#[derive(Clone, PartialEq, Eq)]
pub struct NewJob {
    /// The function's name, the same in every process.
    pub function: Arc<str>,
    /// Chosen by the caller, so that a call which is stored twice is one.
    pub id: String,
    /// The arguments: a JSON array.
    pub arguments: String,
    /// The key that was busy.
    pub key: String,
    /// In how long it is due.
    pub delay: Duration,
    /// Whether a call that waits with the same key is enough.
    pub unique: bool,
    /// How often it may be taken without a word on how that ended, and once more: such a call is a
    /// dead letter then, whoever asks for calls. How often it may fail is the worker's business.
    pub attempts: u32,
}

/// A call that is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// Its id; that of an earlier call if that one is enough.
    pub id: String,
    /// In how long it is due.
    pub due: Duration,
}

/// A call that a worker has taken. Its `Debug` shows how long the arguments are, and not what they are.
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
    /// How often it was tried, this time included. What was [busy](Settled::Busy) or goes
    /// [back](Settled::Untried) was not tried.
    pub attempt: u32,
    /// How often its lock could not be had before.
    pub busy: u32,
    /// How often it was taken, or any other number that tells this worker's turn from all others.
    pub taken: u64,
}

/// What calls a worker takes.
#[derive(Debug, Clone)]
pub struct TakeOptions {
    /// Of these functions.
    pub functions: Vec<Arc<str>>,
    /// How many at most.
    pub most: usize,
    /// How long they stay the worker's without a word from it.
    pub lease: Duration,
}

/// How the work on a call has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Settled {
    /// It is done, and forgotten.
    Done,
    /// It failed, and is due again.
    Again {
        /// In how long.
        delay: Duration,
        /// Why it failed.
        error: String,
    },
    /// Its lock was busy, or could not be asked for: it is due again, as if it had not been tried. `attempt`
    /// is one less, and `busy` one more.
    Busy {
        /// In how long.
        delay: Duration,
        /// By whom, or why.
        error: String,
    },
    /// It failed for good: a dead letter.
    Dead {
        /// Why it failed.
        error: String,
    },
    /// It is due again at once, as if it had not been tried: `attempt` is one less.
    Untried,
}

/// Where a call is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum JobState {
    /// It is due at some time.
    Waiting,
    /// A worker has it.
    Running,
    /// It was given up.
    Dead,
}

impl JobState {
    /// Its name in lower case.
    pub fn name(self) -> &'static str {
        match self {
            JobState::Waiting => "waiting",
            JobState::Running => "running",
            JobState::Dead => "dead",
        }
    }
}

/// A call as it is listed. Its `Debug` shows how long the arguments are, and not what they are.
#[derive(Clone, PartialEq, Eq)]
pub struct JobInfo {
    /// The function's name.
    pub function: Arc<str>,
    /// Its id.
    pub id: String,
    /// The arguments: a JSON array, or whatever is stored in place of it.
    pub arguments: String,
    /// The key that was busy.
    pub key: String,
    /// How often it was tried.
    pub attempts: u32,
    /// How often its lock could not be had when it was to be tried.
    pub busy: u32,
    /// Why it failed last; the start of it when it is long, about 2 KiB.
    pub error: Option<String>,
    /// In how many milliseconds it is due, or goes back to those who wait; negative for what was,
    /// such as when a dead letter was given up.
    pub in_millis: i64,
}

/// Some of the calls in one state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// How many there are.
    pub total: usize,
    /// Some of them.
    pub jobs: Vec<JobInfo>,
}
