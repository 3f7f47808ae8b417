//! Calls that lose their lock at each of their awaits.

use std::sync::Mutex;
use std::time::Duration;

use lockmacro_runtime::testing::lose_at_every_await;
use lockmacro_runtime::{LockError, distributed_lock};
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
    let waits = lose_at_every_await(call, note).await.expect("all is noted");
    let runs = runs.into_inner().expect("no panic");
    assert_eq!(runs.len(), 1 + waits + 1);
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
    assert_eq!(lose_at_every_await(call, async |steps| steps != 2).await, Err(2));
    assert_eq!(calls.lock().expect("no panic").len(), 3);
}
