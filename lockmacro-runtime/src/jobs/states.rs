//! The calls of one function in memory, and in which state each of them is.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::time::Duration;

use tokio::time::Instant;

use crate::jobs::call::{Job, JobState};
use crate::jobs::limits::{DEAD_MAX, abandoned};

/// For how long the ids of calls that are over are known, as on a server.
const KNOWN: Duration = Duration::from_secs(30);

/// The calls of one function.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    pub(crate) calls: HashMap<String, Call>,
    /// When each is due, goes back to those who wait, or was given up.
    times: BTreeSet<(JobState, Duration, String)>,
    /// The only ones that wait for their keys.
    pub(crate) unique: HashMap<String, String>,
    pub(crate) over: Over,
}

/// Calls that are over, and when nobody needs to know any more.
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
    /// How often it may be taken without an end, and once more.
    pub(crate) attempts: u32,
    /// The end of which turn was told.
    pub(crate) told: u64,
    pub(crate) error: Option<String>,
}

impl Queue {
    pub(crate) fn place(&mut self, id: &str, state: JobState, at: Duration) {
        self.displace(id);
        let Some(call) = self.calls.get_mut(id) else { return };
        if call.unique && state == JobState::Waiting {
            // Where another one waits for the key, that one stands for both.
            if let Some(other) = self.unique.get(&call.job.key).cloned() {
                let at = self.fold(id, &other).map_or(at, |its| at.min(its));
                return self.place(&other, state, at);
            }
            self.unique.insert(call.job.key.clone(), id.to_owned());
        }
        (call.state, call.at) = (state, at);
        self.times.insert((state, at, id.to_owned()));
    }

    /// Makes one call of two; tells when the other one is due. It has failed as often as either, so that one
    /// that always fails comes to an end.
    fn fold(&mut self, id: &str, other: &str) -> Option<Duration> {
        let Call { job, error, .. } = self.remove(id)?;
        let other = self.calls.get_mut(other)?;
        other.job.attempt = other.job.attempt.max(job.attempt);
        other.job.busy = other.job.busy.max(job.busy);
        other.error = error.or(other.error.take());
        Some(other.at)
    }

    fn displace(&mut self, id: &str) {
        let Some(call) = self.calls.get(id) else { return };
        self.times.remove(&(call.state, call.at, id.to_owned()));
        if self.unique.get(&call.job.key).is_some_and(|only| only == id) {
            self.unique.remove(&call.job.key);
        }
    }

    pub(crate) fn remove(&mut self, id: &str) -> Option<Call> {
        self.displace(id);
        self.over.add(id);
        self.calls.remove(id)
    }

    /// Has a call wait again whose worker was not heard of, unless that was so too often: then it
    /// is given up, after how many times is told.
    pub(crate) fn lapse(&mut self, id: &str, now: Duration) -> Option<u64> {
        let call = self.calls.get_mut(id)?;
        let untold = call.job.taken - call.told;
        if untold <= u64::from(call.attempts) {
            self.place(id, JobState::Waiting, now);
            return None;
        }
        call.error = Some(abandoned(untold));
        self.give_up(id, now);
        Some(untold)
    }

    /// Makes a call a dead letter.
    pub(crate) fn give_up(&mut self, id: &str, now: Duration) {
        self.place(id, JobState::Dead, now);
        if self.of(JobState::Dead).count() > DEAD_MAX
            && let Some((_, oldest)) = self.first(JobState::Dead)
        {
            self.remove(&oldest);
        }
    }

    /// Has a call tried again from the start.
    pub(crate) fn retry(&mut self, id: &str, now: Duration) {
        if let Some(call) = self.calls.get_mut(id) {
            (call.job.attempt, call.job.busy) = (0, 0);
            // A worker that had it, and was not heard of, is late now.
            call.job.taken += 1;
            call.told = call.job.taken;
        }
        self.place(id, JobState::Waiting, now);
    }

    /// Those in one state, in the order of their times.
    pub(crate) fn of(&self, state: JobState) -> impl Iterator<Item = (Duration, &String)> {
        let all = self.times.range((state, Duration::ZERO, String::new())..);
        all.take_while(move |(its, ..)| *its == state).map(|(_, at, id)| (*at, id))
    }

    pub(crate) fn first(&self, state: JobState) -> Option<(Duration, String)> {
        self.of(state).next().map(|(at, id)| (at, id.clone()))
    }

    pub(crate) fn due(&self, state: JobState, now: Duration) -> Option<String> {
        self.first(state).filter(|(at, _)| *at <= now).map(|(_, id)| id)
    }

    /// A call that this worker has, or that went back because the worker was not heard of. In the place
    /// of the only one of a key it is somebody else's by then.
    pub(crate) fn taken(&mut self, job: &Job) -> Option<&mut Call> {
        let call = self.calls.get_mut(&job.id)?;
        let its = call.job.taken == job.taken && call.told != job.taken;
        (its && (call.state == JobState::Running || !call.unique)).then_some(call)
    }
}
