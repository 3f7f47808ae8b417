//! The calls of one function in memory, and the state of each. Pure: every time is an argument, and
//! counts from the same moment.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use crate::jobs::call::{Job, JobInfo, JobState, NewJob, Page, Settled, Stored};
use crate::jobs::limits::{DEAD_MAX, WAITING_MAX, abandoned, full};
use crate::value::error::LockError;
use crate::value::random::{HashMap, HashSet};

/// How long the ids of removed calls are remembered, as on a server.
const KNOWN: Duration = Duration::from_secs(30);
/// Longest delay. The queue on a server expires when it is not used for this time.
const FAR: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// The calls of one function.
#[derive(Default)]
pub(crate) struct Queue {
    calls: HashMap<String, Call>,
    /// When each waiting call is due, each running call's lease ends, or each dead letter was given
    /// up.
    times: BTreeSet<(JobState, Duration, String)>,
    /// The id of the waiting unique call of each key.
    unique: HashMap<String, String>,
    /// The ids of removed calls.
    removed: HashSet<String>,
    /// Until when each of them is remembered.
    remembered: VecDeque<(Duration, String)>,
}

struct Call {
    job: Job,
    state: JobState,
    at: Duration,
    unique: bool,
    /// How often the call may be taken without being settled, and once more.
    attempts: u32,
    /// The value of `job.taken` when it was settled last.
    settled: u64,
    error: Option<String>,
}

impl Queue {
    pub(crate) fn put(&mut self, new: NewJob, now: Duration) -> Result<Stored, LockError> {
        let NewJob { function, id, arguments, key, delay, unique, attempts } = new;
        let only = self.unique.get(&key).filter(|_| unique);
        if let Some(there) = self.calls.get(&id).or_else(|| self.calls.get(only?)) {
            return Ok(Stored { id: there.job.id.clone(), due: there.at.saturating_sub(now) });
        }
        self.forget(now);
        if self.removed.contains(&id) {
            return Ok(Stored { id, due: Duration::ZERO });
        }
        // Counts running calls as well, so the limit is not exact.
        if self.calls.len() >= WAITING_MAX + DEAD_MAX {
            return Err(full(&function));
        }
        let job = Job::new(function, id.clone(), arguments, key);
        let state = JobState::Waiting;
        let call = Call { job, state, at: now, unique, attempts, settled: 0, error: None };
        self.calls.insert(id.clone(), call);
        self.set_state(&id, state, now, delay);
        Ok(Stored { id, due: delay })
    }

    /// Makes the calls due whose leases have ended. A call that was taken too often without being
    /// settled becomes a dead letter instead, and is returned with the number of these times.
    pub(crate) fn lapse(&mut self, now: Duration) -> Vec<(String, u64)> {
        let mut dead = Vec::new();
        while let Some(id) = self.due(JobState::Running, now)
            && let Some(call) = self.calls.get(&id)
        {
            let unsettled = call.job.taken - call.settled;
            if unsettled <= u64::from(call.attempts) {
                self.set_state(&id, JobState::Waiting, now, Duration::ZERO);
            } else {
                self.make_dead(&id, abandoned(unsettled), now);
                dead.push((id, unsettled));
            }
        }
        dead
    }

    /// Takes up to `most` calls that are due.
    pub(crate) fn take(&mut self, most: usize, lease: Duration, now: Duration) -> Vec<Job> {
        let mut taken = Vec::new();
        while taken.len() < most
            && let Some(due) = self.due(JobState::Waiting, now)
        {
            self.set_state(&due, JobState::Running, now, lease);
            if let Some(Call { job, .. }) = self.calls.get_mut(&due) {
                job.attempt += 1;
                job.taken += 1;
                taken.push(job.clone());
            }
        }
        taken
    }

    /// When a call is due next, or its lease ends.
    pub(crate) fn next_due(&self) -> Option<Duration> {
        let next = [JobState::Waiting, JobState::Running].map(|state| self.of(state).next());
        next.into_iter().flatten().map(|(at, _)| at).min()
    }

    pub(crate) fn keep(&mut self, job: &Job, lease: Duration, now: Duration) -> bool {
        let is_its = self.taken(job).is_some();
        if is_its {
            self.set_state(&job.id, JobState::Running, now, lease);
        }
        is_its
    }

    pub(crate) fn settle(&mut self, job: &Job, how: Settled, now: Duration) -> bool {
        let Some(call) = self.taken(job) else { return false };
        call.settled = job.taken;
        let is_busy = matches!(how, Settled::Busy { .. });
        call.job.busy += u32::from(is_busy);
        if is_busy || how == Settled::Untried {
            call.job.attempt = call.job.attempt.saturating_sub(1);
        }
        match how {
            Settled::Done => drop(self.remove(&job.id, now)),
            Settled::Dead { error } => self.make_dead(&job.id, error, now),
            Settled::Untried => self.set_state(&job.id, JobState::Waiting, now, Duration::ZERO),
            Settled::Again { delay, error } | Settled::Busy { delay, error } => {
                call.error = Some(error);
                self.set_state(&job.id, JobState::Waiting, now, delay);
            }
        }
        true
    }

    pub(crate) fn list(&self, state: JobState, first: usize, most: usize, now: Duration) -> Page {
        let listed = self.of(state).filter_map(|(_, id)| self.calls.get(id));
        let jobs = listed.skip(first).take(most).map(|call| {
            let info = JobInfo::new(call.job.clone(), millis(call.at) - millis(now));
            JobInfo { error: call.error.clone(), ..info }
        });
        Page { total: self.of(state).count(), jobs: jobs.collect() }
    }

    /// Makes a call that is not running due at once, with all its attempts.
    pub(crate) fn retry(&mut self, id: &str, now: Duration) -> bool {
        let Some(call) = self.idle(id) else { return false };
        (call.job.attempt, call.job.busy) = (0, 0);
        // A worker that lost the call cannot settle it any more.
        call.job.taken += 1;
        call.settled = call.job.taken;
        self.set_state(id, JobState::Waiting, now, Duration::ZERO);
        true
    }

    /// Removes a call that is not running.
    pub(crate) fn remove_idle(&mut self, id: &str, now: Duration) -> bool {
        self.idle(id).is_some() && self.remove(id, now).is_some()
    }

    fn idle(&mut self, id: &str) -> Option<&mut Call> {
        self.calls.get_mut(id).filter(|call| call.state != JobState::Running)
    }

    /// The call that this worker has taken, also when its lease has ended and no other worker has
    /// taken it since. A unique call is excluded then, because other callers may count on it.
    fn taken(&mut self, job: &Job) -> Option<&mut Call> {
        let call = self.calls.get_mut(&job.id)?;
        let is_its_own = call.job.taken == job.taken && call.settled != job.taken;
        (is_its_own && (call.state == JobState::Running || !call.unique)).then_some(call)
    }

    fn set_state(&mut self, id: &str, state: JobState, now: Duration, delay: Duration) {
        self.unindex(id);
        let Some(call) = self.calls.get_mut(id) else { return };
        let at = now + delay.min(FAR);
        if call.unique && state == JobState::Waiting {
            // Another unique call that waits for the key stays in place of both.
            if let Some(other) = self.unique.get(&call.job.key).cloned() {
                let at = self.fold(id, &other, now).map_or(at, |its| at.min(its));
                return self.set_state(&other, state, now, at.saturating_sub(now));
            }
            self.unique.insert(call.job.key.clone(), id.to_owned());
        }
        (call.state, call.at) = (state, at);
        self.times.insert((state, at, id.to_owned()));
    }

    /// Removes a call and merges it into another one. Returns when the other one is due. The result
    /// has the larger number of attempts, so that a call that always fails ends.
    fn fold(&mut self, id: &str, other: &str, now: Duration) -> Option<Duration> {
        let Call { job, error, .. } = self.remove(id, now)?;
        let other = self.calls.get_mut(other)?;
        other.job.attempt = other.job.attempt.max(job.attempt);
        other.job.busy = other.job.busy.max(job.busy);
        other.error = error.or(other.error.take());
        Some(other.at)
    }

    fn unindex(&mut self, id: &str) {
        let Some(call) = self.calls.get(id) else { return };
        self.times.remove(&(call.state, call.at, id.to_owned()));
        if self.unique.get(&call.job.key).is_some_and(|only| only == id) {
            self.unique.remove(&call.job.key);
        }
    }

    fn remove(&mut self, id: &str, now: Duration) -> Option<Call> {
        self.unindex(id);
        self.forget(now);
        self.removed.insert(id.to_owned());
        self.remembered.push_back((now + KNOWN, id.to_owned()));
        self.calls.remove(id)
    }

    /// Forgets the ids of calls that were removed long ago.
    fn forget(&mut self, now: Duration) {
        while let Some((until, id)) = self.remembered.front()
            && *until <= now
        {
            self.removed.remove(id);
            self.remembered.pop_front();
        }
    }

    /// Makes a call a dead letter, later than every other one.
    fn make_dead(&mut self, id: &str, error: String, now: Duration) {
        if let Some(call) = self.calls.get_mut(id) {
            call.error = Some(error);
        }
        let last = self.of(JobState::Dead).next_back();
        let after_last = last.map_or(now, |(last, _)| last + Duration::from_nanos(1));
        self.set_state(id, JobState::Dead, now, after_last.saturating_sub(now));
        if self.of(JobState::Dead).count() > DEAD_MAX
            && let Some(oldest) = self.due(JobState::Dead, Duration::MAX)
        {
            self.remove(&oldest, now);
        }
    }

    /// The calls in one state, in the order of their times.
    fn of(&self, state: JobState) -> impl DoubleEndedIterator<Item = (Duration, &String)> {
        let first = (state, Duration::ZERO, String::new());
        // No call has this time.
        let end = (state, Duration::MAX, String::new());
        self.times.range(first..end).map(|(_, at, id)| (*at, id))
    }

    /// The first call in a state, if its time has come.
    fn due(&self, state: JobState, now: Duration) -> Option<String> {
        let first = self.of(state).next();
        first.filter(|(at, _)| *at <= now).map(|(_, id)| id.clone())
    }
}

fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}
