//! Commands that reach the server when nobody wants them any more, and answers that come too late
//! to be the last word.

use std::future::ready;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use lockmacro_runtime::{Lock, LockManager, UnavailableReason};
use lockmacro_tests::AcquireFenced as _;
use lockmacro_tests::{Admin, Clock, Fault, Server, drop_after_polls, eventually, within};

use crate::refusals::follow;
use crate::{
    KEY, LONG_TTL, SLACK, TEST_TIMEOUT, TIMEOUT, becomes_free, keeps_nothing, lock, ms, reason,
    served, through, works,
};

/// How long the network keeps a command: longer than the lock is held.
const HELD_UP: Duration = ms(4_000);

#[tokio::test]
async fn a_set_that_arrives_after_its_release_is_released_soon() {
    let (server, proxy, manager) = through(HELD_UP).await;
    works(&manager).await;
    proxy.on_next("SET", Fault::HoldCommand(HELD_UP));
    let start = Instant::now();
    // Granted by a second request, which overtakes the first one.
    let guard = lock(&manager).acquire().await.expect("free");
    guard.release().await.expect("released");
    assert!(start.elapsed() < HELD_UP, "the first request is still in flight");
    proxy.held_commands_arrive().await;
    becomes_free(&server).await;
}

#[tokio::test]
async fn a_request_by_a_script_that_arrives_after_its_release_takes_nothing() {
    let (server, proxy, manager) = through(HELD_UP).await;
    works(&manager).await;
    let mut admin = server.admin();
    proxy.on_next("EVALSHA", Fault::HoldLastCommand(HELD_UP));
    let guard = lock(&manager).fenced().acquire().await.expect("by a later request");
    guard.release().await.expect("released");
    proxy.held_commands_arrive().await;
    // Sooner than the background releases the lock once more.
    assert_eq!(admin.get(KEY), None, "nobody would release it");
    assert!(admin.refused("LATE") > 0, "it was refused");
}

/// Such as after a server with another clock has taken over.
#[tokio::test]
async fn a_lock_is_granted_although_the_clock_of_the_server_has_jumped_ahead() {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("later");
    let clock = Arc::new(Clock::at(now));
    let server = Server::with_clock(Arc::clone(&clock));
    let manager = within(TIMEOUT, &server.url()).await;
    let fenced = async || {
        let (guard, fences) = lock(&manager).acquire_fenced().await.expect("free");
        guard.release().await.expect("released");
        fences[0]
    };
    let first = fenced().await;
    clock.set(now + LONG_TTL);
    assert!(fenced().await > first);
}

#[tokio::test]
async fn a_set_that_arrives_after_its_acquire_was_abandoned_is_released_soon() {
    let (server, proxy, manager) = through(TIMEOUT).await;
    works(&manager).await;
    proxy.on_next("SET", Fault::HoldCommand(HELD_UP));
    tokio::time::timeout(ms(30), lock(&manager).acquire()).await.expect_err("no answer");
    proxy.held_commands_arrive().await;
    becomes_free(&server).await;
    drop(manager);
    keeps_nothing(&server).await;
}

/// The reason in the error when a replica refuses at first, with an error of that name, and does
/// not answer any more after that. `prepare` makes a refusing replica of a server.
async fn reason_of(error: &str, prepare: impl AsyncFnOnce(&Server)) -> UnavailableReason {
    let (server, proxy, manager) = through(TIMEOUT).await;
    works(&manager).await;
    prepare(&server).await;
    let mut admin = server.admin();
    admin.forget_calls();
    let start = Instant::now();
    let asked = tokio::spawn(lock(&manager).acquire());
    // It asks again when it has the first answer.
    eventually("refused", TEST_TIMEOUT, || ready(admin.refused(error) > 1)).await;
    proxy.stall(true);
    let error = asked.await.expect("no panic").expect_err("refused");
    assert!(start.elapsed() < TIMEOUT + SLACK, "after {:?}", start.elapsed());
    reason(error)
}

#[tokio::test]
async fn a_refusal_is_reported_when_no_answer_follows_it() {
    let primary = Server::start();
    let read_only = async |server: &Server| follow(server, primary.port()).await;
    assert_eq!(reason_of("READONLY", read_only).await, UnavailableReason::ReadOnly);

    let alone = async |server: &Server| {
        let mut admin = server.admin();
        admin.configure("replica-serve-stale-data", "no");
        // Port 1 of this machine: nobody is there.
        admin.ask::<()>(&["REPLICAOF", "127.0.0.1", "1"]);
    };
    assert_eq!(reason_of("MASTERDOWN", alone).await, UnavailableReason::PrimaryDown);
}

/// How many scripts were called.
fn scripts(admin: &mut Admin) -> u64 {
    let calls = admin.calls();
    calls.iter().filter(|(name, _)| name.starts_with("eval")).map(|(_, calls)| calls).sum()
}

/// Drops calls of which it is not known whether the server has done what they have asked for.
async fn drop_in_doubt(manager: &LockManager, count: u64) {
    for nth in 0..count {
        let lock = Lock::new(format!("doubt:{nth}")).ttl(LONG_TTL).manager(manager);
        drop_after_polls(lock.acquire(), 1).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_call_in_doubt_takes_three_answered_commands_at_most() {
    const CALLS: u64 = 100;
    let (server, manager) = served().await;
    works(&manager).await;
    let mut admin = server.admin();
    admin.forget_calls();
    drop_in_doubt(&manager, CALLS).await;
    // Longer than the last of them is looked at again, and far shorter than they would last.
    tokio::time::sleep(ms(8_000)).await;
    keeps_nothing(&server).await;
    let called = scripts(&mut admin);
    // On a loaded machine some are dropped before they are sent.
    assert!((CALLS / 4..=3 * CALLS + 2).contains(&called), "{called} for {CALLS}");

    // A stalled server is asked for one of them, again and again.
    server.pause();
    drop_in_doubt(&manager, CALLS).await;
    // The time of the stall.
    tokio::time::sleep(ms(6_000)).await;
    server.resume();
    keeps_nothing(&server).await;
    // Longer than the last of them is looked at again.
    tokio::time::sleep(ms(8_000)).await;
    let more = scripts(&mut admin) - called;
    // Each had one command that the stall left without an answer, and three that were answered.
    assert!((CALLS / 4..=4 * CALLS + 20).contains(&more), "{more} for {CALLS}");
    keeps_nothing(&server).await;
}
