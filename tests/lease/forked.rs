//! A process that forks: the other one cannot use its manager, and leaves its locks alone.

use std::future::ready;
use std::process::Command;

use lockmacro_tests::{Server, eventually, on_a_plain_thread};

use crate::SOON;

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
