//! One attempt of a job by a worker: the worker keeps the job's lease, runs the job, and settles
//! it in the queue.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::select;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::defer::function::Deferrable;
use crate::defer::job::{Job, Settled};
use crate::defer::job_queue::JobQueue;
use crate::defer::limits::abandoned;
use crate::defer::metrics;
use crate::defer::outcome::JobEnd;
use crate::defer::running::Claim;
use crate::manager::lock_manager::LockManager;
use crate::store::handle::Store;
use crate::sys::backoff::{Backoff, jittered};
use crate::sys::task::{JoinSet, owned};
use crate::sys::time::Instant;
use crate::value::error::LockError;

const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// The pauses while the server cannot be reached.
pub(crate) const PAUSES: Backoff = Backoff::new(FIRST_PAUSE, Duration::from_secs(5));
/// Largest number of bytes that are kept of an error.
const ERROR_MAX: usize = 2 * 1024;

/// A job that a worker has taken.
struct JobRun {
    manager: LockManager,
    job_queue: Arc<dyn JobQueue>,
    function: Deferrable,
    job: Job,
    lease: Duration,
}

/// Runs a job that a worker has taken, and settles it. When `interrupt` becomes true, an async
/// job is dropped and returned to the queue.
///
/// A task renews the job's lease, also while the job blocks its thread. It is spawned here and
/// not by the future, so that another thread can run it.
pub(crate) fn run(
    manager: LockManager,
    job_queue: Arc<dyn JobQueue>,
    function: Deferrable,
    job: Job,
    lease: Duration,
    interrupt: watch::Receiver<bool>,
) -> impl Future<Output = ()> {
    let mut keeper = JoinSet::new();
    keeper.spawn(owned(keep_until_taken(Arc::clone(&job_queue), job.clone(), lease)));
    JobRun { manager, job_queue, function, job, lease }.run_kept(keeper, interrupt)
}

impl JobRun {
    async fn run_kept(self, mut keeper: JoinSet<()>, mut interrupt: watch::Receiver<bool>) {
        let how = if self.function.is_exhausted(self.job.attempt) {
            dead(abandoned(u64::from(self.job.attempt - 1)))
        } else {
            match self.function.call(self.claim()) {
                Err(unfit) => self.unfit(unfit),
                Ok(called) => select! {
                    biased;
                    ended = caught(called) => match self.settled(ended) {
                        Some(how) => how,
                        None => {
                            let Job { function, id, .. } = &self.job;
                            tracing::debug!(%function, id, "a newer job has superseded this one");
                            return;
                        }
                    },
                    _ = keeper.join_next() => {
                        let Job { function, id, .. } = &self.job;
                        tracing::warn!(%function, id, "a job went to another worker");
                        metrics::job(&self.function.name, "late");
                        return;
                    }
                    // A job that blocks cannot be stopped: its lease expires later.
                    _ = interrupt.wait_for(|interrupt| *interrupt) => {
                        if self.function.blocking {
                            return;
                        }
                        Settled::Returned
                    }
                },
            }
        };
        self.note(&how);
        let mut settled = pin!(self.settle(how, interrupt));
        select! {
            biased;
            () = &mut settled => {}
            // No other worker may have taken the job yet.
            _ = keeper.join_next() => settled.await,
        }
    }

    fn claim(&self) -> Claim {
        Claim { job: self.job.clone(), job_queue: Arc::clone(&self.job_queue), lease: self.lease }
    }

    /// How to settle a job whose arguments this worker cannot read: during an upgrade another one
    /// may be able to.
    fn unfit(&self, error: String) -> Settled {
        let Job { function, id, busy, .. } = &self.job;
        match self.function.when_unfit(id, *busy) {
            Some(delay) => {
                tracing::warn!(
                    %function,
                    id,
                    error,
                    ?delay,
                    "a job is left to other workers: this one cannot read it"
                );
                Settled::Busy { delay, error: shortened(error) }
            }
            None => dead(error),
        }
    }

    /// How to settle a job that has ended; `None` for one that is gone.
    fn settled(&self, ended: JobEnd) -> Option<Settled> {
        let Job { attempt, busy, .. } = self.job;
        Some(match ended {
            JobEnd::Done => Settled::Done,
            JobEnd::Superseded => return None,
            // The shutdown may be the reason of the failure.
            _ if self.manager.core().shutdown.is_closed() => Settled::Returned,
            JobEnd::Busy { error, left } => match self.function.when_busy(busy, left) {
                Some(delay) => Settled::Busy { delay, error: shortened(error) },
                None => dead(format!("its lock could not be acquired {busy} times: {error}")),
            },
            JobEnd::Failed(error) => match self.function.again(attempt) {
                Some(delay) => Settled::Again { delay, error: shortened(error) },
                None => dead(error),
            },
        })
    }

    fn note(&self, how: &Settled) {
        let Job { function, id, attempt, .. } = &self.job;
        let event = match how {
            Settled::Done => Some("run"),
            Settled::Again { .. } => Some("failed"),
            Settled::Dead { .. } => Some("dead"),
            _ => None,
        };
        event.inspect(|event| metrics::job(&self.function.name, event));
        match how {
            Settled::Dead { error } => {
                tracing::error!(%function, id, attempt, error, "job is dead");
            }
            Settled::Again { delay, error } => {
                tracing::warn!(%function, id, attempt, error, ?delay, "job failed");
            }
            Settled::Busy { delay, error } => {
                tracing::info!(%function, id, error, ?delay, "job could not be tried");
            }
            _ => tracing::debug!(%function, id, attempt, ?how, "job ended"),
        }
    }

    /// Settles the job. Retries for the length of a lease, and once more when the worker has to
    /// end. The caller renews the job's lease meanwhile.
    async fn settle(&self, how: Settled, mut end: watch::Receiver<bool>) {
        let Job { function, id, .. } = &self.job;
        let until = Instant::now() + self.lease;
        let mut backoff = PAUSES;
        loop {
            let is_last = *end.borrow();
            let error = match self.settle_once(how.clone()).await {
                Ok(true) => return,
                Ok(false) => {
                    metrics::job(&self.function.name, "late");
                    tracing::warn!(
                        %function,
                        id,
                        "a job ended after it had gone to another worker"
                    );
                    return;
                }
                Err(error) => error,
            };
            // Any other error would be the same soon after. A right may be back by then.
            let is_denied = matches!(error, LockError::AccessDenied { .. });
            let is_transient = error.is_transient() || is_denied;
            let pause = jittered(backoff.step());
            if !is_transient || is_last || Instant::now() + pause > until {
                tracing::error!(
                    %function,
                    id,
                    %error,
                    "the end of a job could not be stored: it runs again"
                );
                return;
            }
            let _ = timeout(pause, end.wait_for(|end| *end)).await;
        }
    }

    async fn settle_once(&self, how: Settled) -> Result<bool, LockError> {
        let job = self.job.clone();
        if how != Settled::Returned || self.manager.core().jobs.given.is_some() {
            return self.job_queue.settle(job, how).await;
        }
        // The background thread releases the locks of the body first, so that on the same server
        // the next worker does not find them busy.
        let manager = self.manager.clone();
        let back = move |store: Store| async move {
            manager.core().jobs.queue_apart(&store).settle(job, how).await
        };
        self.manager.core().background.call(back).await?
    }
}

fn dead(error: String) -> Settled {
    Settled::Dead { error: shortened(error) }
}

/// Renews the lease of a job until the lease is lost.
async fn keep_until_taken(job_queue: Arc<dyn JobQueue>, job: Job, lease: Duration) {
    let mut until = Instant::now() + lease;
    loop {
        sleep((lease / 3).min(until.saturating_duration_since(Instant::now()))).await;
        let asked = Instant::now();
        match job_queue.keep(job.clone(), lease).await {
            Ok(true) => until = asked + lease,
            Ok(false) => return,
            Err(_) if Instant::now() < until => sleep(FIRST_PAUSE).await,
            Err(_) => return,
        }
    }
}

/// Runs a job to its end; a panic counts as a failure.
async fn caught(mut called: impl Future<Output = JobEnd> + Unpin) -> JobEnd {
    poll_fn(|cx| {
        let polled = catch_unwind(AssertUnwindSafe(|| called.poll_unpin(cx)));
        polled.unwrap_or_else(|panic| Poll::Ready(JobEnd::with_panic(&*panic)))
    })
    .await
}

/// Cuts a long error, because every dead job keeps its error.
fn shortened(mut error: String) -> String {
    const CUT: &str = "…";
    if error.len() > ERROR_MAX {
        let mut ends = (0..=ERROR_MAX - CUT.len()).rev();
        error.truncate(ends.find(|end| error.is_char_boundary(*end)).unwrap_or(0));
        error.push_str(CUT);
    }
    error
}
