//! Workers and servers that are killed.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use lockmacro_tests::Server;

use super::*;

const CALLS: u64 = 300;
const KILLS: usize = 100;
/// So many calls may be run by one process at once.
const AT_ONCE: usize = 4;

/// One process that works. It is killed when dropped.
struct Process(Child);

impl Process {
    fn start(server: &Server, record: &Path) -> Process {
        let mut child = Command::new(env!("CARGO_BIN_EXE_defer-worker"))
            .arg(server.url())
            .arg(record)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the worker starts");
        let mut said = String::new();
        let stdout = child.stdout.take().expect("it was piped");
        BufReader::new(stdout).read_line(&mut said).expect("it says something");
        assert_eq!(said, "ready\n");
        Process(child)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.0.kill().expect("it can be killed");
        self.0.wait().expect("it can be waited for");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_call_is_lost_when_workers_are_killed_a_hundred_times() {
    let server = Server::start();
    let locks = LockManager::connect(&server.url()).await.unwrap();
    let record = tempfile::NamedTempFile::new().expect("a file");
    let function =
        DeferredFn::new("noted", |(_,): (u64,)| async {}).delay(Duration::from_millis(1));
    for number in 0..CALLS {
        put(&locks, &function, number).await;
    }
    let lines = || std::fs::read_to_string(record.path()).expect("the record");
    for kill in 0..KILLS {
        let process = Process::start(&server, record.path());
        // Killed in the middle of something, as long as there is something.
        let before = lines().len();
        let begins = Duration::from_secs(5);
        eventually("something begins", begins, async || {
            let goes_on = count(&locks, "noted", JobState::Waiting).await
                + count(&locks, "noted", JobState::Running).await;
            lines().len() > before || goes_on == 0
        })
        .await;
        tokio::time::sleep(Duration::from_millis(kill as u64 % 7)).await;
        drop(process);
    }
    let _last = Process::start(&server, record.path());
    nothing_is_left(&locks, "noted").await;
    let mut done: HashMap<String, usize> = HashMap::new();
    for line in lines().lines() {
        if let Some(number) = line.strip_prefix("done ") {
            *done.entry(number.to_owned()).or_default() += 1;
        }
    }
    assert_eq!(done.len() as u64, CALLS, "every call is done, none is a dead letter");
    let again: usize = done.values().map(|times| times - 1).sum();
    assert!(again <= KILLS * AT_ONCE, "{again} were run again, which only a kill excuses");
    locks.shutdown(IN_TIME).await.unwrap();
}

#[tokio::test]
async fn no_call_is_lost_when_a_server_that_saves_is_killed() {
    let saving = ["--appendonly", "yes", "--appendfsync", "always"];
    let mut server = Server::with(&saving);
    let (locks, calls) = (LockManager::connect(&server.url()).await.unwrap(), Calls::default());
    let function = noting("f", &calls);
    let working = tokio::spawn(worker(&locks, &function).run());
    for number in 0..20 {
        put(&locks, &function.clone().delay(SOON * 10), number).await;
    }
    server.kill();
    server.restart();
    calls.become_so_many(20).await;
    nothing_is_left(&locks, "f").await;
    locks.shutdown(IN_TIME).await.unwrap();
    working.await.unwrap().unwrap();
}
