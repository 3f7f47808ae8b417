//! Workers and servers that are killed.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::process::Command;

use lockmacro_runtime::defer::NewJob;
use lockmacro_tests::{Process, Server};

use super::*;

const WORKERS: usize = 4;
const KILLS: usize = 100;
/// By the server's clock: nobody tells it that a worker is dead.
const LEASE: Duration = Duration::from_secs(1);
/// So many calls wait at least while workers are killed.
const WAITING: usize = 200;

/// One process that works.
fn start_worker(server: &Server, record: &Path) -> Process {
    let mut command = Command::new(env!("CARGO_BIN_EXE_defer-worker"));
    let lease = LEASE.as_millis().to_string();
    Process::start(command.arg(server.url()).arg(record).arg(lease))
}

/// The history of a call, by the record of all workers.
#[derive(Debug, Default)]
struct Fate {
    begun: u32,
    done: u32,
    /// Begun by a worker that was killed before it had reported the end.
    killed: u32,
    /// Begun by a worker whose lease was over before it could report the end.
    lost: u32,
    /// Ended by an error, and due again: that of a bad call, or the loss of its lock.
    failed: u32,
}

struct Ledger {
    record: File,
    unread: String,
    fates: HashMap<u64, Fate>,
    /// The calls that each process has begun, and whose ends it has not reported.
    in_hand: HashMap<u32, Vec<u64>>,
}

impl Ledger {
    fn of(record: &Path) -> Self {
        let record = File::open(record).expect("the record");
        let (unread, fates, in_hand) = Default::default();
        Self { record, unread, fates, in_hand }
    }

    fn read(&mut self) {
        self.record.read_to_string(&mut self.unread).expect("text");
        let end = self.unread.rfind('\n').map_or(0, |end| end + 1);
        for line in self.unread.drain(..end).collect::<String>().lines() {
            let mut words = line.split(' ');
            let mut word = || words.next().expect("three words");
            let (process, what, call) = (word(), word(), word());
            let call = call.trim_matches(['[', ']']).parse().expect("a number");
            let fate = self.fates.entry(call).or_default();
            let in_hand = self.in_hand.entry(process.parse().expect("a number")).or_default();
            let its = in_hand.iter().position(|its| *its == call);
            match (what, its) {
                ("begun", _) => {
                    fate.begun += 1;
                    in_hand.push(call);
                }
                ("done", _) => fate.done += 1,
                ("settled", Some(its)) => drop(in_hand.remove(its)),
                ("failed", Some(its)) => {
                    in_hand.remove(its);
                    fate.failed += 1;
                }
                ("lost", Some(its)) => {
                    in_hand.remove(its);
                    fate.lost += 1;
                }
                // A lease that is over can be noticed twice.
                ("settled" | "failed" | "lost", None) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    /// Whether a process is in the middle of a call.
    fn has_work(&self, process: &Process) -> bool {
        self.in_hand.get(&process.id()).is_some_and(|calls| !calls.is_empty())
    }

    /// Kills a process; returns whether it was in the middle of a call.
    fn kill(&mut self, process: Process) -> bool {
        let id = process.id();
        drop(process);
        // It writes no more.
        self.read();
        let in_hand = self.in_hand.remove(&id).unwrap_or_default();
        for call in &in_hand {
            self.fates.entry(*call).or_default().killed += 1;
        }
        !in_hand.is_empty()
    }

    /// Has a process go on that was stalled for longer than its leases. It may learn that calls are
    /// over which others have ended.
    fn go_on(&mut self, process: &Process) {
        self.read();
        for call in self.in_hand.remove(&process.id()).unwrap_or_default() {
            self.fates.entry(call).or_default().lost += 1;
        }
        process.go_on();
    }
}

/// Every tenth call fails as often as it is tried.
fn is_bad(call: u64) -> bool {
    call.is_multiple_of(10)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_call_is_lost_when_workers_are_killed_a_hundred_times() {
    let server = Server::start();
    let locks = connect(&server).await;
    let record = tempfile::NamedTempFile::new().expect("a file");
    let mut ledger = Ledger::of(record.path());
    let start = || start_worker(&server, record.path());
    let mut workers: Vec<_> = (0..WORKERS).map(|_| start()).collect();
    let (mut stored, mut kills, mut standing) = (0, 0, None);
    let end = Instant::now() + TEST_TIMEOUT * 10;
    while kills < KILLS {
        assert!(Instant::now() < end, "{kills} kills, {stored} calls");
        ledger.read();
        let over = ledger.fates.values().filter(|fate| fate.done > 0).count();
        while stored < over + WAITING {
            let call = stored as u64;
            let function = if is_bad(call) { "bad" } else { "good" };
            let (id, arguments) = (format!("id{call}"), format!("[{call}]"));
            let job = NewJob::new(function, id, arguments, format!("order:{call}"));
            locks.job_queue().put(job).await.expect("stored");
            stored += 1;
        }
        // One is stalled for longer than its lease, again and again.
        let (process, since) = match standing.take() {
            Some(standing) => standing,
            None => {
                let process = workers.swap_remove(fastrand::usize(..workers.len()));
                process.stop();
                (process, Instant::now())
            }
        };
        if since.elapsed() > LEASE + LEASE / 4 {
            ledger.go_on(&process);
            workers.push(process);
        } else {
            standing = Some((process, since));
        }
        tokio::time::sleep(Duration::from_millis(1 + fastrand::u64(..20))).await;
        ledger.read();
        let works = |nth: &usize| ledger.has_work(&workers[*nth]);
        let working: Vec<_> = (0..workers.len()).filter(works).collect();
        let Some(nth) = fastrand::choice(working) else { continue };
        kills += usize::from(ledger.kill(workers.swap_remove(nth)));
        workers.push(start());
    }
    if let Some((process, _)) = standing {
        ledger.go_on(&process);
        workers.push(process);
    }
    nothing_is_left(&locks, "good").await;
    for state in [JobState::Waiting, JobState::Running] {
        let none = async || count(&locks, "bad", state).await == 0;
        eventually("all that fail are given up", TEST_TIMEOUT, none).await;
    }
    for process in workers {
        process.ends();
    }
    ledger.read();
    assert!(ledger.in_hand.values().all(Vec::is_empty), "ends are reported: {:?}", ledger.in_hand);
    let (mut again, mut killed, mut lost) = (0, 0, 0);
    for call in 0..stored as u64 {
        let fate = ledger.fates.entry(call).or_default();
        let tries = 1 + fate.failed;
        // A bad one can be given up for the kills alone.
        assert!(fate.done > 0 || is_bad(call), "call {call} was not done: {fate:?}");
        assert!(fate.begun <= tries + fate.killed + fate.lost, "call {call}: {fate:?}");
        again += fate.begun.saturating_sub(tries);
        killed += fate.killed;
        lost += fate.lost;
    }
    let dead = count(&locks, "bad", JobState::Dead).await;
    assert_eq!(dead, (0..stored as u64).filter(|call| is_bad(*call)).count(), "dead jobs");
    println!(
        "{stored} calls, {kills} kills in mid-job: none lost, {dead} dead jobs; {again} begun \
         once more, of {killed} in the hand of who was killed and {lost} whose lease was over"
    );
    locks.shutdown(TEST_TIMEOUT).await.unwrap();
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
    let working = start(&locks, &function);
    // One is being worked on, and the others wait.
    put(&locks, &function.clone().delay(SHORT_DELAY), 0).await;
    calls.reach(1).await;
    let mut ids = Vec::new();
    for number in 1..20 {
        ids.push(put(&locks, &function.clone().delay(LONG_TTL), number).await);
    }
    server.kill();
    server.restart();
    go_on.send_replace(true);
    for id in ids {
        assert!(locks.job_queue().retry("f".into(), id).await.unwrap(), "it waits");
    }
    calls.reach(20).await;
    nothing_is_left(&locks, "f").await;
    ends(&locks, working).await;
}
