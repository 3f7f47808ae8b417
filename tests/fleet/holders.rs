//! Holders that die, and holders that are stopped.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use lockmacro_histories::{Function, Kind, Recorder};
use lockmacro_runtime::{Lock, LockGuard, LockManager};
use lockmacro_tests::times::{LONG_TTL, SOON};
use lockmacro_tests::{Server, judged};
use rustix::process::Signal;
use tempfile::TempDir;

use crate::Worker;

const KEY: &str = "order:42";

/// A holder in a process of its own, and the history of all.
struct Holder {
    worker: Worker,
    directory: TempDir,
}

impl Holder {
    /// A process that holds the lock by now.
    fn start(server: &Server, ttl: &str) -> Holder {
        let directory = tempfile::tempdir().expect("a directory for the history");
        let history = directory.path().join("history");
        let worker = Worker::start(&["hold", &server.url(), KEY, &history.to_string_lossy(), ttl]);
        let mut holder = Holder { worker, directory };
        assert_eq!(holder.worker.next_line(), "held");
        holder
    }

    fn history(&self) -> PathBuf {
        self.directory.path().join("history")
    }

    /// Asks until the lock is granted to another one.
    async fn next(&self, rival: &LockManager) -> LockGuard {
        let history = Recorder::open(&self.history()).expect("the history can be written");
        let note = |kind| history.note(kind, Function::Acquire, KEY, "rival");
        let start = Instant::now();
        loop {
            note(Kind::Invoke);
            match Lock::new(KEY).ttl(LONG_TTL).manager(rival).acquire().await {
                Ok(guard) => {
                    note(Kind::Ok);
                    return guard;
                }
                Err(error) => assert!(error.is_busy(), "{error}"),
            }
            note(Kind::Fail);
            assert!(start.elapsed() < SOON, "the lock never became free");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

#[tokio::test]
async fn a_killed_holder_frees_its_lock_at_its_ttl_and_not_before() {
    let server = Server::start();
    let rival = LockManager::connect(&server.url()).await.expect("there");
    let holder = Holder::start(&server, "700");
    let asked = Instant::now();
    let left = server.admin().ttl(KEY).expect("held, with an end");
    holder.worker.signal(Signal::KILL);
    let guard = holder.next(&rival).await;
    // The server keeps whole milliseconds.
    assert!(asked.elapsed() + Duration::from_millis(2) >= left, "{:?}", asked.elapsed());
    assert_eq!(judged(&holder.history(), "fleet-killed-holder").grants, 2);
    guard.release().await.expect("released");
}

#[tokio::test]
async fn a_holder_that_was_stopped_past_its_lease_takes_no_further_step() {
    let server = Server::start();
    let rival = LockManager::connect(&server.url()).await.expect("there");
    let mut holder = Holder::start(&server, "500");
    // A step takes 200 ms of waiting, so it is stopped in the middle of that.
    holder.worker.signal(Signal::STOP);
    let guard = holder.next(&rival).await;
    // It is stopped past its lease for a while.
    tokio::time::sleep(Duration::from_millis(50)).await;
    holder.worker.signal(Signal::CONT);
    assert_eq!(holder.worker.next_line(), "lost", "its first word after going on");
    assert_eq!(judged(&holder.history(), "fleet-stopped-holder").grants, 2);
    holder.worker.finish();
    assert!(guard.is_held());
    guard.release().await.expect("nobody took it away");
}

#[tokio::test]
async fn a_holder_that_goes_on_ends_at_its_lease_by_itself() {
    let server = Server::start();
    let mut holder = Holder::start(&server, "500");
    let steps: Vec<String> = std::iter::repeat_with(|| holder.worker.next_line())
        .take_while(|line| line != "lost" && !line.is_empty())
        .collect();
    assert!(!steps.is_empty() && steps.iter().all(|step| step == "step"), "{steps:?}");
    holder.worker.finish();
}
