//! The queue of jobs in memory, for `memory://`: like the one on a server, but of one
//! process.

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::future::{pending, ready};
use std::sync::Arc;
use std::time::Duration;

use tokio::select;
use tokio::sync::Notify;
use tokio::time::sleep_until;

use crate::defer::job::{
    Job, JobInfo, JobState, Keep, NewJob, Page, Settled, Stored, TakeOptions, When,
};
use crate::defer::job_queue::{JobFuture, JobQueue, StopWaiting};
use crate::defer::limits::{DEAD_MAX, WAITING_MAX, abandoned, full, note_abandoned};
use crate::sys::random::{HashMap, HashSet, random_name};
use crate::sys::sync::Mutex;
use crate::sys::time::Instant;
use crate::value::error::LockError;

/// How long the ids of removed jobs are remembered, as on a server.
const KNOWN: Duration = Duration::from_secs(30);
/// Longest delay. The queue on a server expires when it is not used for this time.
const FAR: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// Clones are the same jobs.
#[derive(Clone)]
pub(crate) struct MemoryJobs(Arc<MemoryQueues>);

struct MemoryQueues {
    /// All times count from this one.
    start: Instant,
    /// No code under this mutex can panic and leave the jobs half changed.
    queues: Mutex<HashMap<Arc<str>, FunctionQueue>>,
    /// Notified when a job may be due earlier than the others.
    changed: Notify,
}

/// Without the jobs, whose arguments may be secret.
impl fmt::Debug for MemoryJobs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let functions = self.0.queues.lock().len();
        f.debug_struct("MemoryJobs").field("functions", &functions).finish_non_exhaustive()
    }
}

impl Default for MemoryJobs {
    fn default() -> Self {
        let queues = Mutex::default();
        let changed = Notify::new();
        Self(Arc::new(MemoryQueues { start: Instant::now(), queues, changed }))
    }
}

impl MemoryJobs {
    fn now(&self) -> Duration {
        self.0.start.elapsed()
    }

    /// Changes the jobs of a function, if there are any. `change` returns whether it did so.
    fn amend(
        &self,
        function: &str,
        change: impl FnOnce(&mut FunctionQueue, Duration) -> bool,
    ) -> JobFuture<'_, bool> {
        let now = self.now();
        let changed =
            self.0.queues.lock().get_mut(function).is_some_and(|queue| change(queue, now));
        if changed {
            self.0.changed.notify_waiters();
        }
        Box::pin(ready(Ok(changed)))
    }

    /// Takes the jobs that are due. Returns them, and when the next job is due.
    fn take_now(&self, options: &TakeOptions) -> (Vec<Job>, Option<Duration>) {
        let now = self.now();
        let mut queues = self.0.queues.lock();
        let mut taken = Vec::new();
        let mut again = None;
        let mut dead = Vec::new();
        for function in &options.functions {
            let Some(queue) = queues.get_mut(function) else { continue };
            dead.extend(queue.lapse(now).into_iter().map(|(id, times)| (function, id, times)));
            taken.extend(queue.take(options.limit - taken.len(), options.lease, now));
            again = again.into_iter().chain(queue.next_due()).min();
        }
        drop(queues);
        for (function, id, times) in dead {
            note_abandoned(function, &id, times);
        }
        (taken, again)
    }
}

impl JobQueue for MemoryJobs {
    fn put(&self, job: NewJob) -> JobFuture<'_, Stored> {
        let now = self.now();
        let mut queues = self.0.queues.lock();
        let stored = queues.entry(Arc::clone(&job.function)).or_default().put(job, now);
        drop(queues);
        self.0.changed.notify_waiters();
        Box::pin(ready(stored))
    }

    fn take<'a>(
        &'a self,
        options: TakeOptions,
        mut stop: StopWaiting<'a>,
    ) -> JobFuture<'a, Vec<Job>> {
        Box::pin(async move {
            loop {
                // Enabled before the jobs are read, so that no change in between is missed.
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

    fn keep(&self, job: Job, lease: Duration) -> JobFuture<'_, bool> {
        self.amend(&job.function, |queue, now| queue.keep(&job, lease, now))
    }

    fn settle(&self, job: Job, how: Settled) -> JobFuture<'_, bool> {
        self.amend(&job.function, |queue, now| queue.settle(&job, how, now))
    }

    fn supersede(&self, function: Arc<str>, key: String, began: Duration) -> JobFuture<'_, usize> {
        let now = self.now();
        let mut queues = self.0.queues.lock();
        let began = now.saturating_sub(began);
        let is_older = |stored| stored <= began;
        let removed = queues.get_mut(&function).map(|queue| queue.supersede(&key, is_older, now));
        Box::pin(ready(Ok(removed.unwrap_or_default())))
    }

    fn supersede_older(&self, job: Job) -> JobFuture<'_, usize> {
        let now = self.now();
        let mut queues = self.0.queues.lock();
        let removed = queues.get_mut(&job.function).and_then(|queue| {
            let own = queue.jobs.get(&job.id)?.stored;
            Some(queue.supersede(&job.key, |stored| stored < own, now))
        });
        Box::pin(ready(Ok(removed.unwrap_or_default())))
    }

    fn list(
        &self,
        function: Arc<str>,
        state: JobState,
        first: usize,
        limit: usize,
    ) -> JobFuture<'_, Page> {
        let now = self.now();
        let queues = self.0.queues.lock();
        let page = queues.get(&function).map(|queue| queue.list(state, first, limit, now));
        Box::pin(ready(Ok(page.unwrap_or(Page { total: 0, jobs: Vec::new() }))))
    }

    fn retry(&self, function: Arc<str>, id: String) -> JobFuture<'_, bool> {
        self.amend(&function, |queue, now| queue.retry(&id, now))
    }

    fn remove(&self, function: Arc<str>, id: String) -> JobFuture<'_, bool> {
        self.amend(&function, |queue, _| queue.remove_idle(&id))
    }
}

/// The jobs of one function, and the state of each. Pure: every time is an argument, and counts
/// from the same moment.
#[derive(Default)]
struct FunctionQueue {
    jobs: HashMap<String, StoredJob>,
    /// When each waiting job is due, each running job's lease ends, or each dead job was given
    /// up.
    times: BTreeSet<(JobState, Duration, String)>,
    /// The id of the waiting single job of each key.
    single: HashMap<String, String>,
    /// The ids of removed jobs.
    removed: HashSet<String>,
    /// Until when each of them is remembered.
    remembered: VecDeque<(Duration, String)>,
}

struct StoredJob {
    job: Job,
    state: JobState,
    at: Duration,
    /// Whether it is the only one of its key that waits.
    single: bool,
    /// When it was stored, or replaced by a later one.
    stored: Duration,
    /// Until when later jobs may put it off.
    until: Duration,
    /// How often the job may be taken without being settled, and once more.
    attempts: u32,
    /// The value of `job.claim` when it was settled last.
    settled: u64,
    error: Option<String>,
}

impl StoredJob {
    /// Gives it all its attempts. A worker that lost the job cannot settle it any more.
    fn restart(&mut self) {
        (self.job.attempt, self.job.busy) = (0, 0);
        self.job.claim += 1;
        self.settled = self.job.claim;
    }
}

impl FunctionQueue {
    fn put(&mut self, new: NewJob, now: Duration) -> Result<Stored, LockError> {
        let NewJob { function, id, arguments, key, delay, keep, attempts } = new;
        let single = keep != Keep::All;
        let due = now + delay.min(FAR);
        let until = now + keep.parts().1.min(FAR);
        self.forget(now);
        let is_known = self.removed.contains(&id);
        let only = self.single.get(&key).filter(|_| single && !self.jobs.contains_key(&id));
        let there = only.unwrap_or(&id).clone();
        if only.is_some() && !is_known && matches!(keep, Keep::Latest { .. }) {
            self.replace(&there, arguments, attempts, (due, until), now);
            self.remember(id, now);
            return Ok(self.stored(there, now));
        }
        if is_known || self.jobs.contains_key(&there) {
            return Ok(self.stored(there, now));
        }
        // Counts running jobs as well, so the limit is not exact.
        if self.jobs.len() >= WAITING_MAX + DEAD_MAX {
            return Err(full(&function));
        }
        // A worker of an earlier job with this id, which was removed, must not have this one.
        let claim = u64::from(random_name() as u32);
        let job = Job { function, id: id.clone(), arguments, key, attempt: 0, busy: 0, claim };
        let state = JobState::Waiting;
        let entry = StoredJob {
            job,
            state,
            at: now,
            single,
            stored: now,
            until,
            attempts,
            settled: claim,
            error: None,
        };
        self.jobs.insert(id.clone(), entry);
        self.set_state(&id, state, now, due);
        Ok(Stored { id, due: delay })
    }

    /// Describes a job, which may have ended.
    fn stored(&self, id: String, now: Duration) -> Stored {
        let due = self.jobs.get(&id).map_or(now, |entry| entry.at);
        Stored { id, due: due.saturating_sub(now) }
    }

    /// Gives a waiting job the arguments of a later one.
    fn replace(
        &mut self,
        id: &str,
        arguments: String,
        attempts: u32,
        (due, until): (Duration, Duration),
        now: Duration,
    ) {
        let Some(entry) = self.jobs.get_mut(id) else { return };
        entry.job.arguments = arguments;
        entry.attempts = attempts;
        entry.stored = now;
        let at = if entry.job.attempt + entry.job.busy > 0 {
            // As a first one: the pause after a failure with other arguments is not for these.
            entry.until = until;
            due
        } else {
            entry.at.max(due.min(entry.until))
        };
        entry.restart();
        self.set_state(id, JobState::Waiting, now, at);
    }

    /// Removes the single jobs of a key that wait or run, and are older by the time when they were
    /// stored. Returns their number.
    fn supersede(
        &mut self,
        key: &str,
        is_older: impl Fn(Duration) -> bool,
        now: Duration,
    ) -> usize {
        let running = self.of(JobState::Running).map(|(_, id)| id);
        let ids: Vec<_> = running.chain(self.single.get(key)).cloned().collect();
        let goes = |id: &&String| {
            let entry = self.jobs.get(*id);
            entry
                .is_some_and(|entry| entry.single && entry.job.key == key && is_older(entry.stored))
        };
        let older: Vec<_> = ids.iter().filter(goes).cloned().collect();
        older.iter().for_each(|id| drop(self.remove(id, now)));
        older.len()
    }

    /// Makes the jobs due whose leases have ended. A job that was taken too often without being
    /// settled is dead instead, and is returned with the number of these times.
    fn lapse(&mut self, now: Duration) -> Vec<(String, u64)> {
        let mut dead = Vec::new();
        while let Some(id) = self.due(JobState::Running, now)
            && let Some(entry) = self.jobs.get(&id)
        {
            let unsettled = entry.job.claim - entry.settled;
            if unsettled <= u64::from(entry.attempts) {
                self.set_state(&id, JobState::Waiting, now, now);
            } else {
                self.make_dead(&id, abandoned(unsettled), now);
                dead.push((id, unsettled));
            }
        }
        dead
    }

    /// Takes up to `limit` jobs that are due.
    fn take(&mut self, limit: usize, lease: Duration, now: Duration) -> Vec<Job> {
        let mut taken = Vec::new();
        while taken.len() < limit
            && let Some(due) = self.due(JobState::Waiting, now)
        {
            self.set_state(&due, JobState::Running, now, now + lease.min(FAR));
            if let Some(StoredJob { job, .. }) = self.jobs.get_mut(&due) {
                job.attempt += 1;
                job.claim += 1;
                taken.push(job.clone());
            }
        }
        taken
    }

    /// When a job is due next, or its lease ends.
    fn next_due(&self) -> Option<Duration> {
        let next = [JobState::Waiting, JobState::Running].map(|state| self.of(state).next());
        next.into_iter().flatten().map(|(at, _)| at).min()
    }

    fn keep(&mut self, job: &Job, lease: Duration, now: Duration) -> bool {
        let is_its = self.taken(job).is_some();
        if is_its {
            self.set_state(&job.id, JobState::Running, now, now + lease.min(FAR));
        }
        is_its
    }

    fn settle(&mut self, job: &Job, how: Settled, now: Duration) -> bool {
        let Some(entry) = self.taken(job) else { return false };
        entry.settled = job.claim;
        let is_busy = matches!(how, Settled::Busy { .. });
        entry.job.busy += u32::from(is_busy);
        if is_busy || how == Settled::Returned {
            entry.job.attempt = entry.job.attempt.saturating_sub(1);
        }
        match how {
            Settled::Done => drop(self.remove(&job.id, now)),
            Settled::Dead { error } => self.make_dead(&job.id, error, now),
            Settled::Returned => self.set_state(&job.id, JobState::Waiting, now, now),
            Settled::Again { delay, error } | Settled::Busy { delay, error } => {
                entry.error = Some(error);
                self.set_state(&job.id, JobState::Waiting, now, now + delay.min(FAR));
            }
        }
        true
    }

    fn list(&self, state: JobState, first: usize, limit: usize, now: Duration) -> Page {
        let listed = self.of(state).filter_map(|(_, id)| self.jobs.get(id));
        let jobs = listed.skip(first).take(limit).map(|entry| {
            let when = When::from_millis(millis(entry.at) - millis(now));
            let error = entry.error.clone();
            let job = entry.job.clone();
            let Job { function, id, arguments, key, attempt: attempts, busy, claim: _ } = job;
            JobInfo { function, id, arguments, key, attempts, busy, error, when }
        });
        Page { total: self.of(state).count(), jobs: jobs.collect() }
    }

    /// Makes a job that is not running due at once, with all its attempts.
    fn retry(&mut self, id: &str, now: Duration) -> bool {
        let Some(entry) = self.idle(id) else { return false };
        entry.restart();
        self.set_state(id, JobState::Waiting, now, now);
        true
    }

    /// Removes a job that is not running.
    fn remove_idle(&mut self, id: &str) -> bool {
        if self.idle(id).is_none() {
            return false;
        }
        self.unindex(id);
        // Its id is not remembered: who stores the job again after this has it stored.
        self.jobs.remove(id).is_some()
    }

    fn idle(&mut self, id: &str) -> Option<&mut StoredJob> {
        self.jobs.get_mut(id).filter(|entry| entry.state != JobState::Running)
    }

    /// The job that this worker has taken, also when its lease has ended and no other worker has
    /// taken it since. A single job is excluded then, because other callers may count on it.
    fn taken(&mut self, job: &Job) -> Option<&mut StoredJob> {
        let entry = self.jobs.get_mut(&job.id)?;
        let is_its_own = entry.job.claim == job.claim && entry.settled != job.claim;
        (is_its_own && (entry.state == JobState::Running || !entry.single)).then_some(entry)
    }

    fn set_state(&mut self, id: &str, state: JobState, now: Duration, at: Duration) {
        self.unindex(id);
        let Some(entry) = self.jobs.get_mut(id) else { return };
        if entry.single && state == JobState::Waiting {
            // Another single job that waits for the key stays in place of both.
            if let Some(other) = self.single.get(&entry.job.key).cloned() {
                let at = self.fold(id, &other, now).map_or(at, |its| at.min(its));
                return self.set_state(&other, state, now, at);
            }
            self.single.insert(entry.job.key.clone(), id.to_owned());
        }
        (entry.state, entry.at) = (state, at);
        self.times.insert((state, at, id.to_owned()));
    }

    /// Removes a job and merges it into another one. Returns when the other one is due. The result
    /// has the larger number of attempts, so that a job that always fails ends.
    fn fold(&mut self, id: &str, other: &str, now: Duration) -> Option<Duration> {
        let StoredJob { job, error, .. } = self.remove(id, now)?;
        let other = self.jobs.get_mut(other)?;
        other.job.attempt = other.job.attempt.max(job.attempt);
        other.job.busy = other.job.busy.max(job.busy);
        other.error = error.or(other.error.take());
        Some(other.at)
    }

    fn unindex(&mut self, id: &str) {
        let Some(entry) = self.jobs.get(id) else { return };
        self.times.remove(&(entry.state, entry.at, id.to_owned()));
        if self.single.get(&entry.job.key).is_some_and(|only| only == id) {
            self.single.remove(&entry.job.key);
        }
    }

    fn remove(&mut self, id: &str, now: Duration) -> Option<StoredJob> {
        self.unindex(id);
        self.remember(id.to_owned(), now);
        self.jobs.remove(id)
    }

    /// Has a job with this id not be stored for a while.
    fn remember(&mut self, id: String, now: Duration) {
        self.forget(now);
        self.removed.insert(id.clone());
        self.remembered.push_back((now + KNOWN, id));
    }

    /// Forgets the ids of jobs that were removed long ago.
    fn forget(&mut self, now: Duration) {
        while let Some((until, id)) = self.remembered.front()
            && *until <= now
        {
            self.removed.remove(id);
            self.remembered.pop_front();
        }
    }

    /// Makes a job dead, later than every other one.
    fn make_dead(&mut self, id: &str, error: String, now: Duration) {
        if let Some(entry) = self.jobs.get_mut(id) {
            entry.error = Some(error);
        }
        let last = self.of(JobState::Dead).next_back();
        let after_last = last.map_or(now, |(last, _)| last + Duration::from_nanos(1));
        self.set_state(id, JobState::Dead, now, after_last.max(now));
        if self.of(JobState::Dead).count() > DEAD_MAX
            && let Some(oldest) = self.due(JobState::Dead, Duration::MAX)
        {
            self.remove(&oldest, now);
        }
    }

    /// The jobs in one state, in the order of their times.
    fn of(&self, state: JobState) -> impl DoubleEndedIterator<Item = (Duration, &String)> {
        let first = (state, Duration::ZERO, String::new());
        // No job has this time.
        let end = (state, Duration::MAX, String::new());
        self.times.range(first..end).map(|(_, at, id)| (*at, id))
    }

    /// The first job in a state, if its time has come.
    fn due(&self, state: JobState, now: Duration) -> Option<String> {
        let first = self.of(state).next();
        first.filter(|(at, _)| *at <= now).map(|(_, id)| id.clone())
    }
}

fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}
