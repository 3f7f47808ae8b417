//! Holders that die, and holders that are stopped.

use std::time::{Duration, Instant};

use lockmacro_runtime::{Lock, LockGuard, LockManager};
use lockmacro_tests::Server;
use lockmacro_tests::times::{LONG_TTL, SOON};
use rustix::process::Signal;

use crate::Worker;

const KEY: &str = "order:42";

/// Asks until the lock is granted.
async fn next(rival: &LockManager) -> LockGuard {
    let start = Instant::now();
    loop {
        match Lock::new(KEY).ttl(LONG_TTL).manager(rival).acquire().await {
            Ok(guard) => return guard,
            Err(error) => assert!(error.is_busy(), "{error}"),
        }
        assert!(start.elapsed() < SOON, "the lock never became free");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test]
async fn a_killed_holder_frees_its_lock_at_its_ttl_and_not_before() {
    let server = Server::start();
    let rival = LockManager::connect(&server.url()).await.expect("there");
    let mut holder = Worker::start(&["hold", &server.url(), KEY, "700"]);
    assert_eq!(holder.next_line(), "held");
    let asked = Instant::now();
    let left = server.admin().ttl(KEY).expect("held, with an end");
    holder.signal(Signal::KILL);
    let guard = next(&rival).await;
    // The server keeps whole milliseconds.
    assert!(asked.elapsed() + Duration::from_millis(2) >= left, "{:?}", asked.elapsed());
    guard.release().await.expect("released");
}

#[tokio::test]
async fn a_holder_that_was_stopped_past_its_lease_takes_no_further_step() {
    let server = Server::start();
    let rival = LockManager::connect(&server.url()).await.expect("there");
    let mut holder = Worker::start(&["hold", &server.url(), KEY, "500"]);
    assert_eq!(holder.next_line(), "held");
    // A step takes 200 ms of waiting, so it is stopped in the middle of that.
    holder.signal(Signal::STOP);
    let guard = next(&rival).await;
    // It is stopped past its lease for a while.
    tokio::time::sleep(Duration::from_millis(50)).await;
    holder.signal(Signal::CONT);
    assert_eq!(holder.next_line(), "lost", "its first word after going on");
    holder.finish();
    assert!(guard.is_held());
    guard.release().await.expect("nobody took it away");
}

#[tokio::test]
async fn a_holder_that_goes_on_ends_at_its_lease_by_itself() {
    let server = Server::start();
    let mut holder = Worker::start(&["hold", &server.url(), KEY, "500"]);
    assert_eq!(holder.next_line(), "held");
    let steps: Vec<String> = std::iter::repeat_with(|| holder.next_line())
        .take_while(|line| line != "lost" && !line.is_empty())
        .collect();
    assert!(!steps.is_empty() && steps.iter().all(|step| step == "step"), "{steps:?}");
    holder.finish();
}
