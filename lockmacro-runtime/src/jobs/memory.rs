//! The queue of deferred calls in memory, for `memory://`: like the one on a server, but of one
//! process.

use std::fmt;
use std::future::{pending, ready};
use std::sync::Arc;
use std::time::Duration;

use tokio::select;
use tokio::sync::Notify;
use tokio::time::sleep_until;

use crate::jobs::call::{Job, JobState, NewJob, Page, Settled, Stored, TakeOptions};
use crate::jobs::deferrer::{Answer, Deferrer, StopWaiting};
use crate::jobs::limits::note_abandoned;
use crate::jobs::states::Queue;
use crate::value::random::HashMap;
use crate::value::sync::Mutex;
use crate::value::time::Instant;

/// Clones are the same calls.
#[derive(Clone)]
pub(crate) struct MemoryJobs(Arc<Inner>);

struct Inner {
    /// All times count from this one.
    start: Instant,
    /// No code under this mutex can panic and leave the calls half changed.
    queues: Mutex<HashMap<Arc<str>, Queue>>,
    /// Notified when a call may be due earlier than the others.
    changed: Notify,
}

/// Without the calls, whose arguments may be secret.
impl fmt::Debug for MemoryJobs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let functions = self.0.queues.lock().len();
        f.debug_struct("MemoryJobs").field("functions", &functions).finish_non_exhaustive()
    }
}

impl MemoryJobs {
    pub(crate) fn new() -> Self {
        let (queues, changed) = (Mutex::default(), Notify::new());
        Self(Arc::new(Inner { start: Instant::now(), queues, changed }))
    }

    /// Forgets every call.
    #[cfg(feature = "test-util")]
    pub(crate) fn reset(&self) {
        let calls = std::mem::take(&mut *self.0.queues.lock());
        drop(calls);
        self.0.changed.notify_waiters();
    }

    fn now(&self) -> Duration {
        self.0.start.elapsed()
    }

    /// Changes the calls of a function, if there are any. `change` returns whether it did so.
    fn amend(
        &self,
        function: &str,
        change: impl FnOnce(&mut Queue, Duration) -> bool,
    ) -> Answer<'_, bool> {
        let now = self.now();
        let changed =
            self.0.queues.lock().get_mut(function).is_some_and(|queue| change(queue, now));
        if changed {
            self.0.changed.notify_waiters();
        }
        Box::pin(ready(Ok(changed)))
    }

    /// Takes the calls that are due. Returns them, and when the next call is due.
    fn take_now(&self, options: &TakeOptions) -> (Vec<Job>, Option<Duration>) {
        let (now, mut queues) = (self.now(), self.0.queues.lock());
        let (mut taken, mut again, mut dead) = (Vec::new(), None, Vec::new());
        for function in &options.functions {
            let Some(queue) = queues.get_mut(function) else { continue };
            dead.extend(queue.lapse(now).into_iter().map(|(id, times)| (function, id, times)));
            taken.extend(queue.take(options.most - taken.len(), options.lease, now));
            again = again.into_iter().chain(queue.next_due()).min();
        }
        drop(queues);
        for (function, id, times) in dead {
            note_abandoned(function, &id, times);
        }
        (taken, again)
    }
}

impl Deferrer for MemoryJobs {
    fn put(&self, job: NewJob) -> Answer<'_, Stored> {
        let (now, mut queues) = (self.now(), self.0.queues.lock());
        let stored = queues.entry(Arc::clone(&job.function)).or_default().put(job, now);
        drop(queues);
        self.0.changed.notify_waiters();
        Box::pin(ready(stored))
    }

    fn take<'a>(&'a self, options: TakeOptions, mut stop: StopWaiting<'a>) -> Answer<'a, Vec<Job>> {
        Box::pin(async move {
            loop {
                // Enabled before the calls are read, so that no change in between is missed.
                let mut changed = std::pin::pin!(self.0.changed.notified());
                changed.as_mut().enable();
                let (taken, again) = self.take_now(&options);
                if !taken.is_empty() {
                    return Ok(taken);
                }
                let due = async {
                    match again {
                        Some(again) => sleep_until(self.0.start + again).await,
                        None => pending().await,
                    }
                };
                select! {
                    biased;
                    () = &mut stop => return Ok(taken),
                    () = changed => {}
                    () = due => {}
                }
            }
        })
    }

    fn keep(&self, job: Job, lease: Duration) -> Answer<'_, bool> {
        self.amend(&job.function, |queue, now| queue.keep(&job, lease, now))
    }

    fn settle(&self, job: Job, how: Settled) -> Answer<'_, bool> {
        self.amend(&job.function, |queue, now| queue.settle(&job, how, now))
    }

    fn list(
        &self,
        function: Arc<str>,
        state: JobState,
        first: usize,
        most: usize,
    ) -> Answer<'_, Page> {
        let (now, queues) = (self.now(), self.0.queues.lock());
        let page = queues.get(&function).map(|queue| queue.list(state, first, most, now));
        Box::pin(ready(Ok(page.unwrap_or_else(|| Page::new(0, Vec::new())))))
    }

    fn retry(&self, function: Arc<str>, id: String) -> Answer<'_, bool> {
        self.amend(&function, |queue, now| queue.retry(&id, now))
    }

    fn remove(&self, function: Arc<str>, id: String) -> Answer<'_, bool> {
        self.amend(&function, |queue, now| queue.remove_idle(&id, now))
    }
}
