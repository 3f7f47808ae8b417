//! The job that runs in the current task, as the function under its lock sees it.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use crate::defer::job::Job;
use crate::defer::job_queue::JobQueue;
use crate::defer::outcome::{JobEnd, JobOutcome};
use crate::engine::observer::OBSERVER;
use crate::guard::LockGuard;
use crate::sys::random::{HashMap, random_name};
use crate::sys::sync::Mutex;
use crate::value::error::LockError;

tokio::task_local! {
    static RUNNING: RunningJob;
}

/// A running job. It belongs to one task, and not to the tasks that this one spawns.
#[derive(Debug, Clone)]
pub(crate) struct RunningJob(Arc<RunningJobParts>);

/// A job that a worker has taken, and how to ask whether it still has it.
#[derive(Debug)]
pub(crate) struct Claim {
    pub(crate) job: Job,
    pub(crate) job_queue: Arc<dyn JobQueue>,
    pub(crate) lease: Duration,
}

#[derive(Debug)]
struct RunningJobParts {
    claim: Claim,
    function: Arc<str>,
    /// The arguments as the function itself writes them: the stored text may order a map
    /// differently.
    arguments: String,
    notes: Mutex<Notes>,
}

/// What the job's locks report.
#[derive(Debug, Default)]
struct Notes {
    /// An error that the function's return type may not carry.
    error: Option<LockError>,
    /// Whether a lock outside of any body was not acquired, and the job is not the reason.
    refused: bool,
    /// Whether a newer job has taken its place.
    superseded: bool,
    /// The number of jobs with the same hash that were deferred inside of this one.
    inside: HashMap<(u64, u64), u32>,
}

impl RunningJob {
    /// `function` is the name without the manager's prefix.
    pub(crate) fn new(claim: Claim, function: &Arc<str>, arguments: String) -> Self {
        let function = Arc::clone(function);
        Self(Arc::new(RunningJobParts { claim, function, arguments, notes: Mutex::default() }))
    }

    /// Supersedes the older jobs of its key. Fails if the job is not its worker's any more, as
    /// when a newer one has superseded it.
    pub(crate) async fn supersede(&self) -> Result<(), LockError> {
        let Claim { job, job_queue, lease } = &self.0.claim;
        let kept = job_queue.keep(job.clone(), *lease).await;
        let superseded = match kept {
            // An older one may have failed just before this one had the lock.
            Ok(true) => job_queue.supersede_older(job.clone()).await.map(|_| true),
            kept => kept,
        };
        match superseded {
            Ok(true) => Ok(()),
            Ok(false) => {
                self.0.notes.lock().superseded = true;
                let key = job.key.clone().into();
                let id = job.id.clone().into();
                Err(LockError::Deferred { key, id, due: Duration::ZERO })
            }
            Err(error) => {
                self.0.notes.lock().refused = true;
                Err(error)
            }
        }
    }

    /// Runs `work` as the work of this job.
    pub(crate) async fn around(self, work: impl Future<Output: JobOutcome>) -> JobEnd {
        OBSERVER.get_or_init(|| note_error);
        let value = RUNNING.scope(self.clone(), work).await;
        self.end(value)
    }

    /// [`around`](RunningJob::around) for code that is not async.
    pub(crate) fn enter<R: JobOutcome>(self, work: impl FnOnce() -> R) -> JobEnd {
        OBSERVER.get_or_init(|| note_error);
        let value = RUNNING.sync_scope(self.clone(), work);
        self.end(value)
    }

    /// The outcome of a job that has returned.
    fn end(&self, value: impl JobOutcome) -> JobEnd {
        let Notes { error, refused, superseded, .. } = mem::take(&mut *self.0.notes.lock());
        if superseded {
            return JobEnd::Superseded;
        }
        match (error, value.failure()) {
            (None, None) => JobEnd::Done,
            (Some(error), failure) if error.is_busy() || refused => {
                let left = error.holder().free_within;
                JobEnd::Busy { error: failure.unwrap_or_else(|| error.to_string()), left }
            }
            (None, Some(error)) if refused => JobEnd::Busy { error, left: None },
            (error, failure) => {
                let text = failure.or_else(|| error.map(|error| error.to_string()));
                JobEnd::Failed(text.unwrap_or_default())
            }
        }
    }

    fn note(&self, error: LockError) {
        self.0.notes.lock().error = Some(error);
    }

    /// The id of a job that is deferred inside of this one. It differs from all others, and is the
    /// same in every attempt of this job.
    fn id_inside(&self, function: &str, arguments: &str) -> String {
        let hash = |half: u8| {
            let mut hasher = DefaultHasher::new();
            (half, &self.0.claim.job.id, &self.0.function, function, arguments).hash(&mut hasher);
            hasher.finish()
        };
        let call = (hash(0), hash(1));
        let mut notes = self.0.notes.lock();
        let nth = notes.inside.entry(call).or_default();
        *nth += 1;
        format!("{:016x}{:016x}-{nth}", call.0, call.1)
    }
}

/// The id of a new job. A job that is deferred inside of another has the same id in each attempt
/// of the other, so that it is stored once as long as the queue remembers its id.
pub(crate) fn new_id(function: &str, arguments: &str) -> String {
    let inside = RUNNING.try_with(|running| running.id_inside(function, arguments));
    inside.unwrap_or_else(|_| format!("{:032x}", random_name()))
}

/// Whether this is the job that a worker runs in this task. Such a job is stored already; its
/// worker learns that it was busy.
pub(crate) fn is_running(function: &str, arguments: &str, busy: &LockError) -> bool {
    let is_this = |running: &RunningJob| {
        let is_this = *running.0.function == *function && running.0.arguments == arguments;
        if is_this {
            running.note(busy.clone());
        }
        is_this
    };
    RUNNING.try_with(is_this).unwrap_or(false)
}

/// The job that a worker runs in this task, if it is one of this function and key.
pub(crate) fn this_job(function: &str, key: &str) -> Option<RunningJob> {
    let is_this = |RunningJob(running): &&RunningJob| {
        *running.function == *function && running.claim.job.key == key
    };
    RUNNING.try_with(|running| Some(running).filter(is_this).cloned()).ok().flatten()
}

/// Keeps an error of the called function for its worker, if the function's return type cannot carry
/// it. Otherwise a lock was not acquired: if the job itself is not the reason, its body does not
/// run.
fn note_error(error: &LockError, is_unreported: bool) {
    // The body decides about failures inside of it.
    if LockGuard::current().is_some() {
        return;
    }
    let not_installed = matches!(error, LockError::NotInstalled { .. });
    // Fails outside of a worker, where nobody needs the error.
    let _ = RUNNING.try_with(|running| {
        if is_unreported {
            running.note(error.clone());
        } else if not_installed || error.is_of_servers() {
            running.0.notes.lock().refused = true;
            // The other errors are logged where they occur.
            if not_installed {
                tracing::warn!(%error, "a job was not tried: it could not acquire its lock");
            }
        }
    });
}
