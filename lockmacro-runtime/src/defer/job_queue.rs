//! The trait of a queue of jobs.

use std::fmt;
use std::future::ready;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::defer::job::{Job, JobState, NewJob, Page, Settled, Stored, TakeOptions};
use crate::value::error::LockError;

/// The setting by whose error a manager without a queue is known.
pub(crate) const JOB_QUEUE: &str = "job_queue";
/// Largest number of dead jobs that one call retries or removes.
const AMENDED_MAX: usize = 1_000;

/// The future of an answer of a [`JobQueue`].
pub type JobFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, LockError>> + Send + 'a>>;

/// A future that is ready when the caller wants to wait no longer.
pub type StopWaiting<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// A queue of jobs.
///
/// By default a manager keeps its jobs in the locks' own store. Set another queue with
/// [`LockManagerBuilder::job_queue`](crate::LockManagerBuilder::job_queue), in every process that
/// stores or runs jobs.
///
/// A job is *waiting* until it is due and a worker takes it. It is *running* as long as that
/// worker renews its lease. Then it is removed, waits again, or is *dead*. The worker
/// decides when and how often a job is tried. The queue guarantees:
///
/// - A stored job is given to workers until one of them has settled it, so it runs at least once.
/// - No job is given to a second worker while the lease of the first one lasts.
/// - A worker that has lost a job, which [`Job::claim`] shows, cannot change the job any more.
/// - Only the queue's own clock decides. The clocks of clients do not.
///
/// Any number of callers may call the methods at the same time. A caller may repeat a call with the
/// same arguments after an error, and may drop its future at any time. A job that was taken by a
/// dropped future is due again when its lease is over.
///
/// # Errors
/// A queue that cannot be reached, or cannot do its work, returns [`LockError::unavailable`]. The
/// caller that stores a job gets this error; a worker tries again. After any other error a worker
/// stops trying to settle its job, which then runs again. Never return [`LockError::Busy`].
///
/// # Panics
/// An implementation must not panic, because a panic ends the worker.
///
/// # Example
/// `tests/claims/defer/plugged_in.rs` of the repository is a queue in memory that does just this.
pub trait JobQueue: fmt::Debug + Send + Sync {
    /// Reports to the queue that a worker's call of [`take`](JobQueue::take) failed because of the
    /// queue's servers. Returns whether the worker should log the failure at WARN, and not at
    /// DEBUG.
    ///
    /// The default implementation returns `true`. The queue on a Redis server logs its outages
    /// itself.
    fn take_failed(&self, error: &LockError) -> bool {
        let _ = error;
        true
    }

    /// Stores a job that is due after its delay. Returns its id and when it is due.
    ///
    /// A job with the same function and [id](NewJob::id) is stored once, also when it was done
    /// less than 30 s ago, but not when it was [removed](JobQueue::remove). A caller that gets no
    /// answer repeats this call until its manager's timeout is over.
    ///
    /// Of the jobs of one function and key that are not to be [kept all](NewJob::keep), one waits.
    /// Another one is not stored then, and the answer describes the waiting job:
    ///
    /// - [`Keep::First`](crate::defer::Keep::First) leaves the waiting job as it is.
    /// - [`Keep::Latest`](crate::defer::Keep::Latest) gives it the new arguments, and all attempts.
    ///   It stays due when it was. With `at_most` it is due after the new delay, but not earlier
    ///   than before, and at most this long after it was stored. A waiting job that was tried or
    ///   busy before is due after the new delay, as if the new job was the first one. The new
    ///   job's id counts as that of a job which is done.
    ///
    /// When such a job has to wait again while another one waits, the two become one: the other
    /// one stays, is due at the earlier of the two times, and has the larger of the two numbers of
    /// attempts and of times busy. So a job that always fails still ends.
    ///
    /// # Errors
    /// [`LockError::Unavailable`] when too many jobs wait.
    fn put(&self, job: NewJob) -> JobFuture<'_, Stored>;

    /// Takes jobs that are due, the earliest first: at least one, and at most
    /// [`limit`](TakeOptions::limit).
    ///
    /// It waits until a job is due. When `stop` is ready, it returns the jobs that it has, which
    /// may be none. A job whose lease has ended is due again, or is dead when its
    /// leases have ended [too often](NewJob::attempts). Return large jobs in several answers.
    ///
    /// # Errors
    /// [`LockError::access_denied`] ends a worker whose requests were never answered otherwise: it
    /// says that this process may not take the jobs of a function. A right that is taken away
    /// later, as by a migration, ends no worker. After any other error the worker tries again.
    fn take<'a>(&'a self, options: TakeOptions, stop: StopWaiting<'a>) -> JobFuture<'a, Vec<Job>>;

    /// Renews the lease of a job, which then ends `lease` from now. Returns `false` when the job
    /// does not belong to the worker any more. A worker renews three times in each lease, until it
    /// has settled the job.
    fn keep(&self, job: Job, lease: Duration) -> JobFuture<'_, bool>;

    /// Ends the work on a job. Returns `false` when the job belongs to another worker by now, or
    /// was removed.
    fn settle(&self, job: Job, how: Settled) -> JobFuture<'_, bool>;

    /// Removes the jobs of a function and key that are not [kept all](NewJob::keep), waiting and
    /// running ones, if they were stored at least `began` before now: a newer job, which began
    /// then, has the lock now and runs. Jobs that were stored since are newer than that one, and
    /// stay. The worker of a running job is told by [`keep`](JobQueue::keep). Returns their
    /// number.
    ///
    /// The default implementation removes none, so the older job runs after the newer one.
    fn supersede(&self, function: Arc<str>, key: String, began: Duration) -> JobFuture<'_, usize> {
        let _ = (function, key, began);
        Box::pin(ready(Ok(0)))
    }

    /// Removes the jobs that [`supersede`](JobQueue::supersede) would, if they were stored before
    /// this one, which a worker has taken and which has the lock now. An older job may have failed
    /// just before, and would run again after this one. Returns their number.
    ///
    /// The default implementation removes none.
    fn supersede_older(&self, job: Job) -> JobFuture<'_, usize> {
        let _ = job;
        Box::pin(ready(Ok(0)))
    }

    /// Lists up to `limit` jobs of a function in the order of their times, after skipping `first`
    /// of them.
    ///
    /// Fewer jobs are listed where they are large, but at least one if there is one. Continue
    /// after the last one that was listed.
    fn list(
        &self,
        function: Arc<str>,
        state: JobState,
        first: usize,
        limit: usize,
    ) -> JobFuture<'_, Page>;

    /// Makes a dead job or a waiting job due at once, with all its attempts. Returns whether
    /// there is such a job.
    fn retry(&self, function: Arc<str>, id: String) -> JobFuture<'_, bool>;

    /// Removes a dead job or a waiting job. Returns whether there was such a job.
    fn remove(&self, function: Arc<str>, id: String) -> JobFuture<'_, bool>;

    /// Makes up to `limit` dead jobs due at once as [`retry`](JobQueue::retry) does, the oldest
    /// first and at most 1,000. Returns their number.
    ///
    /// To retry all of them, repeat the call until the numbers add up to their
    /// [total](Page::total).
    ///
    /// The default implementation retries one after another.
    fn retry_dead(&self, function: Arc<str>, limit: usize) -> JobFuture<'_, usize> {
        Box::pin(amend_dead(self, function, limit, Self::retry))
    }

    /// Removes up to `limit` dead jobs, the oldest first and at most 1,000. Returns their
    /// number.
    ///
    /// The queues of this crate also remove dead jobs whose id is not UTF-8, which only another
    /// program can have written. The default implementation removes one after another.
    fn remove_dead(&self, function: Arc<str>, limit: usize) -> JobFuture<'_, usize> {
        Box::pin(amend_dead(self, function, limit, Self::remove))
    }
}

/// Retries or removes the oldest dead jobs, one after another.
async fn amend_dead<D: JobQueue + ?Sized>(
    job_queue: &D,
    function: Arc<str>,
    limit: usize,
    amend: for<'a> fn(&'a D, Arc<str>, String) -> JobFuture<'a, bool>,
) -> Result<usize, LockError> {
    let limit = limit.min(AMENDED_MAX);
    let dead = job_queue.list(Arc::clone(&function), JobState::Dead, 0, limit).await?;
    let mut done = 0;
    for job in dead.jobs {
        done += usize::from(amend(job_queue, Arc::clone(&function), job.id).await?);
    }
    Ok(done)
}
