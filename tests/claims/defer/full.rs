//! Servers and queues that take no more.

use lockmacro_runtime::defer::{DEAD_MAX, Settled, WAITING_MAX};
use lockmacro_tests::Server;

use super::*;

/// Why a call is not stored.
async fn refused(locks: &LockManager, busy: LockError, function: &DeferredFn<(u64,)>) -> String {
    match function.clone().manager(locks).defer(busy, (3,)).await {
        LockError::Unavailable { reason, detail, .. } => format!("{reason:?}: {detail}"),
        other => panic!("not refused: {other:?}"),
    }
}

#[tokio::test]
async fn a_server_without_memory_refuses_calls_and_lets_go_of_those_it_has() {
    let server = Server::with(&["--maxmemory-policy", "noeviction"]);
    let (locks, calls) = (connect(&server).await, Calls::default());
    let function = noting("f", &calls);
    put(&locks, &function, 1).await;
    let held = hold(&locks, "order:1").await;
    let busy = busy(&locks, "order:1").await;
    let mut admin = server.admin();
    admin.configure("maxmemory", "1");
    let refusal = refused(&locks, busy.clone(), &function).await;
    assert!(refusal.starts_with("OutOfMemory: OOM "), "{refusal}");
    assert_eq!(count(&locks, "f", JobState::Waiting).await, 1, "nothing of it is stored");

    // Working calls off is what gives memory back.
    let working = start(&locks, &function);
    calls.reach(1).await;
    nothing_is_left(&locks, "f").await;
    admin.configure("maxmemory", "0");
    let deferred = function.clone().manager(&locks).defer(busy, (2,)).await;
    assert!(matches!(deferred, LockError::Deferred { .. }), "{deferred:?}");
    calls.reach(2).await;
    held.release().await.unwrap();
    ends(&locks, working).await;
}

#[tokio::test]
async fn a_bounded_number_of_calls_of_a_function_wait() {
    let server = Server::start();
    let (locks, calls) = (connect(&server).await, Calls::default());
    let (function, other) = (noting("f", &calls), noting("other", &calls));
    let held = hold(&locks, "order:1").await;
    let busy = busy(&locks, "order:1").await;
    let mut admin = server.admin();
    const STEP: usize = 10_000;
    for first in (1..WAITING_MAX).step_by(STEP) {
        let last = (first + STEP).min(WAITING_MAX) - 1;
        admin.ask::<()>(&["EVAL", FILL, "1", DUE, &first.to_string(), &last.to_string()]);
    }
    let later = async || function.clone().manager(&locks).defer(busy.clone(), (3,)).await;
    assert!(matches!(later().await, LockError::Deferred { .. }), "one more has room");
    let refusal = refused(&locks, busy.clone(), &function).await;
    assert_eq!(
        refusal,
        "TooManyJobs: 1000000 jobs of `f` wait already: run more workers, or defer fewer calls"
    );
    let waiting: usize = admin.ask(&["ZCARD", DUE]);
    assert_eq!(waiting, WAITING_MAX);
    // Another function's calls have a queue of their own.
    let deferred = other.manager(&locks).defer(busy.clone(), (3,)).await;
    assert!(matches!(deferred, LockError::Deferred { .. }), "{deferred:?}");
    // One that is worked off makes room.
    admin.ask::<()>(&["ZREM", DUE, "1"]);
    assert!(matches!(later().await, LockError::Deferred { .. }));
    held.release().await.unwrap();
}

/// The calls that are due or wait.
const DUE: &str = "lm1:wd:{lm1:jobs:f}";
/// Has calls wait, by number.
const FILL: &str = "local calls = {}
for id = ARGV[1], ARGV[2] do
  calls[#calls + 1] = 9007199254740991
  calls[#calls + 1] = id
  if #calls == 2000 or id == tonumber(ARGV[2]) then
    redis.call('ZADD', KEYS[1], unpack(calls))
    calls = {}
  end
end";

#[tokio::test]
async fn a_bounded_number_of_dead_jobs_is_kept_the_latest_ones() {
    let server = Server::start();
    let locks = connect(&server).await;
    let fill = "for nth = 1, tonumber(ARGV[1]) do
        redis.call('HSET', KEYS[1], 'id' .. nth, '[1]')
        redis.call('ZADD', KEYS[2], nth, 'id' .. nth)
    end";
    let (calls, dead) = ("lm1:jobs:f", "lm1:wx:{lm1:jobs:f}");
    let mut admin = server.admin();
    admin.ask::<()>(&["EVAL", fill, "2", calls, dead, &DEAD_MAX.to_string()]);
    let function = noting("f", &Calls::default()).delay(Duration::ZERO);
    let id = put(&locks, &function, 1).await;
    let job_queue = locks.job_queue();
    let job = take(&locks, "f", LONG_TTL).await;
    assert_eq!(
        job_queue.settle(job, Settled::Dead { error: "out of stock".into() }).await,
        Ok(true)
    );
    let page = job_queue.list("f".into(), JobState::Dead, 0, 1).await.unwrap();
    assert_eq!((page.total, &*page.jobs[0].id), (DEAD_MAX, "id2"), "the oldest is forgotten");
    assert!(!admin.ask::<bool>(&["HEXISTS", calls, "id1"]));
    remove(&locks, "f", id).await;
}
