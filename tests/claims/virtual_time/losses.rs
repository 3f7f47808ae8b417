//! Calls that lose their lock at each of their awaits.

use std::panic::AssertUnwindSafe;
use std::sync::Mutex;
use std::time::Duration;

use futures::FutureExt as _;
use lockmacro_runtime::testing::lose_at_every_await;
use lockmacro_runtime::{LockError, LockManager, distributed_lock};
use tokio::time::sleep;

use crate::{Locked, SECOND};

const WAITS: usize = 3;

type Steps = Mutex<Vec<usize>>;

async fn steps(steps: &Steps, pause: Duration) {
    for nth in 0..WAITS {
        steps.lock().expect("no panic").push(nth);
        sleep(pause).await;
    }
}

#[distributed_lock(key = "steps", ttl = "10s")]
async fn with_a_ttl(done: &Steps) -> Locked<()> {
    steps(done, SECOND).await;
    Ok(())
}

#[distributed_lock(key = "other steps", ttl = "10s")]
async fn another(done: &Steps) -> Locked<()> {
    steps(done, SECOND).await;
    Ok(())
}

#[distributed_lock(key = "steps")]
async fn renewed(done: &Steps) -> Locked<()> {
    steps(done, SECOND).await;
    Ok(())
}

#[distributed_lock(key = "steps", ttl = "10s", on_lost = error)]
async fn that_goes_on(done: &Steps) -> Locked<()> {
    steps(done, SECOND).await;
    Ok(())
}

/// The steps that each call has made, with whether it has lost its lock.
async fn runs(call: impl AsyncFn(&Steps) -> Locked<()>) -> Vec<(usize, bool)> {
    let runs = Mutex::new(Vec::new());
    let call = || async {
        let steps = Steps::default();
        let ended = call(&steps).await;
        (steps.into_inner().expect("no panic").len(), ended)
    };
    let note = async |(steps, ended): (usize, Locked<()>)| {
        let is_lost = matches!(ended, Err(LockError::Lost(_)));
        assert!(is_lost || ended.is_ok(), "{ended:?}");
        runs.lock().expect("no panic").push((steps, is_lost));
        true
    };
    let found = lose_at_every_await(call, note).await;
    assert!(found.is_sound(), "{found}");
    let runs = runs.into_inner().expect("no panic");
    assert_eq!(runs.len(), 1 + found.awaits + 1);
    runs
}

#[tokio::test(start_paused = true)]
async fn a_body_is_stopped_once_at_each_of_its_awaits_and_not_in_the_first_and_the_last_call() {
    for runs in [runs(with_a_ttl).await, runs(renewed).await] {
        assert_eq!(runs, [(3, false), (1, true), (2, true), (3, true), (3, false)]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_goes_on_after_a_loss_goes_on() {
    let runs = runs(that_goes_on).await;
    assert_eq!(runs, [(3, false), (3, true), (3, true), (3, true), (3, false)]);
}

/// What it says where it has nothing to say about awaits.
async fn refusal(call: impl AsyncFn()) -> String {
    let tested = AssertUnwindSafe(lose_at_every_await(|| async { call().await }, async |()| true))
        .catch_unwind()
        .await;
    let refused = tested.expect_err("nothing was tested");
    refused
        .downcast_ref::<&str>()
        .map(ToString::to_string)
        .unwrap_or_else(|| refused.downcast_ref::<String>().expect("a panic has a text").clone())
}

#[distributed_lock(key = "ready")]
async fn ready_at_once() -> Locked<()> {
    std::future::ready(()).await;
    Ok(())
}

#[distributed_lock(key = "endless")]
async fn endless(pause: Duration) -> Locked<()> {
    loop {
        sleep(pause).await;
    }
}

#[distributed_lock(key = "endless")]
async fn that_spins() -> Locked<()> {
    loop {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_of_which_no_await_can_be_lost_is_a_failure_that_says_why() {
    let never_waits = refusal(async || ready_at_once().await.expect("free")).await;
    assert!(never_waits.contains("the body has never waited"), "{never_waits}");
    let no_lock = refusal(async || sleep(SECOND).await).await;
    assert!(no_lock.contains("no body ran under a lock in this task"), "{no_lock}");
    let spawned = refusal(async || {
        let call = LockManager::isolated_memory().scope(with_a_ttl_of_its_own());
        tokio::spawn(call).await.expect("no panic").expect("free");
    });
    let spawned = spawned.await;
    assert!(spawned.contains("it is in a spawned task"), "{spawned}");
}

#[distributed_lock(key = "spawned")]
async fn with_a_ttl_of_its_own() -> Locked<()> {
    sleep(SECOND).await;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_renewed_body_that_does_not_end_is_a_failure_that_says_so() {
    for pause in [SECOND * 60, SECOND * 60 * 60 * 48] {
        let endless = refusal(async || drop(endless(pause).await)).await;
        assert!(endless.contains("a call does not end"), "{endless}");
    }
    let spins = refusal(async || drop(that_spins().await)).await;
    assert!(spins.contains("a call does not end"), "{spins}");
}

/// Both wait for the first time in one poll of the call.
#[tokio::test(start_paused = true)]
async fn two_bodies_side_by_side_are_stopped_at_their_first_awaits_too() {
    let both = async |steps: &Steps| {
        let (one, other) = tokio::join!(with_a_ttl(steps), another(steps));
        one.and(other)
    };
    let runs = runs(both).await;
    assert_eq!(runs[1], (2, true), "{runs:?}");
    assert_eq!(runs.last(), Some(&(2 * WAITS, false)), "{runs:?}");
    assert!(runs[1..runs.len() - 1].iter().all(|(_, is_lost)| *is_lost), "{runs:?}");
}

#[tokio::test(start_paused = true)]
async fn the_first_await_whose_loss_the_check_refuses_is_named_and_nothing_runs_after_it() {
    let calls = Steps::default();
    let call = || async {
        calls.lock().expect("no panic").push(0);
        let steps = Steps::default();
        let _lost = with_a_ttl(&steps).await;
        steps.into_inner().expect("no panic").len()
    };
    let found = lose_at_every_await(call, async |steps| steps != 2).await;
    assert_eq!((found.is_sound(), found.failed_at), (false, Some(2)));
    assert_eq!(calls.lock().expect("no panic").len(), 3);
}
