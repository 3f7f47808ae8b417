//! The queue of a Redlock, which refuses all calls: there is no queue over several nodes. A manager
//! of a Redlock can have a [`Deferrer`] of another store.

use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use crate::jobs::call::{Job, JobState, NewJob, Page, Settled, Stored, TakeOptions};
use crate::jobs::deferrer::{Answer, Deferrer, StopWaiting};
use crate::value::error::LockError;

#[derive(Debug)]
pub(crate) struct NoQueue;

fn refused<'a, T: Send + 'a>() -> Answer<'a, T> {
    Box::pin(ready(Err(LockError::NoDeferrer)))
}

impl Deferrer for NoQueue {
    fn put(&self, _: NewJob) -> Answer<'_, Stored> {
        refused()
    }

    fn take<'a>(&'a self, _: TakeOptions, _: StopWaiting<'a>) -> Answer<'a, Vec<Job>> {
        refused()
    }

    fn keep(&self, _: Job, _: Duration) -> Answer<'_, bool> {
        refused()
    }

    fn settle(&self, _: Job, _: Settled) -> Answer<'_, bool> {
        refused()
    }

    fn list(&self, _: Arc<str>, _: JobState, _: usize, _: usize) -> Answer<'_, Page> {
        refused()
    }

    fn retry(&self, _: Arc<str>, _: String) -> Answer<'_, bool> {
        refused()
    }

    fn remove(&self, _: Arc<str>, _: String) -> Answer<'_, bool> {
        refused()
    }
}
