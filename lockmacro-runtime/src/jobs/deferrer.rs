//! Where deferred calls are kept: the trait of a queue.

use std::fmt;
use std::future::ready;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::jobs::call::{Job, JobState, NewJob, Page, Settled, Stored, TakeOptions};
use crate::value::error::LockError;

/// So many dead letters are tried again, or removed, at once.
const AMENDED_MAX: usize = 1_000;

/// What a question to a [`Deferrer`] gives.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, LockError>> + Send + 'a>>;

/// Is ready when there was enough waiting.
pub type StopWaiting<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

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
    /// [`most`](TakeOptions::most). Waits for one as long as there is none; when `enough` is ready it gives what
    /// it has, which may be nothing. Those whose lease has ended are due, or dead letters when that
    /// was so [too often](NewJob::attempts). What is large is better given in several answers.
    fn take<'a>(&'a self, order: TakeOptions, enough: StopWaiting<'a>) -> Answer<'a, Vec<Job>>;

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
