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
mod malformed;
mod many_functions;
mod other_server;
mod plugged_in;
mod repeated_requests;
mod retries;
mod scopes;
mod stops;
mod unique;
mod workers_die;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use lockmacro_runtime::defer::{DeferredFn, JobState, Worker, argument};
use lockmacro_runtime::{Lock, LockError, LockGuard, LockManager, LockManagerBuilder};
use lockmacro_tests::times::{LONG_TTL, SHORT_DELAY, TEST_TIMEOUT};
use lockmacro_tests::{Backend, Server, eventually, on};

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
    let error = busy(locks, &key).await;
    let deferred = function.clone().manager(locks).defer(error, (number,)).await;
    held.release().await.expect("released");
    match deferred {
        LockError::Deferred { id, .. } => id.into(),
        other => panic!("not deferred: {other}"),
    }
}

async fn count(locks: &LockManager, function: &str, state: JobState) -> usize {
    let page = locks.deferrer().list(function.into(), state, 0, 10).await.expect("listed");
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

#[on(memory, redis, cluster, both_runtimes)]
async fn a_call_is_run_once_when_it_is_due(backend: &Backend) {
    let (locks, calls, name) = (manager(backend).await, Calls::default(), name("once"));
    let function = noting(&name, &calls);
    let working = tokio::spawn(worker(&locks, &function).run());
    put(&locks, &function, 42).await;
    calls.reach(1).await;
    nothing_is_left(&locks, &name).await;
    locks.shutdown(TEST_TIMEOUT).await.unwrap();
    working.await.unwrap().unwrap();
    assert_eq!(calls.all(), [42]);
    forget(backend).await;
}

#[on(memory, redis, cluster, both_runtimes)]
async fn an_earlier_call_wakes_a_worker_that_waits_for_a_later_one(backend: &Backend) {
    let (locks, calls, name) = (manager(backend).await, Calls::default(), name("earlier"));
    let function = noting(&name, &calls);
    let late = put(&locks, &function.clone().delay(LONG_TTL), 1).await;
    let working = tokio::spawn(worker(&locks, &function).run());
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
    assert!(locks.deferrer().remove(name.as_str().into(), late).await.unwrap());
    locks.shutdown(TEST_TIMEOUT).await.unwrap();
    working.await.unwrap().unwrap();
    forget(backend).await;
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
