//! The calls of one function in memory, and the state of each.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use crate::jobs::call::{Job, JobState};
use crate::jobs::limits::{DEAD_MAX, abandoned};
use crate::value::random::{HashMap, HashSet};
use crate::value::time::Instant;

/// How long the ids of removed calls are remembered, as on a server.
const KNOWN: Duration = Duration::from_secs(30);

/// The calls of one function.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    pub(crate) calls: HashMap<String, Call>,
    /// When each waiting call is due, each running call's lease ends, or each dead letter was given
    /// up.
    times: BTreeSet<(JobState, Duration, String)>,
    /// The id of the waiting unique call of each key.
    pub(crate) unique: HashMap<String, String>,
    pub(crate) over: Over,
}

/// The ids of removed calls, and until when they are remembered.
#[derive(Debug, Default)]
pub(crate) struct Over {
    ids: HashSet<String>,
    until: VecDeque<(Instant, String)>,
}

impl Over {
    fn add(&mut self, id: &str) {
        self.forget();
        self.ids.insert(id.to_owned());
        self.until.push_back((Instant::now() + KNOWN, id.to_owned()));
    }

    pub(crate) fn has(&mut self, id: &str) -> bool {
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
pub(crate) struct Call {
    pub(crate) job: Job,
    pub(crate) state: JobState,
    pub(crate) at: Duration,
    pub(crate) unique: bool,
    /// How often the call may be taken without being settled, and once more.
    pub(crate) attempts: u32,
    /// The value of `job.taken` when it was settled last.
    pub(crate) settled: u64,
    pub(crate) error: Option<String>,
}

impl Queue {
    pub(crate) fn set_state(&mut self, id: &str, state: JobState, at: Duration) {
        self.unindex(id);
        let Some(call) = self.calls.get_mut(id) else { return };
        if call.unique && state == JobState::Waiting {
            // Another unique call that waits for the key stays in place of both.
            if let Some(other) = self.unique.get(&call.job.key).cloned() {
                let at = self.fold(id, &other).map_or(at, |its| at.min(its));
                return self.set_state(&other, state, at);
            }
            self.unique.insert(call.job.key.clone(), id.to_owned());
        }
        (call.state, call.at) = (state, at);
        self.times.insert((state, at, id.to_owned()));
    }

    /// Removes a call and merges it into another one. Returns when the other one is due. The result
    /// has the larger number of attempts, so that a call that always fails ends.
    fn fold(&mut self, id: &str, other: &str) -> Option<Duration> {
        let Call { job, error, .. } = self.remove(id)?;
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

    pub(crate) fn remove(&mut self, id: &str) -> Option<Call> {
        self.unindex(id);
        self.over.add(id);
        self.calls.remove(id)
    }

    /// Makes a call due whose lease has ended. A call that was taken too often without being
    /// settled becomes a dead letter instead, and the number of these times is returned.
    pub(crate) fn lapse(&mut self, id: &str, now: Duration) -> Option<u64> {
        let call = self.calls.get_mut(id)?;
        let unsettled = call.job.taken - call.settled;
        if unsettled <= u64::from(call.attempts) {
            self.set_state(id, JobState::Waiting, now);
            return None;
        }
        call.error = Some(abandoned(unsettled));
        self.make_dead(id, now);
        Some(unsettled)
    }

    /// Makes a call a dead letter, later than every other one.
    pub(crate) fn make_dead(&mut self, id: &str, now: Duration) {
        let last = self.of(JobState::Dead).next_back().map(|(at, _)| at);
        let at = last.map_or(now, |last| now.max(last + Duration::from_nanos(1)));
        self.set_state(id, JobState::Dead, at);
        if self.of(JobState::Dead).count() > DEAD_MAX
            && let Some((_, oldest)) = self.first(JobState::Dead)
        {
            self.remove(&oldest);
        }
    }

    /// Makes a call due at once, with all its attempts.
    pub(crate) fn retry(&mut self, id: &str, now: Duration) {
        if let Some(call) = self.calls.get_mut(id) {
            (call.job.attempt, call.job.busy) = (0, 0);
            // A worker that lost the call cannot settle it any more.
            call.job.taken += 1;
            call.settled = call.job.taken;
        }
        self.set_state(id, JobState::Waiting, now);
    }

    /// The calls in one state, in the order of their times.
    pub(crate) fn of(
        &self,
        state: JobState,
    ) -> impl DoubleEndedIterator<Item = (Duration, &String)> {
        let first = (state, Duration::ZERO, String::new());
        // No call has this time.
        let end = (state, Duration::MAX, String::new());
        self.times.range(first..end).map(|(_, at, id)| (*at, id))
    }

    pub(crate) fn first(&self, state: JobState) -> Option<(Duration, String)> {
        self.of(state).next().map(|(at, id)| (at, id.clone()))
    }

    pub(crate) fn due(&self, state: JobState, now: Duration) -> Option<String> {
        self.first(state).filter(|(at, _)| *at <= now).map(|(_, id)| id)
    }

    /// The call that this worker has taken, also when its lease has ended and no other worker has
    /// taken it since. A unique call is excluded then, because other callers may count on it.
    pub(crate) fn taken(&mut self, job: &Job) -> Option<&mut Call> {
        let call = self.calls.get_mut(&job.id)?;
        let is_its_own = call.job.taken == job.taken && call.settled != job.taken;
        (is_its_own && (call.state == JobState::Running || !call.unique)).then_some(call)
    }
}
