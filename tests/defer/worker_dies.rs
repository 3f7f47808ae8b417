//! Workers and servers that are killed.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use lockmacro_tests::{Admin, Server};

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
    let locks = connect(&server).await;
    let record = tempfile::NamedTempFile::new().expect("a file");
    let function = DeferredFn::new("noted", (argument("number"),), |(_,): (u64,)| async {})
        .delay(Duration::from_millis(1));
    for number in 0..CALLS {
        put(&locks, &function, number).await;
    }
    let lines = || std::fs::read_to_string(record.path()).expect("the record");
    let mut admin = server.admin();
    let without_workers = connections(&mut admin);
    // What may be run again, and how often.
    let mut in_hand: HashMap<String, usize> = HashMap::new();
    for kill in 0..KILLS {
        let process = Process::start(&server, record.path());
        // Killed in the middle of something, as long as there is something.
        let before = lines().len();
        eventually("something begins", IN_TIME, async || {
            let goes_on = count(&locks, "noted", JobState::Waiting).await
                + count(&locks, "noted", JobState::Running).await;
            lines().len() > before || goes_on == 0
        })
        .await;
        tokio::time::sleep(Duration::from_millis(kill as u64 % 7)).await;
        drop(process);
        // The last it has asked for is done when its connections are gone.
        eventually("nothing of it is left", IN_TIME, || {
            std::future::ready(connections(&mut admin) == without_workers)
        })
        .await;
        let page = locks.deferrer().list("noted".into(), JobState::Running, 0, 99).await.unwrap();
        assert!(page.total <= AT_ONCE, "{} were in its hand", page.total);
        for call in page.jobs {
            *in_hand.entry(call.arguments).or_default() += 1;
            // As if their time were over, which is longer than this test.
            admin.ask::<()>(&["ZADD", "lm1:wr:{lm1:jobs:noted}", "XX", "1", &call.id]);
        }
    }
    let _last = Process::start(&server, record.path());
    nothing_is_left(&locks, "noted").await;
    let (mut begun, mut done) = (HashMap::new(), HashMap::new());
    for line in lines().lines() {
        let (word, number) = line.split_once(' ').expect("a word and a number");
        let counted = if word == "begun" { &mut begun } else { &mut done };
        *counted.entry(format!("[{number}]")).or_insert(0) += 1;
    }
    assert_eq!(done.len() as u64, CALLS, "every call is done, none is a dead letter");
    assert!(!in_hand.is_empty(), "no worker was killed in the middle of something");
    for (call, times) in begun {
        let kills = in_hand.get(&call).copied().unwrap_or_default();
        assert!(times <= 1 + kills, "{call} was begun {times} times, and had {kills} kills");
    }
    locks.shutdown(IN_TIME).await.unwrap();
}

/// How many clients a server has.
fn connections(admin: &mut Admin) -> usize {
    let clients: String = admin.ask(&["CLIENT", "LIST"]);
    clients.lines().count()
}

#[tokio::test]
async fn no_call_is_lost_when_a_server_that_saves_is_killed() {
    let saving = ["--appendonly", "yes", "--appendfsync", "always"];
    let mut server = Server::with(&saving);
    let (locks, calls) = (connect(&server).await, Calls::default());
    let (go_on, gate) = tokio::sync::watch::channel(false);
    let noted = calls.clone();
    let function = DeferredFn::new("f", (argument("number"),), move |(number,): (u64,)| {
        let (noted, mut gate) = (noted.clone(), gate.clone());
        async move {
            noted.add(number);
            gate.wait_for(|open| *open).await.map(drop).map_err(|error| error.to_string())
        }
    });
    let working = tokio::spawn(worker(&locks, &function).run());
    // One is being worked on, and the others wait.
    put(&locks, &function.clone().delay(SOON), 0).await;
    calls.become_so_many(1).await;
    let mut ids = Vec::new();
    for number in 1..20 {
        ids.push(put(&locks, &function.clone().delay(LATER), number).await);
    }
    server.kill();
    server.restart();
    go_on.send_replace(true);
    for id in ids {
        assert!(locks.deferrer().retry("f".into(), id).await.unwrap(), "it waits");
    }
    calls.become_so_many(20).await;
    nothing_is_left(&locks, "f").await;
    locks.shutdown(IN_TIME).await.unwrap();
    working.await.unwrap().unwrap();
}
