//! Ends of calls that cannot be reported at once.

use std::future::pending;
use std::sync::atomic::AtomicUsize;

use lockmacro_runtime::defer::{
    Job, JobFuture, JobQueue, NewJob, Page, Settled, StopWaiting, Stored, TakeOptions,
};
use tokio::sync::watch;
use tokio::time::Instant;

use super::*;

/// The lease of a worker by default.
const LEASE: Duration = Duration::from_secs(30);

/// Calls that are kept in memory, whose ends are not taken note of for a while.
#[derive(Debug)]
struct LateEnds {
    calls: Arc<dyn JobQueue>,
    /// So often their lease is made longer before that.
    deaf_for: usize,
    /// How often it was since the first end that was reported.
    kept: Mutex<Option<usize>>,
    /// How many ends were reported in vain.
    in_vain: AtomicUsize,
}

impl JobQueue for LateEnds {
    fn keep(&self, job: Job, lease: Duration) -> JobFuture<'_, bool> {
        if let Some(kept) = &mut *self.kept.lock().unwrap() {
            *kept += 1;
        }
        self.calls.keep(job, lease)
    }

    fn settle(&self, job: Job, how: Settled) -> JobFuture<'_, bool> {
        if *self.kept.lock().unwrap().get_or_insert(0) < self.deaf_for {
            self.in_vain.fetch_add(1, Ordering::Relaxed);
            let error = LockError::unavailable("it is deaf");
            return Box::pin(async { Err(error) });
        }
        self.calls.settle(job, how)
    }

    fn put(&self, job: NewJob) -> JobFuture<'_, Stored> {
        self.calls.put(job)
    }

    fn take<'a>(&'a self, order: TakeOptions, enough: StopWaiting<'a>) -> JobFuture<'a, Vec<Job>> {
        self.calls.take(order, enough)
    }

    fn list(
        &self,
        of: Arc<str>,
        state: JobState,
        first: usize,
        most: usize,
    ) -> JobFuture<'_, Page> {
        self.calls.list(of, state, first, most)
    }

    fn retry(&self, function: Arc<str>, id: String) -> JobFuture<'_, bool> {
        self.calls.retry(function, id)
    }

    fn remove(&self, function: Arc<str>, id: String) -> JobFuture<'_, bool> {
        self.calls.remove(function, id)
    }
}

/// Calls in memory whose ends are not taken note of until they were kept so often.
fn deaf(deaf_for: usize) -> (LockManager, Arc<LateEnds>) {
    let calls = LockManager::isolated_memory().job_queue();
    let (kept, in_vain) = (Mutex::new(None), AtomicUsize::new(0));
    let deaf = Arc::new(LateEnds { calls, deaf_for, kept, in_vain });
    let plugged_in: Arc<dyn JobQueue> = deaf.clone();
    (patient().job_queue(plugged_in).isolated_memory(), deaf)
}

/// Runs one call, until it is over or was begun twice; gives how often it was begun, and reported
/// in vain.
async fn run(deaf_for: usize) -> (usize, usize) {
    let (locks, deaf) = deaf(deaf_for);
    let calls = Calls::default();
    let function = noting("f", &calls);
    put(&locks, &function, 1).await;
    let workers = [worker(&locks, &function).run(), worker(&locks, &function).run()];
    let [one, two] = workers.map(tokio::spawn);
    let start = Instant::now();
    loop {
        tokio::time::sleep(SHORT_DELAY).await;
        // A lease to tell it, and one that was kept shortly before.
        assert!(start.elapsed() < LEASE * 2 + LEASE / 2, "it is kept for ever");
        let there = count(&locks, "f", JobState::Running).await
            + count(&locks, "f", JobState::Waiting).await;
        if there == 0 || calls.all().len() > 1 {
            break;
        }
    }
    one.abort();
    two.abort();
    (calls.all().len(), deaf.in_vain.load(Ordering::Relaxed))
}

/// Two leases go by until then, at most one after the body has ended.
#[tokio::test(start_paused = true)]
async fn a_call_is_kept_while_its_end_is_being_reported() {
    let (begun, in_vain) = run(2).await;
    assert_eq!(begun, 1, "nobody else has taken it");
    assert!(in_vain > 1, "it was reported in vain {in_vain} times");
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_end_cannot_be_reported_is_run_again_in_the_end() {
    let (begun, _) = run(usize::MAX).await;
    assert_eq!(begun, 2);
}

/// How `Worker` and the guide say that a program ends.
const SHUTDOWN: Duration = Duration::from_secs(5);

#[tokio::test(start_paused = true)]
async fn a_shutdown_as_documented_returns_calls_that_are_not_done() {
    let (locks, deaf) = deaf(0);
    let (begun, mut has_begun) = watch::channel(false);
    let stuck = DeferredFn::new("f", (argument("number"),), move |(_,): (u64,)| {
        begun.send_replace(true);
        pending::<()>()
    });
    put(&locks, &stuck, 1).await;
    let working = start(&locks, &stuck);
    has_begun.wait_for(|begun| *begun).await.unwrap();
    locks.shutdown(SHUTDOWN).await.expect("in time");
    working.await.unwrap().unwrap();
    let page = deaf.list("f".into(), JobState::Waiting, 0, 1).await.unwrap();
    assert_eq!((page.total, page.jobs[0].attempts), (1, 0), "as if it had not been taken");
}

#[tokio::test(start_paused = true)]
async fn a_stopped_worker_ends_though_the_end_of_a_call_cannot_be_reported() {
    let (locks, deaf) = deaf(usize::MAX);
    let calls = Calls::default();
    let function = noting("f", &calls);
    put(&locks, &function, 1).await;
    let working = start(&locks, &function);
    let reported = async || deaf.in_vain.load(Ordering::Relaxed) > 0;
    eventually("reported in vain", TEST_TIMEOUT, reported).await;
    locks.shutdown(SHUTDOWN).await.expect("in time");
    working.await.unwrap().unwrap();
    assert_eq!(calls.all(), [1]);
    let page = deaf.list("f".into(), JobState::Running, 0, 1).await.unwrap();
    assert_eq!(page.total, 1, "it is left to its lease");
}
