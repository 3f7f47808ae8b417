//! What becomes of a lock when its process ends, for each way in which `main` may end, and of one
//! whose process forks.

use std::future::ready;
use std::process::{Command, Stdio};
use std::time::Duration;

use lockmacro_tests::{Process, Server, eventually, on_a_plain_thread};

use crate::SOON;

/// The lease of the process.
const TTL: Duration = Duration::from_secs(60);

/// Runs a process to this end. Returns the rest of the lease of a lock that it leaves.
fn leaves(end: &str) -> Option<Duration> {
    let server = Server::start();
    let mut command = Command::new(env!("CARGO_BIN_EXE_lease-ending"));
    command.args([end, &server.url(), "order:42"]);
    let process = Process::start(command.stderr(Stdio::null()));
    if end == "killed" {
        assert_eq!(process.next_line(), "held");
        drop(process);
    } else {
        process.wait_for_end();
    }
    let mut admin = server.admin();
    let left = admin.get("order:42").map(|_| admin.ttl("order:42").expect("it ends by itself"));
    assert!(left.is_none_or(|left| left <= TTL), "{end}: {left:?}");
    left
}

#[test]
fn a_main_that_ends_with_its_bodies_or_with_a_shutdown_leaves_no_lock() {
    for end in ["returns", "select, shutdown", "task, shutdown", "task panics, shutdown"] {
        assert_eq!(leaves(end), None, "{end}");
    }
}

#[test]
fn a_process_that_runs_no_destructor_leaves_its_lock_for_the_lease() {
    for end in ["exit", "abort", "killed"] {
        assert!(leaves(end).is_some(), "{end}");
    }
}

/// Nobody waits for the background thread, so most of these locks are left.
#[test]
fn a_main_that_ends_without_a_shutdown_leaves_no_lock_for_longer_than_its_lease() {
    for end in ["select", "task", "background", "panic"] {
        let left = leaves(end);
        println!("{end}: {left:?}");
    }
}

/// The other process cannot use the manager, and leaves its locks alone.
#[tokio::test]
async fn a_forked_process_needs_a_manager_of_its_own_and_leaves_its_parents_locks_alone() {
    let server = Server::start();
    // Of a process that hangs both are killed.
    let mut command = Command::new("timeout");
    command.args(["-s", "KILL", "60", env!("CARGO_BIN_EXE_lease-forking"), &server.url()]);
    let ended = on_a_plain_thread(move || command.output().expect("it starts")).await;
    let errors = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success() && ended.stdout == b"well\n", "{:?}: {errors}", ended.status);
    let mut admin = server.admin();
    eventually("nothing is left", SOON, || ready(admin.keys().is_empty())).await;
}
