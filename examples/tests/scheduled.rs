//! The example of a scheduled job, run as a user runs it.

use std::process::Command;

use lockmacro_examples_tests::program;
use lockmacro_tests::Server;

#[track_caller]
fn every_tick_is_done_once(server: Option<&Server>) {
    let mut command = Command::new(program("scheduled"));
    command.args(["--ticks", "8", "--period", "250"]).env_remove("REDIS_URL");
    if let Some(server) = server {
        command.env("REDIS_URL", server.url());
    }
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.ends_with("8 ticks, 0 missing, 0 done twice\nok\n"), "{text}");
    assert!(text.contains(" is killed\n"), "{text}");
    assert!(text.lines().filter(|line| line.contains("##")).count() >= 8, "{text}");
}

#[test]
fn on_memory_every_tick_is_done_once() {
    every_tick_is_done_once(None);
}

#[test]
fn three_processes_do_every_tick_once_though_one_is_killed() {
    every_tick_is_done_once(Some(&Server::start()));
}
