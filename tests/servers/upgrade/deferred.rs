//! Calls that one version has stored are run by workers of the other.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockmacro_runtime::defer::{DeferredFn, JobState, Keep, NewJob, Worker, argument};
use lockmacro_runtime::{LockError, LockManager};
use lockmacro_tests::eventually;
use lockmacro_tests::times::{LONG_TTL, TEST_TIMEOUT};

use crate::two_versions;

const FUNCTION: &str = "audit";
const KEY: &str = "order:42";

async fn put(locks: &LockManager, number: u64, keep: Keep) -> String {
    let id = format!("ours{number}");
    let mut job = NewJob::new(FUNCTION, id, format!("[{number}]"), KEY);
    job.keep = keep;
    locks.job_queue().put(job).await.expect("stored").id
}

/// The arguments of the calls in this state.
async fn in_state(locks: &LockManager, state: JobState) -> Vec<String> {
    let page = locks.job_queue().list(FUNCTION.into(), state, 0, 10).await.expect("listed");
    page.jobs.into_iter().map(|job| job.arguments).collect()
}

async fn waiting(locks: &LockManager) -> Vec<String> {
    in_state(locks, JobState::Waiting).await
}

/// Runs all calls by a worker of this version, and returns the numbers that they were called with.
async fn run_all(locks: &LockManager) -> Vec<u64> {
    let numbers = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&numbers);
    let function = DeferredFn::new(FUNCTION, (argument("number"),), move |(number,): (u64,)| {
        noted.lock().expect("nobody panics").push(number);
        async { Ok::<(), LockError>(()) }
    });
    let working = tokio::spawn(Worker::new(locks).register(function).run());
    eventually("all were run", TEST_TIMEOUT, async || {
        waiting(locks).await.is_empty() && in_state(locks, JobState::Running).await.is_empty()
    })
    .await;
    working.abort();
    let mut numbers = numbers.lock().expect("nobody panics").clone();
    numbers.sort_unstable();
    numbers
}

#[tokio::test]
async fn a_call_of_the_earlier_version_is_run_by_a_worker_of_this_one() {
    let (_server, locks, mut earlier) = two_versions().await;
    for (key, keep) in [(KEY, "all"), (KEY, "first"), ("order:43", "latest")] {
        for number in 1..=2 {
            earlier.put(FUNCTION, key, &format!("[{number}]"), keep);
        }
    }
    // One that a worker of then has tried, and that is due again.
    let taken = earlier.take(FUNCTION).expect("due");
    assert!(earlier.settle(FUNCTION, &taken, "again"));
    assert_eq!(run_all(&locks).await, [1, 1, 2, 2]);
}

#[tokio::test]
async fn a_call_of_this_version_is_run_by_a_worker_of_the_earlier_one() {
    let (_server, locks, mut earlier) = two_versions().await;
    for (number, keep) in (1..).zip([Keep::All, Keep::First, Keep::Latest { at_most: None }]) {
        let id = put(&locks, number, keep).await;
        let taken = earlier.take(FUNCTION).expect("due");
        let found = (&*taken.id, &*taken.arguments, &*taken.key);
        assert_eq!(found, (&*id, &*format!("[{number}]"), KEY));
        assert!(earlier.settle(FUNCTION, &taken, "again"));
        // Failed once, and due again.
        let taken = earlier.take(FUNCTION).expect("due");
        assert!(earlier.settle(FUNCTION, &taken, "done") && earlier.take(FUNCTION).is_none());
        // A request that is repeated finds it done.
        assert_eq!(put(&locks, number, keep).await, id);
        assert_eq!(waiting(&locks).await, Vec::<String>::new());
    }
}

#[tokio::test]
async fn one_call_of_a_key_is_one_for_both_versions() {
    let (_server, locks, mut earlier) = two_versions().await;
    let latest = Keep::Latest { at_most: None };
    let theirs = earlier.put(FUNCTION, KEY, "[1]", "latest");
    assert_eq!(put(&locks, 2, latest).await, theirs);
    assert_eq!(waiting(&locks).await, ["[2]"]);
    assert_eq!(earlier.put(FUNCTION, KEY, "[3]", "latest"), theirs);
    assert_eq!(put(&locks, 4, Keep::First).await, theirs);
    assert_eq!(run_all(&locks).await, [3]);

    let ours = put(&locks, 5, Keep::First).await;
    assert_eq!(earlier.put(FUNCTION, KEY, "[6]", "first"), ours);
    assert_eq!(waiting(&locks).await, ["[5]"]);
    assert_eq!(earlier.put(FUNCTION, KEY, "[7]", "latest"), ours);
    assert_eq!(run_all(&locks).await, [7]);
}

/// The earlier version does not say when it stored a call, so it may be newer than the caller that
/// has the lock, and would be lost.
#[tokio::test]
async fn a_call_of_the_earlier_version_is_not_superseded() {
    let (_server, locks, mut earlier) = two_versions().await;
    let job_queue = locks.job_queue();
    let supersede = |began| job_queue.supersede(FUNCTION.into(), KEY.into(), began);
    let id = earlier.put(FUNCTION, KEY, "[1]", "latest");
    assert_eq!(supersede(LONG_TTL).await, Ok(0), "it is newer");
    // Once it is replaced by a call of this version, the time of that one is known.
    assert_eq!(put(&locks, 2, Keep::Latest { at_most: None }).await, id);
    assert_eq!(supersede(LONG_TTL).await, Ok(0), "it is newer");
    let is_older = async || supersede(Duration::ZERO).await.expect("an answer") == 1;
    eventually("it is older than a call that begins now", TEST_TIMEOUT, is_older).await;
    assert_eq!(waiting(&locks).await, Vec::<String>::new());
}
