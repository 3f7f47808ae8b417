//! What becomes of a lock when its process ends, for each way in which `main` may end.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use lockmacro_tests::Server;

/// The lease of the process.
const TTL: Duration = Duration::from_secs(60);

/// Runs a process to this end. Returns the rest of the lease of a lock that it leaves.
fn leaves(end: &str) -> Option<Duration> {
    let server = Server::start();
    let mut command = Command::new(env!("CARGO_BIN_EXE_lease-ending"));
    command.args([end, &server.url(), "order:42"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("starts");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("read");
    if end == "killed" {
        assert_eq!(line.trim(), "held");
        child.kill().expect("it runs");
    }
    child.wait().expect("it ends");
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
