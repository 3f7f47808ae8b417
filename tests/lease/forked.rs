//! A process that forks: the other one has its own thread and connections, and none of its locks.

use std::future::ready;
use std::process::Command;

use lockmacro_tests::{Server, eventually, on_a_plain_thread};

use crate::SOON;

#[tokio::test]
async fn a_forked_process_has_its_own_locks_and_leaves_its_parents_alone() {
    let server = Server::start();
    // Of a process that hangs both are killed.
    let mut command = Command::new("timeout");
    command.args(["-s", "KILL", "60", env!("CARGO_BIN_EXE_lease-forking"), &server.url(), "1500"]);
    let ended = on_a_plain_thread(move || command.output().expect("it starts")).await;
    let errors = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success() && ended.stdout == b"well\n", "{:?}: {errors}", ended.status);
    let mut admin = server.admin();
    eventually("nothing is left", SOON, || ready(admin.keys().is_empty())).await;
}
