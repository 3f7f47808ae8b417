//! The queue of deferred calls in memory, for `memory://`: like the one on a server, but of one
//! process.

use std::fmt;
use std::future::{pending, ready};
use std::sync::Arc;
use std::time::Duration;

use tokio::select;
use tokio::sync::Notify;
use tokio::time::sleep_until;

use crate::jobs::call::{Job, JobInfo, JobState, NewJob, Page, Settled, Stored, TakeOptions};
use crate::jobs::deferrer::{Answer, Deferrer, StopWaiting};
use crate::jobs::limits::{DEAD_MAX, WAITING_MAX, full, note_abandoned};
use crate::jobs::states::{Call, Queue};
use crate::value::error::LockError;
use crate::value::random::HashMap;
use crate::value::sync::{Mutex, MutexGuard};
use crate::value::time::Instant;

/// Longest delay. The queue on a server expires when it is not used for this time.
const FAR: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// Clones are the same calls.
#[derive(Clone)]
pub(crate) struct MemoryJobs(Arc<Inner>);

struct Inner {
    /// All times count from this one.
    start: Instant,
    queues: Mutex<HashMap<Arc<str>, Queue>>,
    /// Notified when a call may be due earlier than the others.
    changed: Notify,
}

/// Without the calls, whose arguments may be secret.
impl fmt::Debug for MemoryJobs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let functions = self.queues().len();
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
        let calls = std::mem::take(&mut *self.queues());
        drop(calls);
        self.0.changed.notify_waiters();
    }

    fn now(&self) -> Duration {
        self.0.start.elapsed()
    }

    /// The time that is `time` from now.
    fn after(&self, time: Duration) -> Duration {
        self.now() + time.min(FAR)
    }

    fn queues(&self) -> MutexGuard<'_, HashMap<Arc<str>, Queue>> {
        // No code under this mutex can panic and leave the calls half changed.
        self.0.queues.lock()
    }

    fn put_now(&self, new: NewJob) -> Result<Stored, LockError> {
        let NewJob { function, id, arguments, key, delay, unique, attempts } = new;
        let now = self.now();
        let mut queues = self.queues();
        let queue = queues.entry(Arc::clone(&function)).or_default();
        let only = queue.unique.get(&key).filter(|_| unique);
        let there = queue.calls.get(&id).or_else(|| queue.calls.get(only?));
        if let Some(there) = there {
            let due = there.at.saturating_sub(now);
            return Ok(Stored { id: there.job.id.clone(), due });
        }
        if queue.over.has(&id) {
            return Ok(Stored { id, due: Duration::ZERO });
        }
        // Counts running calls as well, so the limit is not exact.
        if queue.calls.len() >= WAITING_MAX + DEAD_MAX {
            return Err(full(&function));
        }
        let job = Job { function, id: id.clone(), arguments, key, attempt: 0, busy: 0, taken: 0 };
        let (state, at) = (JobState::Waiting, self.after(delay));
        let call = Call { job, state, at, unique, attempts, settled: 0, error: None };
        queue.calls.insert(id.clone(), call);
        queue.set_state(&id, state, at);
        drop(queues);
        self.0.changed.notify_waiters();
        Ok(Stored { id, due: delay })
    }

    /// Takes the calls that are due. Returns them, and when the next call is due.
    fn take_now(&self, options: &TakeOptions) -> (Vec<Job>, Option<Duration>) {
        let now = self.now();
        let mut queues = self.queues();
        let (mut taken, mut again, mut dead) = (Vec::new(), None, Vec::new());
        for function in &options.functions {
            let Some(queue) = queues.get_mut(function) else { continue };
            while let Some(lapsed) = queue.due(JobState::Running, now) {
                if let Some(times) = queue.lapse(&lapsed, now) {
                    dead.push((function, lapsed, times));
                }
            }
            while taken.len() < options.most
                && let Some(due) = queue.due(JobState::Waiting, now)
            {
                queue.set_state(&due, JobState::Running, self.after(options.lease));
                if let Some(call) = queue.calls.get_mut(&due) {
                    call.job.attempt += 1;
                    call.job.taken += 1;
                    taken.push(call.job.clone());
                }
            }
            let next = [JobState::Waiting, JobState::Running].map(|state| queue.first(state));
            again = again.into_iter().chain(next.into_iter().flatten().map(|(at, _)| at)).min();
        }
        drop(queues);
        for (function, id, times) in dead {
            note_abandoned(function, &id, times);
        }
        (taken, again)
    }

    fn settle_now(&self, job: &Job, how: Settled) -> bool {
        let now = self.now();
        let mut queues = self.queues();
        let Some(queue) = queues.get_mut(&job.function) else { return false };
        let Some(call) = queue.taken(job) else { return false };
        call.settled = job.taken;
        match how {
            Settled::Done => drop(queue.remove(&job.id)),
            Settled::Again { delay, error } => {
                call.error = Some(error);
                queue.set_state(&job.id, JobState::Waiting, self.after(delay));
            }
            Settled::Busy { delay, error } => {
                call.error = Some(error);
                call.job.attempt = call.job.attempt.saturating_sub(1);
                call.job.busy += 1;
                queue.set_state(&job.id, JobState::Waiting, self.after(delay));
            }
            Settled::Untried => {
                call.job.attempt = call.job.attempt.saturating_sub(1);
                queue.set_state(&job.id, JobState::Waiting, now);
            }
            Settled::Dead { error } => {
                call.error = Some(error);
                queue.make_dead(&job.id, now);
            }
        }
        drop(queues);
        self.0.changed.notify_waiters();
        true
    }

    /// Changes a call that is not running.
    fn amend(&self, function: &str, id: &str, change: impl FnOnce(&mut Queue)) -> bool {
        let mut queues = self.queues();
        let Some(queue) = queues.get_mut(function) else { return false };
        if queue.calls.get(id).is_none_or(|call| call.state == JobState::Running) {
            return false;
        }
        change(queue);
        drop(queues);
        self.0.changed.notify_waiters();
        true
    }
}

impl Deferrer for MemoryJobs {
    fn put(&self, job: NewJob) -> Answer<'_, Stored> {
        Box::pin(ready(self.put_now(job)))
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
        let mut queues = self.queues();
        let queue = queues.get_mut(&job.function);
        let kept = queue.is_some_and(|queue| {
            let its = queue.taken(&job).is_some();
            if its {
                queue.set_state(&job.id, JobState::Running, self.after(lease));
            }
            its
        });
        Box::pin(ready(Ok(kept)))
    }

    fn settle(&self, job: Job, how: Settled) -> Answer<'_, bool> {
        Box::pin(ready(Ok(self.settle_now(&job, how))))
    }

    fn list(
        &self,
        function: Arc<str>,
        state: JobState,
        first: usize,
        most: usize,
    ) -> Answer<'_, Page> {
        let (now, queues) = (self.now(), self.queues());
        let none = Queue::default();
        let queue = queues.get(&function).unwrap_or(&none);
        let listed = queue.of(state).filter_map(|(_, id)| queue.calls.get(id));
        let jobs = listed.skip(first).take(most).map(|call| {
            let info = JobInfo::new(call.job.clone(), signed(call.at) - signed(now));
            JobInfo { error: call.error.clone(), ..info }
        });
        let page = Page { total: queue.of(state).count(), jobs: jobs.collect() };
        Box::pin(ready(Ok(page)))
    }

    fn retry(&self, function: Arc<str>, id: String) -> Answer<'_, bool> {
        let now = self.now();
        Box::pin(ready(Ok(self.amend(&function, &id, |queue| queue.retry(&id, now)))))
    }

    fn remove(&self, function: Arc<str>, id: String) -> Answer<'_, bool> {
        Box::pin(ready(Ok(self.amend(&function, &id, |queue| drop(queue.remove(&id))))))
    }
}

fn signed(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}
