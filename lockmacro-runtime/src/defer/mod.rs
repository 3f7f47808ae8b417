//! Calls that are run later: what `on_busy = defer("30s")` does with a call whose lock is busy.
//!
//! The call is stored with its arguments in the lock's Redis (or in memory, for `memory://`), and a
//! [`Worker`] of any process runs the same function later, under the same lock. It is run *at least
//! once*: a call whose worker dies is taken up by another one, so it may have been run in part, or wholly,
//! before. A call that fails is tried again after a growing delay; after so many times it becomes a dead
//! letter, with its last error, for a person to look at ([`Deferrer::list`]). One that is busy again, or
//! whose lock's server is in trouble, has not been tried: it is due again after about its first delay, or
//! soon after the holder's lease ends if that is earlier, and only after 1,000 times it is a dead letter as well.
//!
//! # Trust
//!
//! Calls are not signed. A client that can write the queue's keys, `lm1:jobs:<function>` and their
//! companions, can make a worker run any function that is [registered](Worker::register) with it,
//! with any arguments that the types of its arguments accept, as often as it likes; can remove or
//! change calls that wait; and can read all arguments. A worker runs no other function, and never
//! code from the queue. So treat the right to write these keys as the right to call the functions:
//!
//! - Give it to the programs that store or run calls and to nobody else, by an ACL or a server of
//!   their own. `lockmacro acl 'order:*' --features wait,defer` prints one; it names the calls of
//!   *all* functions.
//! - In the body, check what a caller must be allowed to do, as if the arguments came from the
//!   network. That the first caller was checked before the call was deferred proves nothing.
//! - Store no secrets as arguments: store an id, and look the rest up in the body.
//!
#![cfg_attr(feature = "macros", doc = "```")]
#![cfg_attr(not(feature = "macros"), doc = "```ignore")]
//! use std::time::Duration;
//! use lockmacro_runtime::defer::Worker;
//! use lockmacro_runtime::{Lock, LockError, LockManager, distributed_lock};
//!
//! #[distributed_lock(key = "order:<id>", ttl = "10s", on_busy = defer("20ms"))]
//! async fn audit_order(id: u64) -> Result<(), LockError> {
//!     Ok(println!("order {id} is audited"))
//! }
//!
//! #[tokio::main]
//! async fn main() -> Result<(), LockError> {
//!     let locks = LockManager::connect("memory://").await?;
//!     locks.install()?;
//!     let held = Lock::new("order:42").acquire().await?;
//!     let deferred = audit_order(42).await;
//!     assert!(matches!(deferred, Err(LockError::Deferred { .. })));
//!     held.release().await?;
//!
//!     // In a service: `tokio::spawn(worker.run())`.
//!     let worker = Worker::new(&locks).register(audit_order::deferred());
//!     worker.run_until(tokio::time::sleep(Duration::from_millis(200))).await
//! }
//! ```

mod arguments;
mod debug;
mod function;
mod memory;
mod nowhere;
mod outcome;
mod queue;
mod running;
mod somes;
mod turn;
mod worker;

use std::fmt;
use std::future::ready;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

pub use arguments::{Argument, Arguments, Storable, argument};
pub use function::DeferredFn;
pub(crate) use memory::MemoryJobs;
pub use outcome::JobOutcome;
pub(crate) use running::{refused, unreported};
pub use worker::Worker;

use self::nowhere::Nowhere;
use crate::backend::{Backend, RedisJobs};
use crate::error::{LockError, Unavailability};

/// So many calls of one function wait at most; the next one is refused with
/// [`LockError::Unavailable`].
pub const WAITING_MAX: usize = 1_000_000;
/// So many dead letters of one function are kept, the latest ones.
pub const DEAD_MAX: usize = 10_000;

/// How many bytes the arguments of one call may have, unless its manager is told another limit.
pub(crate) const SIZE_MAX: usize = 1 << 20;

/// So many dead letters are tried again, or removed, at once.
const AMENDED_MAX: usize = 1_000;

/// What a question to a [`Deferrer`] gives.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, LockError>> + Send + 'a>>;

/// Is ready when there was enough waiting.
pub type Enough<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

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
    /// [back](Settled::Back) was not tried.
    pub attempt: u32,
    /// How often its lock could not be had before.
    pub busy: u32,
    /// How often it was taken, or any other number that tells this worker's turn from all others.
    pub taken: u64,
}

/// What calls a worker takes.
#[derive(Debug, Clone)]
pub struct Order {
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
    Back,
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

/// Where deferred calls are kept. The one of a manager keeps them in the locks' own store; another
/// queue is plugged in by [`LockManagerBuilder::deferrer`](crate::LockManagerBuilder::deferrer), in every
/// process that stores or runs calls.
///
/// A call is *waiting* until it is due and a worker takes it, *running* as long as that worker is heard of,
/// and then it is gone, waits again, or is a *dead letter*. When and how often it is tried is the worker's
/// business: a queue does what it is told, and keeps what it has promised to keep.
///
/// - A call that was stored is given to workers until one of them has told how it ended: at least once.
/// - No call is given to a second worker while the first one's lease lasts.
/// - What a worker says of a turn that is not its own any more, told by [`Job::taken`], changes nothing.
/// - Times are the queue's own. A client's clock decides nothing.
///
/// Every method may be called at the same time by any number of callers, again with the same arguments after
/// an error, and its future may be dropped at any time. A call that was taken by a future that was dropped
/// goes back when its lease is over.
///
/// # Errors
/// A queue that cannot be asked, or cannot do it, says so by [`LockError::unavailable`]: who stores a call is
/// told that, and a worker tries again. Any other error ends the worker's tries to say how a call ended, so
/// that it is run again. Nothing is ever called busy.
///
/// # Panics
/// Not one: a worker that asks would end with it.
///
/// # Example
/// `tests/defer/plugged_in.rs` of the repository is a queue in memory, with all of this and nothing else.
pub trait Deferrer: fmt::Debug + Send + Sync {
    /// Asks whether this process may store and take the calls of these functions. A worker asks
    /// before it takes any.
    ///
    /// Says yes unless the queue has something to say on that.
    ///
    /// # Errors
    /// [`LockError::AccessDenied`], which ends the worker. Any other error is left for the calls
    /// themselves to meet.
    fn allowed(&self, functions: Vec<Arc<str>>) -> Answer<'_, ()> {
        let _ = functions;
        Box::pin(ready(Ok(())))
    }

    /// Takes note of a worker's question that has failed because of the queue's servers; tells
    /// whether the worker is to log it at WARN, and not at DEBUG.
    ///
    /// Says yes unless the queue logs its outages by itself, as those on a Redis server do.
    fn call_failed(&self, error: &LockError) -> bool {
        let _ = error;
        true
    }

    /// Stores a call that is due after its delay, and tells under which id and when. Of the same function and
    /// [id](NewJob::id) there is one call, however often it is stored, also when it was done in between less than
    /// 30 s ago: who was not answered asks again, for as long as its manager's timeout lasts.
    ///
    /// [`unique`](NewJob::unique) calls are told of one that waits for the same function and key, if there is
    /// one, and are not stored. One that waits again while another one does is one with it: that one stays,
    /// is due when the first of both is, and was tried and busy as often as the one that was more often, so
    /// that a call which always fails comes to an end.
    ///
    /// # Errors
    /// [`Unavailability::QueueFull`] when there is no room.
    fn put(&self, job: NewJob) -> Answer<'_, Stored>;

    /// Takes calls that are due, those first that were due first: at least one, and at most
    /// [`most`](Order::most). Waits for one as long as there is none; when `enough` is ready it gives what
    /// it has, which may be nothing. Those whose lease has ended are due, or dead letters when that
    /// was so [too often](NewJob::attempts). What is large is better given in several answers.
    fn take<'a>(&'a self, order: Order, enough: Enough<'a>) -> Answer<'a, Vec<Job>>;

    /// Has the lease of a call end that much later than now; tells whether it is still the worker's. A
    /// worker asks three times in each lease, from the start until it has told the end.
    fn keep(&self, job: Job, lease: Duration) -> Answer<'_, bool>;

    /// Ends the work on a call; `false` when it is another worker's by now, or gone.
    fn settle(&self, job: Job, how: Settled) -> Answer<'_, bool>;

    /// Lists up to `most` calls of a function after passing over `first`, those before that are due before.
    /// Fewer are listed where they are large, but at least one if there is one: go on after those.
    fn list(
        &self,
        function: Arc<str>,
        state: JobState,
        first: usize,
        most: usize,
    ) -> Answer<'_, Page>;

    /// Makes a dead letter, or a call that waits, due at once, with all its attempts; tells whether
    /// there is such a call.
    fn retry(&self, function: Arc<str>, id: String) -> Answer<'_, bool>;

    /// Removes a dead letter, or a call that waits; tells whether there was such a call.
    fn remove(&self, function: Arc<str>, id: String) -> Answer<'_, bool>;

    /// As [`retry`](Deferrer::retry) for up to `most` dead letters, and up to 1,000 at once, those first that were
    /// given up first; tells for how many. To have all of them tried again, ask as often as there are
    /// [in total](Page::total).
    ///
    /// Asks for one after another, unless the queue has a better way.
    fn retry_dead(&self, function: Arc<str>, most: usize) -> Answer<'_, usize> {
        Box::pin(async move {
            let (dead, mut done) = (oldest_dead(self, &function, most).await?, 0);
            for id in dead {
                done += usize::from(self.retry(Arc::clone(&function), id).await?);
            }
            Ok(done)
        })
    }

    /// As [`remove`](Deferrer::remove), in the same way. The queues of this crate also remove those whose id
    /// is no text, which only another program can have written.
    fn remove_dead(&self, function: Arc<str>, most: usize) -> Answer<'_, usize> {
        Box::pin(async move {
            let (dead, mut done) = (oldest_dead(self, &function, most).await?, 0);
            for id in dead {
                done += usize::from(self.remove(Arc::clone(&function), id).await?);
            }
            Ok(done)
        })
    }
}

async fn oldest_dead<D: Deferrer + ?Sized>(
    deferrer: &D,
    function: &Arc<str>,
    most: usize,
) -> Result<Vec<String>, LockError> {
    let most = most.min(AMENDED_MAX);
    let page = deferrer.list(Arc::clone(function), JobState::Dead, 0, most).await?;
    Ok(page.jobs.into_iter().map(|job| job.id).collect())
}

/// What is told when too many calls of a function wait: not that somebody holds a lock.
pub(crate) fn full(function: &str) -> LockError {
    let detail = format!("{WAITING_MAX} calls of `{function}` wait already");
    LockError::unavailable(Unavailability::QueueFull, detail)
}

/// Why a call whose workers always die is given up.
pub(crate) fn abandoned(times: u64) -> String {
    format!("it was taken {times} times and no end was told")
}

/// Tells of a call that was given up while calls were asked for.
pub(crate) fn note_abandoned(function: &str, id: &str, times: u64) {
    let error = abandoned(times);
    tracing::error!(function, id, times, error, "deferred call is a dead letter");
}

/// Refuses arguments that are too large to be stored.
pub(crate) fn check_size(arguments: &str, limit: usize) -> Result<(), LockError> {
    let size = arguments.len();
    if size > limit { Err(LockError::TooLarge { size, limit }) } else { Ok(()) }
}

/// What keeps the deferred calls of a manager that was given no other.
pub(crate) fn of(backend: &Backend, max_size: usize) -> Arc<dyn Deferrer> {
    match backend {
        Backend::Memory(memory) => Arc::new(memory.jobs.clone()),
        Backend::Redis(redis) => Arc::new(RedisJobs::new(redis, max_size)),
        Backend::Redlock(_) => Arc::new(Nowhere),
    }
}
