//! Processes that increment a number in a file: read, pause, write.

use std::process::Command;

use lockmacro_tests::{Process, Server, judged};

const KEY: &str = "counter";

/// Starts `workers` of each kind and gives the number they arrive at together. The history of all
/// is kept under `name`.
fn count(name: &str, kinds: &[&str], workers: usize, times: usize) -> usize {
    let server = Server::start();
    let directory = tempfile::tempdir().expect("a directory for the counter");
    let file = directory.path().join("counter");
    std::fs::write(&file, "0").expect("the counter is written");
    let history = directory.path().join("history");
    let [path, noted] = [&file, &history].map(|file| file.to_string_lossy().into_owned());
    let (url, increments) = (server.url(), times.to_string());
    let worker = |kind: &&str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fleet-worker"));
        Process::start(command.args([kind, &*url, KEY, &noted, &path, &increments]))
    };
    let fleet: Vec<Process> = (0..workers).flat_map(|_| kinds).map(worker).collect();
    fleet.into_iter().for_each(Process::ends);
    assert_eq!(server.admin().keys(), Vec::<String>::new(), "left behind");
    assert_eq!(judged(&history, name).grants, workers * kinds.len() * times);
    let number = std::fs::read_to_string(&file).expect("the counter is there");
    number.trim().parse().expect("the counter is a number")
}

#[test]
fn a_hundred_and_twenty_five_processes_lose_nothing() {
    assert_eq!(count("fleet-counters", &["count"], 125, 2), 250);
}

#[test]
fn a_fleet_and_foreign_clients_exclude_each_other() {
    assert_eq!(count("fleet-foreign", &["count", "foreign"], 8, 15), 240);
}
