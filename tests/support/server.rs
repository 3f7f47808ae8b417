//! A redis-server of the test's own.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, LazyLock, mpsc};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::Admin;
use crate::clock::Clock;
use crate::port::Port;

const READY_WITHIN: Duration = Duration::from_secs(10);

/// A redis-server on a free port of 127.0.0.1 with a directory of its own.
///
/// It is killed when dropped, and by the system when the test process dies before that.
#[derive(Debug)]
pub struct Server {
    child: Child,
    port: Port,
    /// That of its cluster's bus, if it chose one.
    _bus: Option<Port>,
    password: Option<String>,
    arguments: Vec<String>,
    clock: Option<Arc<Clock>>,
    directory: TempDir,
}

impl Server {
    /// Starts a server that saves nothing and waits until it answers.
    pub fn start() -> Server {
        Server::with(&[])
    }

    /// Starts a server that goes by a clock which the test sets.
    pub fn with_clock(clock: Arc<Clock>) -> Server {
        Server::started(&[], Some(clock))
    }

    /// Starts a server with more arguments, such as `["--requirepass", "secret"]`.
    pub fn with(arguments: &[&str]) -> Server {
        Server::started(arguments, None)
    }

    fn started(arguments: &[&str], clock: Option<Arc<Clock>>) -> Server {
        let directory = tempfile::tempdir().expect("a directory for redis-server");
        let mut arguments: Vec<String> = arguments.iter().map(|a| (*a).to_owned()).collect();
        let has = |name: &str| arguments.iter().any(|argument| argument == name);
        // The port that it takes by itself may be that of somebody's outgoing connection.
        let chooses = has("--cluster-enabled") && !has("--cluster-port");
        let bus = chooses.then(Port::any);
        if let Some(bus) = &bus {
            arguments.extend(["--cluster-port".to_owned(), bus.number().to_string()]);
        }
        let password = arguments
            .windows(2)
            .find(|pair| pair[0] == "--requirepass")
            .map(|pair| pair[1].clone());
        for _ in 0..20 {
            let port = Port::any();
            if let Some(child) = launch(port.number(), &arguments, clock.as_deref(), &directory) {
                return Server { child, port, _bus: bus, password, arguments, clock, directory };
            }
        }
        panic!("redis-server did not start: {}", log(&directory));
    }

    /// The port it listens on, the same after a restart.
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// The address for a client, with the password of `--requirepass` when there is one.
    pub fn url(&self) -> String {
        match &self.password {
            Some(password) => self.url_as("", password),
            None => format!("redis://127.0.0.1:{}", self.port()),
        }
    }

    /// The address for a client that logs in as `user`.
    pub fn url_as(&self, user: &str, password: &str) -> String {
        format!("redis://{user}:{password}@127.0.0.1:{}", self.port())
    }

    /// A connection to look at the server with.
    pub fn admin(&self) -> Admin {
        Admin::connect(&self.url())
    }

    /// Stops the process (SIGSTOP): connections stay open, nothing is answered.
    pub fn pause(&self) {
        self.signal(Signal::STOP);
    }

    /// Lets a paused process go on.
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    /// Kills the process. The port then refuses connections until [`Server::restart`].
    pub fn kill(&mut self) {
        self.child.kill().expect("redis-server can be killed");
        self.child.wait().expect("redis-server can be waited for");
    }

    /// Starts it again on the same port, with what it has saved in its directory.
    pub fn restart(&mut self) {
        self.restart_with(&[]);
    }

    /// Starts it again with further arguments, and waits until it answers anything at all.
    pub fn restart_with(&mut self, more: &[&str]) {
        self.arguments.extend(more.iter().map(|a| (*a).to_owned()));
        let until = Instant::now() + READY_WITHIN;
        while Instant::now() < until {
            let clock = self.clock.as_deref();
            if let Some(child) = launch(self.port(), &self.arguments, clock, &self.directory) {
                self.child = child;
                return;
            }
        }
        panic!("redis-server did not come back: {}", log(&self.directory));
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).expect("redis-server is there");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Killed already by the test, perhaps: then there is nothing to do.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts the process and waits for its first answer; `None` when it ended instead, or never
/// answers.
fn launch(
    port: u16,
    arguments: &[String],
    clock: Option<&Clock>,
    directory: &TempDir,
) -> Option<Child> {
    // setpriv (util-linux) lets the kernel kill the server when the test process dies.
    let mut command = Command::new("setpriv");
    // The file of settings that a sentinel writes to goes first.
    let file = arguments.first().filter(|argument| argument.starts_with('/'));
    let arguments = &arguments[usize::from(file.is_some())..];
    command
        .args(["--pdeathsig", "KILL", "redis-server"])
        .args(file)
        .args(["--bind", "127.0.0.1", "--port", &port.to_string()])
        .args(["--save", "", "--appendonly", "no", "--logfile", "redis.log"])
        .args(["--repl-diskless-sync-delay", "0"])
        .arg("--dir")
        .arg(directory.path())
        .args(arguments.iter().map(|a| a.replace("{port}", &port.to_string())))
        .current_dir(directory.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    if let Some(clock) = clock {
        clock.apply(&mut command);
    }
    let mut child = spawn_from_a_lasting_thread(command);
    let until = Instant::now() + READY_WITHIN;
    while Instant::now() < until {
        if let Some(status) = child.try_wait().expect("redis-server can be waited for") {
            assert!(status.code() != Some(127), "{NOT_INSTALLED}");
            return None;
        }
        if answers(port) && matches!(child.try_wait(), Ok(None)) {
            return Some(child);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    let _ = child.kill();
    let _ = child.wait();
    None
}

const NOT_INSTALLED: &str =
    "redis-server is not installed: run `sh tests/run`, or apt-get install redis-server";

/// The kernel's "parent" is the thread that started the process, not the process: a server started
/// by a thread of a runtime would die with that thread.
pub(crate) fn spawn_from_a_lasting_thread(command: Command) -> Child {
    type Order = (Command, mpsc::Sender<std::io::Result<Child>>);
    static SPAWNER: LazyLock<mpsc::Sender<Order>> = LazyLock::new(|| {
        let (orders, received) = mpsc::channel::<Order>();
        std::thread::spawn(move || {
            for (mut command, answer) in received {
                let _ = answer.send(command.spawn());
            }
        });
        orders
    });
    let (answer, child) = mpsc::channel();
    SPAWNER.send((command, answer)).expect("the spawner lives on");
    match child.recv().expect("the spawner answers") {
        Ok(child) => child,
        Err(error) => panic!("setpriv of util-linux is needed to start a server: {error}"),
    }
}

/// Whether anything answers there; an error such as LOADING or NOAUTH is an answer too.
fn answers(port: u16) -> bool {
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let Ok(mut stream) = TcpStream::connect_timeout(&address, Duration::from_millis(200)) else {
        return false;
    };
    let patience = Some(Duration::from_millis(500));
    let mut reply = [0; 1];
    stream.set_read_timeout(patience).is_ok()
        // So much that one that speaks TLS has enough of it, and ends the connection.
        && stream.write_all(b"PING\r\nPING\r\n").is_ok()
        && match stream.read(&mut reply) {
            Ok(_) => true,
            Err(error) => error.kind() == ErrorKind::ConnectionReset,
        }
}

fn log(directory: &TempDir) -> String {
    std::fs::read_to_string(directory.path().join("redis.log"))
        .unwrap_or_else(|_| NOT_INSTALLED.to_owned())
}
