//! Another process that holds a lock.

use std::io::{BufRead, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc;

use rustix::process::{Pid, Signal, kill_process};

use crate::SOON;

/// A `lease-holder`; killed when dropped.
pub(crate) struct Holder {
    child: Child,
    ear: ChildStdin,
    said: mpsc::Receiver<String>,
}

impl Holder {
    pub(crate) fn start(words: &[&str]) -> Holder {
        Holder::start_with(words, |_| {})
    }

    /// Starts it in another environment.
    pub(crate) fn start_with(words: &[&str], surround: impl FnOnce(&mut Command)) -> Holder {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lease-holder"));
        command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped());
        surround(&mut command);
        let mut child = command.spawn().expect("the holder starts");
        let ear = child.stdin.take().expect("it was piped");
        let mouth = BufReader::new(child.stdout.take().expect("it was piped"));
        let (line, said) = mpsc::channel();
        std::thread::spawn(move || {
            mouth.lines().map_while(Result::ok).all(|said| line.send(said).is_ok())
        });
        Holder { child, ear, said }
    }

    /// The next line it says.
    pub(crate) fn next_line(&self) -> String {
        self.said.recv_timeout(2 * SOON).expect("the holder says something")
    }

    /// The lines of the process that no test has read yet.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.said.try_iter().collect()
    }

    pub(crate) fn tell(&mut self, line: &str) {
        writeln!(self.ear, "{line}").expect("the holder listens");
    }

    /// Stops the process in the middle of its work, and waits until it has stopped.
    pub(crate) fn stop(&self) {
        self.signal(Signal::STOP);
        let status = format!("/proc/{}/stat", self.child.id());
        let start = std::time::Instant::now();
        while !std::fs::read_to_string(&status).expect("it is there").contains(") T ") {
            assert!(start.elapsed() < SOON, "it does not stop");
            std::thread::yield_now();
        }
    }

    pub(crate) fn go_on(&self) {
        self.signal(Signal::CONT);
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("the holder can be killed");
        self.child.wait().expect("the holder can be waited for");
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("the holder is there");
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        // Ended already, as a rule.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
