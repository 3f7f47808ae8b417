//! The deferred calls of `memory://`: of one process, with the meaning of a server.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::future::{pending, ready};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::select;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::{
    Answer, DEAD_MAX, Deferrer, Enough, Job, JobInfo, JobState, NewJob, Order, Page, Settled,
    Stored, WAITING_MAX, full,
};
use crate::error::LockError;

/// For how long the ids of calls that are over are known, as on a server.
const KNOWN: Duration = Duration::from_secs(30);

/// Clones are the same calls.
#[derive(Debug, Clone)]
pub(crate) struct MemoryJobs(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// What times are counted from.
    start: Instant,
    queues: Mutex<HashMap<Arc<str>, Queue>>,
    /// A call may be due earlier than those before.
    changed: Notify,
}

/// The calls of one function.
#[derive(Debug, Default)]
struct Queue {
    calls: HashMap<String, Call>,
    /// When each is due, goes back to those who wait, or was given up.
    times: BTreeSet<(JobState, Duration, String)>,
    /// The only ones that wait for their keys.
    unique: HashMap<String, String>,
    over: Over,
}

/// Calls that are over, and when nobody needs to know any more.
#[derive(Debug, Default)]
struct Over {
    ids: HashSet<String>,
    until: VecDeque<(Instant, String)>,
}

impl Over {
    fn add(&mut self, id: &str) {
        self.forget();
        self.ids.insert(id.to_owned());
        self.until.push_back((Instant::now() + KNOWN, id.to_owned()));
    }

    fn has(&mut self, id: &str) -> bool {
        self.forget();
        self.ids.contains(id)
    }

    fn forget(&mut self) {
        let now = Instant::now();
        while self.until.front().is_some_and(|(until, _)| *until <= now) {
            if let Some((_, id)) = self.until.pop_front() {
                self.ids.remove(&id);
            }
        }
    }
}

#[derive(Debug)]
struct Call {
    job: Job,
    state: JobState,
    at: Duration,
    unique: bool,
    /// The end of which turn was told.
    told: u64,
    error: Option<String>,
}

impl Queue {
    fn place(&mut self, id: &str, state: JobState, at: Duration) {
        self.displace(id);
        let Some(call) = self.calls.get_mut(id) else { return };
        if call.unique && state == JobState::Waiting {
            // Where another one waits for the key, that one stands for both.
            if let Some(other) = self.unique.get(&call.job.key).cloned() {
                self.remove(id);
                let its = self.calls.get(&other).map_or(at, |other| other.at);
                return self.place(&other, state, at.min(its));
            }
            self.unique.insert(call.job.key.clone(), id.to_owned());
        }
        (call.state, call.at) = (state, at);
        self.times.insert((state, at, id.to_owned()));
    }

    fn displace(&mut self, id: &str) {
        let Some(call) = self.calls.get(id) else { return };
        self.times.remove(&(call.state, call.at, id.to_owned()));
        if self.unique.get(&call.job.key).is_some_and(|only| only == id) {
            self.unique.remove(&call.job.key);
        }
    }

    fn remove(&mut self, id: &str) {
        self.displace(id);
        self.calls.remove(id);
        self.over.add(id);
    }

    /// Those in one state, in the order of their times.
    fn of(&self, state: JobState) -> impl Iterator<Item = (Duration, &String)> {
        let all = self.times.range((state, Duration::ZERO, String::new())..);
        all.take_while(move |(its, ..)| *its == state).map(|(_, at, id)| (*at, id))
    }

    fn first(&self, state: JobState) -> Option<(Duration, String)> {
        self.of(state).next().map(|(at, id)| (at, id.clone()))
    }

    fn due(&self, state: JobState, now: Duration) -> Option<String> {
        self.first(state).filter(|(at, _)| *at <= now).map(|(_, id)| id)
    }

    /// A call that this worker has, or that went back because the worker was not heard of. In the place
    /// of the only one of a key it is somebody else's by then.
    fn taken(&mut self, job: &Job) -> Option<&mut Call> {
        let call = self.calls.get_mut(&job.id)?;
        let its = call.job.taken == job.taken && call.told != job.taken;
        (its && (call.state == JobState::Running || !call.unique)).then_some(call)
    }
}

impl MemoryJobs {
    pub(crate) fn new() -> Self {
        let (queues, changed) = (Mutex::default(), Notify::new());
        Self(Arc::new(Inner { start: Instant::now(), queues, changed }))
    }

    fn now(&self) -> Duration {
        self.0.start.elapsed()
    }

    fn queues(&self) -> MutexGuard<'_, HashMap<Arc<str>, Queue>> {
        // Nothing that runs under this mutex leaves the calls half changed.
        self.0.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put_now(&self, new: NewJob) -> Result<Stored, LockError> {
        let NewJob { function, id, arguments, key, delay, unique } = new;
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
        // Those that are worked on count as well: it is a bound and no promise.
        if queue.calls.len() >= WAITING_MAX + DEAD_MAX {
            return Err(full(&function));
        }
        let job = Job { function, id: id.clone(), arguments, key, attempt: 0, taken: 0 };
        let (state, at) = (JobState::Waiting, now + delay);
        queue.calls.insert(id.clone(), Call { job, state, at, unique, told: 0, error: None });
        queue.place(&id, state, at);
        drop(queues);
        self.0.changed.notify_waiters();
        Ok(Stored { id, due: delay })
    }

    /// Takes what is due, and tells when to look again.
    fn take_now(&self, order: &Order) -> (Vec<Job>, Option<Duration>) {
        let now = self.now();
        let mut queues = self.queues();
        let (mut taken, mut again) = (Vec::new(), None);
        for function in &order.functions {
            let Some(queue) = queues.get_mut(function) else { continue };
            while let Some(lapsed) = queue.due(JobState::Running, now) {
                queue.place(&lapsed, JobState::Waiting, now);
            }
            while taken.len() < order.most
                && let Some(due) = queue.due(JobState::Waiting, now)
            {
                queue.place(&due, JobState::Running, now + order.lease);
                if let Some(call) = queue.calls.get_mut(&due) {
                    call.job.attempt += 1;
                    call.job.taken += 1;
                    taken.push(call.job.clone());
                }
            }
            let next = [JobState::Waiting, JobState::Running].map(|state| queue.first(state));
            again = again.into_iter().chain(next.into_iter().flatten().map(|(at, _)| at)).min();
        }
        (taken, again)
    }

    fn settle_now(&self, job: &Job, how: Settled) -> bool {
        let now = self.now();
        let mut queues = self.queues();
        let Some(queue) = queues.get_mut(&job.function) else { return false };
        let Some(call) = queue.taken(job) else { return false };
        call.told = job.taken;
        match how {
            Settled::Done => queue.remove(&job.id),
            Settled::Again { delay, error } => {
                call.error = Some(error);
                queue.place(&job.id, JobState::Waiting, now + delay);
            }
            Settled::Back => {
                call.job.attempt = call.job.attempt.saturating_sub(1);
                queue.place(&job.id, JobState::Waiting, now);
            }
            Settled::Dead { error } => {
                call.error = Some(error);
                queue.place(&job.id, JobState::Dead, now);
                if queue.of(JobState::Dead).count() > DEAD_MAX
                    && let Some((_, oldest)) = queue.first(JobState::Dead)
                {
                    queue.remove(&oldest);
                }
            }
        }
        drop(queues);
        self.0.changed.notify_waiters();
        true
    }

    /// Does something to a call that nobody works on.
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

    fn take<'a>(&'a self, order: Order, mut enough: Enough<'a>) -> Answer<'a, Vec<Job>> {
        Box::pin(async move {
            loop {
                // Registered before looking: a change in between is heard.
                let mut changed = std::pin::pin!(self.0.changed.notified());
                changed.as_mut().enable();
                let (taken, again) = self.take_now(&order);
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
                    () = &mut enough => return Ok(taken),
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
                queue.place(&job.id, JobState::Running, self.now() + lease);
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
        let jobs = listed.skip(first).take(most).map(|call| JobInfo {
            function: Arc::clone(&function),
            id: call.job.id.clone(),
            arguments: call.job.arguments.clone(),
            key: call.job.key.clone(),
            attempts: call.job.attempt,
            error: call.error.clone(),
            in_millis: signed(call.at) - signed(now),
        });
        let page = Page { total: queue.of(state).count(), jobs: jobs.collect() };
        Box::pin(ready(Ok(page)))
    }

    fn retry(&self, function: Arc<str>, id: String) -> Answer<'_, bool> {
        let now = self.now();
        let retried = self.amend(&function, &id, |queue| {
            if let Some(call) = queue.calls.get_mut(&id) {
                call.job.attempt = 0;
                // A worker that had it, and was not heard of, is late now.
                call.job.taken += 1;
            }
            queue.place(&id, JobState::Waiting, now);
        });
        Box::pin(ready(Ok(retried)))
    }

    fn remove(&self, function: Arc<str>, id: String) -> Answer<'_, bool> {
        Box::pin(ready(Ok(self.amend(&function, &id, |queue| queue.remove(&id)))))
    }
}

fn signed(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}
