//! A program of the tests, in a process of its own.

use std::io::{BufRead, BufReader, Write as _};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process};

use crate::times::{LONG_TTL, SOON};

/// A process that hears and says lines; killed when dropped.
pub struct Process {
    child: Child,
    said: mpsc::Receiver<String>,
}

impl Process {
    /// Starts it. The test writes its standard input and reads its output.
    pub fn start(command: &mut Command) -> Process {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the program starts");
        let lines = BufReader::new(child.stdout.take().expect("it was piped")).lines();
        let (line, said) = mpsc::channel();
        std::thread::spawn(move || {
            lines.map_while(Result::ok).all(|said| line.send(said).is_ok());
        });
        Process { child, said }
    }

    /// Its number.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The next line it says.
    pub fn next_line(&self) -> String {
        self.said.recv_timeout(2 * SOON).expect("the process says something")
    }

    /// The lines that no test has read yet.
    pub fn lines(&self) -> Vec<String> {
        self.said.try_iter().collect()
    }

    /// Tells it a line.
    pub fn tell(&mut self, line: &str) {
        let ear = self.child.stdin.as_mut().expect("it was piped");
        writeln!(ear, "{line}").expect("the process listens");
    }

    /// Stops it in the middle of its work, and waits until it has stopped.
    pub fn stop(&self) {
        self.signal(Signal::STOP);
        let (status, start) = (format!("/proc/{}/stat", self.id()), Instant::now());
        while !std::fs::read_to_string(&status).expect("it is there").contains(") T ") {
            assert!(start.elapsed() < SOON, "it does not stop");
            std::thread::yield_now();
        }
    }

    /// Lets a stopped one go on.
    pub fn go_on(&self) {
        self.signal(Signal::CONT);
    }

    /// Ends its standard input, and waits until it ends by itself, as it should.
    pub fn ends(self) {
        let status = self.wait_for_end();
        assert!(status.success(), "the process failed: {status}");
    }

    /// The same, however it ends.
    pub fn wait_for_end(mut self) -> ExitStatus {
        drop(self.child.stdin.take());
        let start = Instant::now();
        // It says nothing more when it has ended.
        while self.said.recv_timeout(LONG_TTL) != Err(mpsc::RecvTimeoutError::Disconnected) {
            assert!(start.elapsed() < LONG_TTL, "it does not end");
        }
        self.child.wait().expect("it can be waited for")
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("the process is there");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Ended already, perhaps.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
