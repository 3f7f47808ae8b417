//! The values that a queue of jobs takes and returns.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::defer::limits::ATTEMPTS;

/// A job to store. Its `Debug` shows the length of the arguments, and not the arguments.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct NewJob {
    /// The function's name, the same in every process.
    pub function: Arc<str>,
    /// The id, chosen by the caller, so that a job which is stored twice is kept once.
    pub id: String,
    /// The arguments: a JSON array.
    pub arguments: String,
    /// The key that was busy.
    pub key: String,
    /// The time until it is due.
    pub delay: Duration,
    /// Which of the jobs with the same key waits.
    pub keep: Keep,
    /// How often the job may be taken without being settled, and once more. After that it is
    /// dead when any worker takes jobs. The worker decides how often it may fail.
    pub attempts: u32,
}

impl NewJob {
    /// Makes a job that is due at once, waits beside all others, and may be taken ten times. Its
    /// other fields can be set.
    ///
    /// ```
    /// # use std::time::Duration;
    /// use lockmacro_runtime::defer::NewJob;
    ///
    /// let mut job = NewJob::new("orders::audit", "7f3a", "[42]", "order:42");
    /// job.delay = Duration::from_secs(30);
    /// ```
    pub fn new(
        function: impl Into<Arc<str>>,
        id: impl Into<String>,
        arguments: impl Into<String>,
        key: impl Into<String>,
    ) -> Self {
        Self {
            function: function.into(),
            id: id.into(),
            arguments: arguments.into(),
            key: key.into(),
            delay: Duration::ZERO,
            keep: Keep::All,
            attempts: ATTEMPTS,
        }
    }
}

/// Which jobs of one function and key wait. Running jobs do not count. The variants are complete:
/// a queue has to know each of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// All of them.
    All,
    /// The first one: a later job is not stored.
    First,
    /// The latest one, in the place of the first: its arguments replace those of the waiting job.
    Latest {
        /// Later jobs put the waiting one off by their delays, but not beyond this time after it
        /// was stored. Without it, it stays due when it was.
        at_most: Option<Duration>,
    },
}

impl Keep {
    /// Its name for a server, and the time for which later jobs put the waiting job off.
    pub(crate) fn parts(self) -> (&'static str, Duration) {
        match self {
            Keep::All => ("all", Duration::ZERO),
            Keep::First => ("first", Duration::ZERO),
            Keep::Latest { at_most } => ("latest", at_most.unwrap_or_default()),
        }
    }
}

/// A job that is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// The id of the job, or of the earlier job that replaces it.
    pub id: String,
    /// The time until it is due.
    pub due: Duration,
}

/// A job that a worker has taken. Its `Debug` shows the length of the arguments, and not the
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
    /// [`Busy`](Settled::Busy) or [`Returned`](Settled::Returned) does not count.
    pub attempt: u32,
    /// How often its lock was not acquired before.
    pub busy: u32,
    /// How often it was taken, or any other number that is different each time the job is taken.
    pub claim: u64,
}

/// The jobs that a worker asks for.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct TakeOptions {
    /// The functions whose jobs are taken.
    pub functions: Vec<Arc<str>>,
    /// The largest number of jobs.
    pub limit: usize,
    /// How long the jobs belong to the worker, unless it renews the lease.
    pub lease: Duration,
}

impl TakeOptions {
    /// Makes the request of a worker, for tests of your own queue.
    ///
    /// ```
    /// # use std::time::Duration;
    /// use lockmacro_runtime::defer::TakeOptions;
    ///
    /// let options = TakeOptions::new(["orders::audit"], 1, Duration::from_secs(30));
    /// # assert_eq!(&*options.functions[0], "orders::audit");
    /// ```
    pub fn new(
        functions: impl IntoIterator<Item: Into<Arc<str>>>,
        limit: usize,
        lease: Duration,
    ) -> Self {
        Self { functions: functions.into_iter().map(Into::into).collect(), limit, lease }
    }
}

/// How the work on a job has ended. The variants are complete, as a queue has to know every one.
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
    /// It failed for good, and is dead.
    Dead {
        /// Why it failed.
        error: String,
    },
    /// It is due again at once, and does not count as tried: `attempt` is one less.
    Returned,
}

impl Settled {
    /// Its name for a server, the delay and the error.
    pub(crate) fn parts(self) -> (&'static str, Duration, String) {
        match self {
            Settled::Done => ("done", Duration::ZERO, String::new()),
            Settled::Again { delay, error } => ("again", delay, error),
            Settled::Dead { error } => ("dead", Duration::ZERO, error),
            Settled::Busy { delay, error } => ("busy", delay, error),
            Settled::Returned => ("back", Duration::ZERO, String::new()),
        }
    }
}

/// The state of a job. The variants are complete: a queue has to know each of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum JobState {
    /// It waits until it is due and a worker takes it.
    Waiting,
    /// A worker has taken it.
    Running,
    /// It is dead.
    Dead,
}

/// In lower case.
impl fmt::Display for JobState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            JobState::Waiting => "waiting",
            JobState::Running => "running",
            JobState::Dead => "dead",
        })
    }
}

/// A moment, as seen from now. The variants are complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// It is now, or this long from now.
    In(Duration),
    /// It was this long ago.
    Ago(Duration),
}

impl When {
    pub(crate) fn from_millis(millis: i64) -> Self {
        let distance = Duration::from_millis(millis.unsigned_abs());
        if millis < 0 { When::Ago(distance) } else { When::In(distance) }
    }
}

/// A job in a list. Its `Debug` shows the length of the arguments, and not the arguments.
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
    /// When a waiting job is due, the lease of a running job ends, or since when a job
    /// is dead.
    pub when: When,
}

/// Some of the jobs in one state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// The number of all jobs in this state.
    pub total: usize,
    /// The jobs of this page.
    pub jobs: Vec<JobInfo>,
}

/// Shows the fields of a job, and the length of its arguments, which may be secret.
macro_rules! without_arguments {
    ($($Job:ident { $($field:ident),* })*) => {
        $(impl fmt::Debug for $Job {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                // Names all fields, so that a new field fails to compile here.
                let Self { arguments, $($field),* } = self;
                f.debug_struct(stringify!($Job))
                    .field("arguments", &format_args!("{} bytes", arguments.len()))
                    $(.field(stringify!($field), $field))*
                    .finish()
            }
        })*
    };
}

without_arguments! {
    NewJob { function, id, key, delay, keep, attempts }
    Job { function, id, key, attempt, busy, claim }
    JobInfo { function, id, key, attempts, busy, error, when }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_does_not_show_the_arguments() {
        let function = || "f".into();
        let arguments = || r#"["a secret"]"#.to_owned();
        let id = || "1".to_owned();
        let key = || "order:1".to_owned();
        let new = NewJob {
            function: function(),
            id: id(),
            arguments: arguments(),
            key: key(),
            delay: Duration::ZERO,
            keep: Keep::First,
            attempts: 10,
        };
        let job = Job {
            function: function(),
            id: id(),
            arguments: arguments(),
            key: key(),
            attempt: 1,
            busy: 0,
            claim: 1,
        };
        let info = JobInfo {
            function: function(),
            id: id(),
            arguments: arguments(),
            key: key(),
            attempts: 1,
            busy: 0,
            error: None,
            when: When::from_millis(0),
        };
        for shown in [format!("{new:?}"), format!("{job:?}"), format!("{info:?}")] {
            assert!(!shown.contains("secret"), "{shown}");
            assert!(shown.contains("12 bytes") && shown.contains("order:1"), "{shown}");
        }
    }
}
