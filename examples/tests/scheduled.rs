//! The example of a scheduled job, run as a user runs it.

use std::path::{Path, PathBuf};
use std::process::Command;

use lockmacro_tests::Server;

fn program() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let built = test.parent().and_then(Path::parent).unwrap();
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    // The same selection as in `tests/run`, so that nothing is built twice.
    let mut build = Command::new(cargo);
    build.args(["build", "--quiet", "--workspace", "--all-features", "--example", "scheduled"]);
    build.arg("--target-dir").arg(built.parent().unwrap());
    build.args(built.ends_with("release").then_some("--release"));
    let status = build.current_dir(env!("CARGO_MANIFEST_DIR")).status().unwrap();
    assert!(status.success(), "the example does not compile");
    built.join("examples/scheduled").with_extension(std::env::consts::EXE_EXTENSION)
}

#[track_caller]
fn every_tick_is_done_once(server: Option<&Server>) {
    let mut command = Command::new(program());
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
