//! Calls whose lock is busy are stored, and run later by a worker.

mod access;
mod attribute;
mod busy;
mod crowd;
mod dead;
mod failover;
mod full;
mod inner;
mod kept;
mod large;
mod late_ends;
mod lateness;
mod latest;
mod malformed;
mod many_functions;
mod plugged_in;
mod postgres;
mod repeated_requests;
mod retries;
mod scopes;
mod stops;
mod unique;
mod workers_die;

use std::future::pending;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use lockmacro_runtime::defer::{DeferredFn, Job, JobInfo, JobState, TakeOptions, Worker, argument};
use lockmacro_runtime::{Lock, LockError, LockGuard, LockManager, LockManagerBuilder};
use lockmacro_tests::times::{LONG_TTL, SHORT_DELAY, TEST_TIMEOUT};
use lockmacro_tests::{Backend, Server, eventually, on};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::task::JoinHandle;

/// The settings of a manager that does not give up on a loaded machine.
fn patient() -> LockManagerBuilder {
    LockManager::builder().timeout(TEST_TIMEOUT * 2)
}

async fn manager(backend: &Backend) -> LockManager {
    backend.manager_from(patient()).await
}

async fn connect(server: &Server) -> LockManager {
    patient().connect(&server.url()).await.expect("it is there")
}

/// Makes names that no other test of the process uses: `memory://` is one store.
fn name(of: &str) -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("{of}-{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// The arguments that a function was called with.
#[derive(Debug, Clone, Default)]
struct Calls(Arc<Mutex<Vec<u64>>>);

impl Calls {
    fn add(&self, call: u64) {
        self.0.lock().unwrap().push(call);
    }

    fn all(&self) -> Vec<u64> {
        self.0.lock().unwrap().clone()
    }

    async fn reach(&self, count: usize) {
        eventually("all calls were run", TEST_TIMEOUT, async || self.all().len() >= count).await;
        assert_eq!(self.all().len(), count, "{:?}", self.all());
    }
}

/// A function that takes note of its calls.
fn noting(name: &str, calls: &Calls) -> DeferredFn<(u64,)> {
    let calls = calls.clone();
    DeferredFn::new(name, (argument("number"),), move |(number,): (u64,)| {
        calls.add(number);
        async { Ok::<(), LockError>(()) }
    })
    .delay(SHORT_DELAY)
}

/// A function whose body runs under `key`, as the attribute writes it.
fn under<A, F>(
    name: &str,
    key: &str,
    manager: &LockManager,
    body: impl Fn(A) -> F + Clone + Send + Sync + 'static,
) -> DeferredFn<(A,)>
where
    A: Serialize + DeserializeOwned + Clone + Send + Sync + 'static,
    F: Future<Output = ()> + Send,
{
    let again = (name.to_owned(), key.to_owned(), manager.clone());
    DeferredFn::new(name, (argument("it"),), move |(it,): (A,)| {
        let ((name, key, manager), body) = (again.clone(), body.clone());
        async move {
            let lock = Lock::new(key.as_str()).ttl(LONG_TTL).manager(&manager);
            match lock.acquire().await {
                Ok(lock) => {
                    let body = async {
                        body(it).await;
                        Ok(())
                    };
                    lock.run(body).await
                }
                Err(busy) => {
                    let function = under(&name, &key, &manager, body).manager(&manager);
                    Err(function.defer(busy, (it,)).await)
                }
            }
        }
    })
    .delay(SHORT_DELAY)
}

async fn hold(locks: &LockManager, key: &str) -> LockGuard {
    Lock::new(key).ttl(LONG_TTL).manager(locks).acquire().await.expect("it is free")
}

/// The error of a caller that finds the lock held.
async fn busy(locks: &LockManager, key: &str) -> LockError {
    Lock::new(key).ttl(LONG_TTL).manager(locks).acquire().await.expect_err("it is held")
}

/// Stores a call, as a busy function does.
async fn put(locks: &LockManager, function: &DeferredFn<(u64,)>, number: u64) -> String {
    let key = name("key");
    let held = hold(locks, &key).await;
    let deferred = defer(locks, function, &key, (number,)).await;
    held.release().await.expect("released");
    match deferred {
        LockError::Deferred { id, .. } => id.into(),
        other => panic!("not deferred: {other}"),
    }
}

/// What a caller gets whose lock is held.
async fn defer<A>(locks: &LockManager, function: &DeferredFn<A>, key: &str, with: A) -> LockError {
    function.clone().manager(locks).defer(busy(locks, key).await, with).await
}

/// Stores a thousand busy calls, with their numbers, as one.
async fn a_thousand_clicks(locks: &LockManager, function: &DeferredFn<(u64,)>, key: &str) {
    let mut ids = std::collections::HashSet::new();
    for click in 0..1_000_u64 {
        match defer(locks, function, key, (click,)).await {
            LockError::Deferred { id, due, .. } => {
                assert!(due <= SHORT_DELAY);
                ids.insert(id);
            }
            other => panic!("{other}"),
        }
    }
    assert_eq!(ids.len(), 1);
}

/// Of two calls that begin within a round trip of each other, none is the earlier one, and a round
/// trip may take long on a loaded machine.
async fn apart() {
    tokio::time::sleep(Duration::from_millis(500)).await;
}

/// Takes a call, as a worker does.
async fn take(locks: &LockManager, function: &str, lease: Duration) -> Job {
    let order = TakeOptions::new([function], 1, lease);
    let mut taken = locks.job_queue().take(order, Box::pin(pending())).await.expect("taken");
    taken.pop().expect("one")
}

async fn first(locks: &LockManager, function: &str, state: JobState) -> Option<JobInfo> {
    let page = locks.job_queue().list(function.into(), state, 0, 1).await.expect("listed");
    page.jobs.into_iter().next()
}

async fn remove(locks: &LockManager, function: &str, id: impl Into<String>) {
    let removed = locks.job_queue().remove(function.into(), id.into()).await;
    assert!(removed.expect("asked"), "it is not there");
}

/// The only dead job of a function, when it is there.
async fn dead_job(locks: &LockManager, function: &str) -> JobInfo {
    let is_dead = async || count(locks, function, JobState::Dead).await == 1;
    eventually("given up", TEST_TIMEOUT, is_dead).await;
    first(locks, function, JobState::Dead).await.expect("it is kept")
}

async fn count(locks: &LockManager, function: &str, state: JobState) -> usize {
    let page = locks.job_queue().list(function.into(), state, 0, 10).await.expect("listed");
    page.total
}

/// Nothing is left of a function's calls.
async fn nothing_is_left(locks: &LockManager, function: &str) {
    use JobState::{Dead, Running, Waiting};
    eventually("nothing is left", TEST_TIMEOUT, async || {
        let mut left = 0;
        // A call that changes its state meanwhile is counted in one of the two.
        for state in [Running, Waiting, Running, Waiting, Dead] {
            left += count(locks, function, state).await;
        }
        left == 0
    })
    .await;
}

fn worker<A>(locks: &LockManager, function: &DeferredFn<A>) -> Worker {
    Worker::new(locks).register(function.clone())
}

type Working = JoinHandle<Result<(), LockError>>;

/// A worker that works until its manager is shut down.
fn start<A>(locks: &LockManager, function: &DeferredFn<A>) -> Working {
    tokio::spawn(worker(locks, function).run())
}

/// Shuts a manager down, which ends its worker.
async fn ends(locks: &LockManager, working: Working) {
    locks.shutdown(TEST_TIMEOUT).await.expect("nothing is held");
    working.await.expect("no panic").expect("it was stopped");
}

/// The same, and nothing is left on the servers.
async fn ends_on(backend: &Backend, locks: &LockManager, working: Working) {
    ends(locks, working).await;
    forget(backend).await;
}

#[on(memory, redis, cluster, postgres, both_runtimes)]
async fn a_call_is_run_once_and_wakes_a_worker_that_waits_for_a_later_one(backend: &Backend) {
    let (locks, calls, name) = (manager(backend).await, Calls::default(), name("earlier"));
    let function = noting(&name, &calls);
    let late = put(&locks, &function.clone().delay(LONG_TTL), 1).await;
    let working = start(&locks, &function);
    // Another process stores it.
    let other = manager(backend).await;
    // By itself it would look every two seconds, and six times in a row not so soon. A machine in
    // need gets some chances.
    let (mut rounds, mut soon) = (0, 0);
    while soon < 6 {
        rounds += 1;
        assert!(rounds < 60, "it looks by itself, or not at all");
        let start = Instant::now();
        put(&other, &function, 2).await;
        calls.reach(rounds).await;
        soon = if start.elapsed() < Duration::from_millis(500) { soon + 1 } else { 0 };
    }
    assert!(calls.all().iter().all(|number| *number == 2), "the other one is not due");
    remove(&locks, &name, late).await;
    nothing_is_left(&locks, &name).await;
    ends_on(backend, &locks, working).await;
    assert_eq!(calls.all(), vec![2; rounds], "each is run once");
}

/// Removes entries that are kept for a while, so that a test can see that nothing else is left:
/// idle workers, and ended calls.
async fn forget(backend: &Backend) {
    if let Some(mut admin) = backend.admin() {
        for key in admin.keys().into_iter().filter(|key| backend.has(key)) {
            let kept = ["lm1:wi:", "lm1:wo:"].iter().any(|kept| key.starts_with(kept));
            assert!(kept, "left behind: {key}");
            // Its end may be now.
            let ends_in: i64 = admin.ask(&["PTTL", &key]);
            assert!(ends_in != -1 && ends_in <= 30_000, "{key} is kept for {ends_in} ms");
            admin.ask::<()>(&["DEL", &key]);
        }
    }
}
