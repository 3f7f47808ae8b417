//! A queue of one's own, written from nothing but the documentation of `JobQueue`.

use std::time::Instant;

use lockmacro_runtime::defer::{
    Job, JobFuture, JobInfo, JobQueue, Keep, NewJob, Page, Settled, StopWaiting, Stored,
    TakeOptions, When,
};
use lockmacro_tests::{Server, log};
use tokio::sync::Notify;

use super::*;

/// The capacity of the queue.
const MOST: usize = 3;

/// The calls of all functions, in one list.
#[derive(Debug, Default)]
struct Shelf {
    calls: Mutex<Vec<Call>>,
    /// Ids of calls that are over.
    over: Mutex<Vec<String>>,
    changed: Notify,
}

#[derive(Debug)]
struct Call {
    job: Job,
    state: JobState,
    at: Instant,
    since: Instant,
    keep: Keep,
    error: Option<String>,
}

impl Shelf {
    fn put_now(&self, new: NewJob) -> Result<Stored, LockError> {
        let (mut calls, now) = (self.calls.lock().unwrap(), Instant::now());
        if self.over.lock().unwrap().contains(&new.id) {
            return Ok(Stored { id: new.id, due: Duration::ZERO });
        }
        let enough = |call: &Call| {
            let single = new.keep != Keep::All && call.keep != Keep::All;
            let same = single && call.job.key == new.key;
            let waits = call.state == JobState::Waiting && call.job.function == new.function;
            call.job.id == new.id || (same && waits)
        };
        if let Some(there) = calls.iter_mut().find(|call| enough(call)) {
            if let Keep::Latest { at_most } = new.keep
                && there.job.id != new.id
            {
                (there.job.arguments, there.job.attempt, there.job.busy) = (new.arguments, 0, 0);
                let longest = there.since + at_most.unwrap_or_default();
                there.at = there.at.max(longest.min(now + new.delay));
                self.over.lock().unwrap().push(new.id);
            }
            let due = there.at.saturating_duration_since(now);
            return Ok(Stored { id: there.job.id.clone(), due });
        }
        if calls.len() == MOST {
            return Err(LockError::unavailable("the shelf is full"));
        }
        let NewJob { function, id, arguments, key, delay, keep, .. } = new;
        let job = Job { function, id: id.clone(), arguments, key, attempt: 0, busy: 0, claim: 0 };
        let (state, at) = (JobState::Waiting, now + delay);
        calls.push(Call { job, state, at, since: now, keep, error: None });
        self.changed.notify_waiters();
        Ok(Stored { id, due: delay })
    }

    /// The calls that are due, and when to look again.
    fn take_now(&self, order: &TakeOptions) -> (Vec<Job>, Instant) {
        let (mut calls, now) = (self.calls.lock().unwrap(), Instant::now());
        calls.sort_by_key(|call| call.at);
        let (mut taken, mut again) = (Vec::new(), now + LONG_TTL);
        for call in calls.iter_mut() {
            if call.state == JobState::Dead || !order.functions.contains(&call.job.function) {
                continue;
            }
            if call.at > now {
                again = again.min(call.at);
            } else if taken.len() < order.limit {
                call.job.attempt += 1;
                call.job.claim += 1;
                (call.state, call.at) = (JobState::Running, now + order.lease);
                taken.push(call.job.clone());
            }
        }
        (taken, again)
    }

    /// Changes a call, if there is one such; `None` of it removes it.
    fn change(
        &self,
        is_it: impl Fn(&Call) -> bool,
        change: impl FnOnce(&mut Call) -> Option<()>,
    ) -> JobFuture<'_, bool> {
        let mut calls = self.calls.lock().unwrap();
        let place = calls.iter().position(is_it);
        if let Some(place) = place
            && change(&mut calls[place]).is_none()
        {
            self.over.lock().unwrap().push(calls.remove(place).job.id);
        }
        self.changed.notify_waiters();
        Box::pin(async move { Ok(place.is_some()) })
    }

    /// Changes a call that a worker has.
    fn its(
        &self,
        job: Job,
        change: impl FnOnce(&mut Call) -> Option<()> + 'static,
    ) -> JobFuture<'_, bool> {
        let turn = |job: &Job| (job.function.clone(), job.id.clone(), job.claim);
        let is_it =
            move |call: &Call| call.state == JobState::Running && turn(&call.job) == turn(&job);
        self.change(is_it, change)
    }
}

/// Finds a call that no worker has.
fn unless_it_runs(function: Arc<str>, id: String) -> impl Fn(&Call) -> bool {
    move |call| {
        let is_it = (&call.job.function, &call.job.id) == (&function, &id);
        is_it && call.state != JobState::Running
    }
}

impl JobQueue for Shelf {
    fn put(&self, job: NewJob) -> JobFuture<'_, Stored> {
        let stored = self.put_now(job);
        Box::pin(async { stored })
    }

    fn take<'a>(
        &'a self,
        order: TakeOptions,
        mut enough: StopWaiting<'a>,
    ) -> JobFuture<'a, Vec<Job>> {
        Box::pin(async move {
            loop {
                let changed = self.changed.notified();
                let (taken, again) = self.take_now(&order);
                if !taken.is_empty() {
                    return Ok(taken);
                }
                tokio::select! {
                    () = &mut enough => return Ok(taken),
                    () = changed => {}
                    () = tokio::time::sleep_until(again.into()) => {}
                }
            }
        })
    }

    fn keep(&self, job: Job, lease: Duration) -> JobFuture<'_, bool> {
        self.its(job, move |call| {
            call.at = Instant::now() + lease;
            Some(())
        })
    }

    fn settle(&self, job: Job, how: Settled) -> JobFuture<'_, bool> {
        self.its(job, move |call| {
            let now = Instant::now();
            (call.state, call.at) = (JobState::Waiting, now);
            match how {
                Settled::Done => return None,
                Settled::Returned => call.job.attempt -= 1,
                Settled::Again { delay, error, .. } => {
                    (call.at, call.error) = (now + delay, Some(error))
                }
                Settled::Busy { delay, error, .. } => {
                    call.job.attempt -= 1;
                    call.job.busy += 1;
                    (call.at, call.error) = (now + delay, Some(error));
                }
                Settled::Dead { error, .. } => {
                    (call.state, call.error) = (JobState::Dead, Some(error))
                }
            }
            Some(())
        })
    }

    fn list(
        &self,
        of: Arc<str>,
        state: JobState,
        first: usize,
        most: usize,
    ) -> JobFuture<'_, Page> {
        let (mut calls, now) = (self.calls.lock().unwrap(), Instant::now());
        calls.sort_by_key(|call| call.at);
        let when = |at: Instant| match at.checked_duration_since(now) {
            Some(left) => When::In(left),
            None => When::Ago(now - at),
        };
        let listed = calls.iter().filter(|call| call.job.function == of && call.state == state);
        let jobs = listed.clone().skip(first).take(most).map(|call| {
            let (error, when, job) = (call.error.clone(), when(call.at), call.job.clone());
            let Job { function, id, arguments, key, attempt: attempts, busy, claim: _ } = job;
            JobInfo { function, id, arguments, key, attempts, busy, error, when }
        });
        let page = Page { total: listed.clone().count(), jobs: jobs.collect() };
        Box::pin(async { Ok(page) })
    }

    fn retry(&self, function: Arc<str>, id: String) -> JobFuture<'_, bool> {
        self.change(unless_it_runs(function, id), |call| {
            (call.state, call.at) = (JobState::Waiting, Instant::now());
            (call.job.attempt, call.job.busy) = (0, 0);
            Some(())
        })
    }

    fn remove(&self, function: Arc<str>, id: String) -> JobFuture<'_, bool> {
        self.change(unless_it_runs(function, id), |_| None)
    }
}

#[on(memory, redis, postgres, both_runtimes)]
async fn a_custom_queue_keeps_the_calls(backend: &Backend) {
    let shelf = Arc::new(Shelf::default());
    let plugged_in = || {
        let shelf: Arc<dyn JobQueue> = shelf.clone();
        backend.manager_from(patient().job_queue(shelf))
    };
    let (locks, other, calls) = (plugged_in().await, plugged_in().await, Calls::default());
    let function = noting("f", &calls);
    let working = start(&other, &function);
    put(&locks, &function, 1).await;
    calls.reach(1).await;
    nothing_is_left(&locks, "f").await;

    // A call that fails is tried again, given up, and retried by a person.
    let fails = Arc::new(Mutex::new(true));
    let still = Arc::clone(&fails);
    let failing = DeferredFn::new("g", (argument("number"),), move |(_,): (u64,)| {
        let fails = *still.lock().unwrap();
        async move { if fails { Err("out of stock") } else { Ok(()) } }
    });
    let failing = failing.delay(SHORT_DELAY).attempts(3);
    let also_working = start(&other, &failing);
    let id = put(&locks, &failing, 2).await;
    let dead = dead_job(&locks, "g").await;
    assert_eq!((dead.attempts, dead.error.as_deref()), (3, Some("out of stock")));
    assert!(locks.job_queue().retry("g".into(), id).await.unwrap());
    dead_job(&locks, "g").await;
    *fails.lock().unwrap() = false;
    assert_eq!(locks.job_queue().retry_dead("g".into(), 10).await, Ok(1));
    nothing_is_left(&locks, "g").await;
    assert_eq!(locks.job_queue().remove_dead("g".into(), 10).await, Ok(0));

    // Calls that are alike are one, and a full queue says so.
    let key = backend.key("order:1");
    let held = hold(&locks, &key).await;
    let later = async |function: &DeferredFn<(u64,)>, number: u64| {
        defer(&locks, &function.clone().delay(LONG_TTL), &key, (number,)).await
    };
    for _click in 0..10 {
        let deferred = later(&function.clone().unique(), 3).await;
        assert!(matches!(deferred, LockError::Deferred { .. }), "{deferred:?}");
    }
    for number in 1..MOST as u64 {
        assert!(matches!(later(&function, number).await, LockError::Deferred { .. }));
    }
    let full = later(&function, 9).await;
    let LockError::Unavailable { detail, .. } = full else { panic!("{full:?}") };
    assert_eq!(detail, "the shelf is full");
    assert_eq!(count(&locks, "f", JobState::Waiting).await, MOST);
    held.release().await.unwrap();
    ends(&other, working).await;
    also_working.await.unwrap().unwrap();
}

#[tokio::test]
async fn calls_can_be_kept_on_another_server_than_the_locks() {
    let (here, there) = (Server::start(), Server::start());
    let keeper = connect(&there).await;
    let builder = patient().job_queue(keeper.job_queue());
    let (locks, calls) = (builder.connect(&here.url()).await.unwrap(), Calls::default());
    let function = noting("f", &calls);
    put(&locks, &function, 1).await;
    assert_eq!(count(&keeper, "f", JobState::Waiting).await, 1);
    assert!(!here.admin().keys().iter().any(|key| key.contains("jobs")));
    let working = start(&locks, &function);
    calls.reach(1).await;
    nothing_is_left(&keeper, "f").await;
    ends(&locks, working).await;
}

/// A Redlock has no queue of its own.
#[tokio::test]
async fn a_redlock_can_be_given_a_queue() {
    a_custom_queue_keeps_the_calls(&Backend::redlock()).await;
}

/// That server may be lost by itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outage_of_the_server_of_the_queue_is_logged_with_its_address() {
    log::start();
    let (locks_at, mut calls_at) = (Server::start(), Server::start());
    let builder = || LockManager::builder().timeout(SHORT_DELAY * 5);
    let calls = builder().connect(&calls_at.url()).await.expect("there");
    let locks = builder().job_queue(calls.job_queue()).connect(&locks_at.url()).await;
    let locks = locks.expect("there");
    let function = noting("counted", &Calls::default());
    let working = start(&locks, &function);
    count(&locks, "counted", JobState::Waiting).await;
    calls_at.kill();
    let place = format!("127.0.0.1:{}", calls_at.port());
    let lines =
        |words: &str| log::lines(|line| line.contains(words) && line.contains(&place)).len();
    eventually("a worker could not take calls", TEST_TIMEOUT, async || {
        lines("jobs could not be taken") > 1
    })
    .await;
    calls_at.restart();
    eventually("it is back", TEST_TIMEOUT, async || lines("lock server back") == 1).await;
    assert_eq!(lines("lock server down"), 1);
    ends(&locks, working).await;
}
