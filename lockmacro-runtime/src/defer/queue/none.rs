//! The queue of a manager without one.

use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use crate::defer::job::{Job, JobState, NewJob, Page, Settled, Stored, TakeOptions};
use crate::defer::job_queue::{JobFuture, JobQueue, StopWaiting};
use crate::value::error::LockError;

/// The queue of a store without one, which refuses all jobs with this error. The manager of such a
/// store can have a [`JobQueue`] of another one.
#[derive(Debug)]
pub(crate) struct NoQueue(pub(crate) LockError);

impl NoQueue {
    fn refuse<'a, T: Send + 'a>(&self) -> JobFuture<'a, T> {
        Box::pin(ready(Err(self.0.clone())))
    }
}

impl JobQueue for NoQueue {
    fn put(&self, _: NewJob) -> JobFuture<'_, Stored> {
        self.refuse()
    }

    fn take<'a>(&'a self, _: TakeOptions, _: StopWaiting<'a>) -> JobFuture<'a, Vec<Job>> {
        self.refuse()
    }

    fn keep(&self, _: Job, _: Duration) -> JobFuture<'_, bool> {
        self.refuse()
    }

    fn settle(&self, _: Job, _: Settled) -> JobFuture<'_, bool> {
        self.refuse()
    }

    fn list(&self, _: Arc<str>, _: JobState, _: usize, _: usize) -> JobFuture<'_, Page> {
        self.refuse()
    }

    fn retry(&self, _: Arc<str>, _: String) -> JobFuture<'_, bool> {
        self.refuse()
    }

    fn remove(&self, _: Arc<str>, _: String) -> JobFuture<'_, bool> {
        self.refuse()
    }
}
