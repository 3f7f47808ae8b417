//! Several processes that contend for one lock, and crates that are not ours.

mod counters;
mod holders;
mod outside;

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

/// One worker of the fleet; killed when dropped.
struct Worker {
    child: Child,
    said: BufReader<ChildStdout>,
}

impl Worker {
    fn start(words: &[&str]) -> Worker {
        let mut child = Command::new(env!("CARGO_BIN_EXE_fleet-worker"))
            .args(words)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the worker starts");
        let said = BufReader::new(child.stdout.take().expect("it was piped"));
        Worker { child, said }
    }

    /// The next line it says; empty when it has ended.
    fn next_line(&mut self) -> String {
        let mut line = String::new();
        self.said.read_line(&mut line).expect("a line of text");
        line.trim_end().to_owned()
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("the worker is there");
    }

    /// Waits until it ends by itself, as it should.
    fn finish(mut self) {
        let status = self.child.wait().expect("the worker can be waited for");
        assert!(status.success(), "the worker failed: {status}");
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // Ended already, as a rule.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
