//! Processes that wait for the same keys while subscribers are killed, scripts are flushed,
//! processes die and are stopped, and the server is restarted with its data. `WAITING_SECONDS` says
//! for how long, 4 by default; `LOCKMACRO_HISTORY` names a directory for the history of the run.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use lockmacro_histories::{Function, Kind, Recorder};
use lockmacro_tests::{Backend, Postgres, Server, judged, on};
use rustix::process::{Pid, Signal, kill_process};

use crate::{CONFIRM_WINDOW, LONG_TTL, POLLED, PUSHED, keeps_only_fences, ms};

const PROCESSES: usize = 5;
const TASKS: &str = "40";
/// Below the confirm window, so that a lock of a killed process is free again within the test; far
/// above the time for which one is stopped.
const TTL: &str = "2000";
/// Above the confirm window: these have to confirm the grants that are handed off to them.
const TTL_LONG: &str = "30000";
/// The same where a crash of the server may forget the last releases, which then count as held.
const TTL_FORGOTTEN: &str = "8000";
const STANDSTILL: Duration = Duration::from_millis(300);

/// Whatever the server has answered is on its disk. The file is rewritten often, so that a server
/// that is started again after a long run loads it well within a ttl.
const SAVING: [&str; 6] =
    ["--appendonly", "yes", "--appendfsync", "always", "--auto-aof-rewrite-min-size", "256kb"];

/// The server that the processes have their locks on.
enum Servers {
    Redis(Server),
    Postgres(Postgres),
}

impl Servers {
    fn url(&self) -> String {
        match self {
            Servers::Redis(server) => server.url(),
            Servers::Postgres(server) => server.url(),
        }
    }

    fn kill_subscribers(&self) {
        match self {
            Servers::Redis(server) => {
                let _: i64 = server.admin().ask(&["CLIENT", "KILL", "TYPE", "pubsub"]);
            }
            Servers::Postgres(server) => server.kill_connections("query LIKE 'LISTEN%'"),
        }
    }

    fn kill_connections(&self) {
        match self {
            Servers::Redis(server) => {
                let kill = ["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"];
                let _: i64 = server.admin().ask(&kill);
            }
            Servers::Postgres(server) => server.kill_connections("true"),
        }
    }

    /// Refused by a server that is still loading its data, which has no scripts either.
    fn forget_scripts(&self) {
        if let Servers::Redis(server) = self {
            let _ = server.admin().send::<()>(&["SCRIPT", "FLUSH"]);
        }
    }

    async fn restart(&mut self) {
        match self {
            Servers::Redis(server) => {
                server.kill();
                server.restart();
            }
            Servers::Postgres(server) => {
                server.stop_at_once();
                server.restart().await;
            }
        }
    }
}

/// Notes in the history what the test itself does.
fn note(history: &Path, function: Function, process: &str) {
    let recorder = Recorder::open(history).expect("the history can be written");
    recorder.note(Kind::Info, function, "", process);
}

/// One process. It is killed when dropped.
struct Worker {
    name: String,
    child: Child,
    said: Receiver<String>,
}

impl Worker {
    fn start(servers: &Servers, history: &Path, name: String, ttl: &str) -> Worker {
        let mut child = Command::new(env!("CARGO_BIN_EXE_waiting-worker"))
            .arg(servers.url())
            .arg(history)
            .args([&name, TASKS, ttl])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the worker starts");
        let lines = BufReader::new(child.stdout.take().expect("it was piped")).lines();
        let (say, said) = channel();
        thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| say.send(line)));
        let worker = Worker { name, child, said };
        assert_eq!(worker.said.recv_timeout(LONG_TTL / 4).as_deref(), Ok("ready"));
        worker
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("the worker is there");
    }

    /// Kills it, and notes that its bodies are over.
    fn kill(mut self, history: &Path) {
        self.signal(Signal::KILL);
        self.child.wait().expect("it can be waited for");
        note(history, Function::Kill, &self.name);
    }

    /// Tells it to end, when all of its tasks have been served.
    fn end(&mut self) {
        drop(self.child.stdin.take());
    }

    /// The output of the process until its end, which must come in time.
    fn ended(&mut self, until: Instant) -> Vec<String> {
        let mut said = Vec::new();
        loop {
            match self.said.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(line) => said.push(line),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => panic!("{} is stuck: {said:?}", self.name),
            }
        }
        assert!(self.child.wait().expect("it ends").success(), "{}: {said:?}", self.name);
        said
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // Ended already, as a rule.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The faults while they work. A long lease is not worth a killed process, as it would outlast
/// the test: the first two live.
async fn strike(nth: usize, servers: &mut Servers, workers: &mut Vec<Worker>, history: &Path) {
    let note = |fault: &str| note(history, Function::Other(fault.to_owned()), "nemesis");
    match nth % 9 {
        0 | 3 => {
            note("kill-subscribers");
            servers.kill_subscribers();
        }
        1 | 5 => servers.forget_scripts(),
        2 | 6 => {
            let worker = &workers[nth / 2 % PROCESSES];
            note("stop-process");
            worker.signal(Signal::STOP);
            thread::sleep(STANDSTILL);
            worker.signal(Signal::CONT);
        }
        4 => {
            note("kill-connections");
            servers.kill_connections();
        }
        7 => {
            let dying = workers.remove(2);
            dying.kill(history);
            workers.push(Worker::start(servers, history, format!("late-{nth}"), TTL));
        }
        _ => {
            note("restart-server");
            servers.restart().await;
        }
    }
}

#[on(redis, postgres)]
async fn two_hundred_tasks_of_five_processes_never_overlap_and_nobody_is_stuck(backend: &Backend) {
    // Their own, as they are restarted.
    let mut servers = match backend.url().starts_with("redis") {
        true => Servers::Redis(Server::with(&SAVING)),
        false => Servers::Postgres(Postgres::with(&[]).await),
    };
    let seconds = std::env::var("WAITING_SECONDS").map_or(4, |text| text.parse().expect("seconds"));
    let directory = tempfile::tempdir().expect("a directory");
    let history = directory.path().join("history");
    let mut workers: Vec<Worker> = (0..PROCESSES)
        .map(|nth| {
            let long = if backend.url().starts_with("redis") { TTL_LONG } else { TTL_FORGOTTEN };
            let ttl = if nth < 2 { long } else { TTL };
            Worker::start(&servers, &history, format!("worker-{nth}"), ttl)
        })
        .collect();
    let start = Instant::now();
    for nth in 0.. {
        thread::sleep(ms(120));
        if start.elapsed() > Duration::from_secs(seconds) {
            break;
        }
        strike(nth, &mut servers, &mut workers, &history).await;
    }
    let faults_ended = Instant::now();
    workers.iter_mut().for_each(Worker::end);
    let mut bodies = 0;
    let mut errors = Vec::new();
    for worker in &mut workers {
        for line in worker.ended(faults_ended + CONFIRM_WINDOW + POLLED + PUSHED) {
            match line.strip_prefix("done ") {
                Some(number) => bodies += number.parse::<usize>().expect("a number"),
                None => errors.push(line),
            }
        }
    }
    assert_eq!(errors, Vec::<String>::new());
    let verdict = judged(&history, "waiting-fleet");
    assert!(bodies > 200 && verdict.grants >= bodies, "{bodies} bodies, {verdict}");
    match &servers {
        Servers::Redis(server) => keeps_only_fences(server, POLLED).await,
        Servers::Postgres(server) => server.keeps_nothing("").await,
    }
}
