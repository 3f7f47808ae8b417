//! Commands that the tool runs under a lock.

use std::fs::{File, read_to_string};
use std::io::Write;
use std::path::Path;
use std::time::Instant;

use lockmacro_tests::times::{SOON, TEST_TIMEOUT, ms};
use lockmacro_tests::{Fault, Proxy};
use rustix::process::{Pid, Signal, getsid, kill_process};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout};
use tokio::time::timeout;

use super::release::terminal;
use super::*;

/// A script that says its process id, takes its time over SIGTERM, and goes on.
const STUBBORN: &str =
    "trap 'sleep 0.1; echo TERM' TERM; echo $$; for n in $(seq 600); do sleep 0.05; done";

/// A tool that runs a script, which has said its first line.
pub struct Held {
    pub tool: Child,
    lines: Lines<BufReader<ChildStdout>>,
    first: String,
}

impl Held {
    async fn start(url: &str, options: &[&str], script: &str) -> Self {
        let mut command = command(url, &[&["run"], options, &["--", "sh", "-c", script]].concat());
        // A command that only reads ends with the test.
        command.stdin(Stdio::piped());
        Self::of(command).await
    }

    /// The tool under a shell, in a session of its own at a new terminal, which is returned, too.
    async fn at_a_terminal(url: &str, shell: &str, options: &[&str], script: &str) -> (Self, File) {
        let (terminal, input) = terminal();
        let mut command = Command::new("env");
        command.args(["--default-signal", "setsid", "--ctty", "sh", "-c", shell]);
        command.args([env!("CARGO_BIN_EXE_lockmacro"), "run"]);
        command.args(options).args(["--", "sh", "-c", script]);
        command.env("REDIS_URL", url).stdin(input).kill_on_drop(true);
        (Self::of(command).await, terminal)
    }

    pub async fn of(mut command: Command) -> Self {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut tool = command.spawn().expect("it starts");
        let mut lines = BufReader::new(tool.stdout.take().expect("piped")).lines();
        let first = in_time(lines.next_line()).await.expect("text").expect("the script begins");
        Self { tool, lines, first }
    }

    fn signal(&self, signal: Signal) {
        let id = self.tool.id().and_then(|id| Pid::from_raw(id.try_into().ok()?));
        kill_process(id.expect("it runs"), signal).expect("it runs");
    }

    /// The signal that has ended the tool.
    async fn dies_of(mut self) -> Option<Signal> {
        let end = timeout(TEST_TIMEOUT, self.tool.wait()).await;
        let status = end.expect("before the script ends by itself").expect("it ends");
        status.signal().and_then(Signal::from_named_raw)
    }

    /// The exit code, the further lines of the script, and what the tool has said.
    pub async fn ends(mut self) -> (Option<i32>, Vec<String>, String) {
        let end = async {
            let mut lines = Vec::new();
            while let Some(line) = self.lines.next_line().await.expect("text") {
                lines.push(line);
            }
            let output = self.tool.wait_with_output().await.expect("it ends");
            (output.status.code(), lines, String::from_utf8(output.stderr).expect("text"))
        };
        timeout(TEST_TIMEOUT, end).await.expect("before the script ends by itself")
    }
}

#[on(redis, postgres)]
async fn the_exit_status_is_handed_on_and_the_lock_is_released(backend: &Backend) {
    let key = &*backend.key("order:1");
    for (script, code) in
        [("echo done", 0), ("echo done; exit 3", 3), ("echo done; kill -KILL $$", 137)]
    {
        let said = tool(backend, &["run", key, "--", "sh", "-c", script]).await;
        assert_eq!((said.code, &*said.out, &*said.err), (Some(code), "done\n", ""));
        assert!(backend.is_free(key).await);
    }
    backend.forget_fences();
}

#[tokio::test]
async fn a_busy_lock_is_75_and_its_holder_is_said() {
    let server = Server::start();
    let held = Held::start(&server.url(), &["order:1", "--as", "ci-17"], "echo go; read end").await;
    let said = tool(&server, &["run", "order:1", "--", "echo", "ran"]).await;
    assert_eq!((said.code, &*said.out), (Some(75), ""));
    assert!(said.err.starts_with("lockmacro: `order:1` is locked by ci-17 (sh): "), "{said:?}");
    assert_eq!(said.err.lines().count(), 1);
    let words = ["run", "order:1", "--json", "--wait", "50ms", "--", "echo", "ran"];
    let said = tool(&server, &words).await;
    let document: Value = serde_json::from_str(&said.err).expect("JSON");
    assert_eq!((said.code, &document["outcome"]), (Some(75), &"busy".into()));
    assert_eq!((&document["holder"], &document["status"]), (&"ci-17".into(), &Value::Null));
    assert!(document["waited_ms"].as_u64() >= Some(50), "{document}");
    drop(held);
}

#[tokio::test]
async fn a_waiter_runs_after_the_holder() {
    let server = Server::start();
    let mut held = Held::start(&server.url(), &["order:1"], "echo go; read end").await;
    // It outlasts a signal that it may get: its lock has a short lease at first, and is confirmed.
    let script = "sleep 0.2; echo ran";
    let words = ["run", "order:1", "--wait", "forever", "--json", "--", "sh", "-c", script];
    let waiter = command(&server.url(), &words).output();
    let locks = manager(&server, "desk").await;
    let waits = eventually("it waits", IN_TIME, async || queue_length(&locks, "order:1").await > 0);
    let released = async {
        waits.await;
        drop(held.tool.stdin.take());
        held.ends().await
    };
    let (waiter, holder) = tokio::join!(in_time(waiter), released);
    let waiter = waiter.unwrap();
    assert_eq!(holder, (Some(1), vec![], String::new()), "`read` fails at the end of its input");
    assert_eq!((waiter.status.code(), &*waiter.stdout), (Some(0), &b"ran\n"[..]));
    let document: Value = serde_json::from_slice(&waiter.stderr).expect("JSON");
    assert_eq!((&document["outcome"], &document["status"]), (&"ended".into(), &0.into()));
    assert!(document["fence"].is_u64() && document["held_ms"].is_u64(), "{document}");
}

/// What closes the connections of a tool that waits.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Closes {
    Server,
    IdleTime,
    Restart,
}

/// The ids of the clients that wait for no push.
fn clients(server: &Server) -> Vec<String> {
    let list: String = server.admin().ask(&["CLIENT", "LIST", "TYPE", "normal"]);
    list.lines().filter_map(|line| Some(line.split(' ').next()?.to_owned())).collect()
}

#[tokio::test]
async fn a_waiter_whose_connections_were_closed_runs_when_its_turn_comes() {
    for closes in [Closes::Server, Closes::IdleTime, Closes::Restart] {
        let mut server = Server::start();
        let locks = manager(&server, "desk").await;
        let guard = hold(&locks, "order:1").await;
        let words = ["run", "order:1", "--wait", "forever", "--", "echo", "ran"];
        let waiter = tokio::spawn(said(command(&server.url(), &words)));
        eventually("it waits", IN_TIME, async || queue_length(&locks, "order:1").await == 1).await;
        match closes {
            Closes::Server => {
                for kind in ["normal", "pubsub"] {
                    server.admin().ask::<i64>(&["CLIENT", "KILL", "TYPE", kind]);
                }
            }
            Closes::IdleTime => {
                let before = clients(&server);
                server.admin().ask::<()>(&["CONFIG", "SET", "timeout", "1"]);
                let is_closed = async || !clients(&server).iter().any(|id| before.contains(id));
                eventually("the idle ones are closed", TEST_TIMEOUT, is_closed).await;
            }
            Closes::Restart => {
                server.admin().ask::<()>(&["SAVE"]);
                server.kill();
                server.restart();
            }
        }
        guard.release().await.expect("it was kept");
        let said = in_time(waiter).await.expect("no panic");
        assert_eq!((said.code, &*said.out, &*said.err), (Some(0), "ran\n", ""), "{closes:?}");
    }
}

#[tokio::test]
async fn a_server_that_is_away_when_the_turn_comes_does_not_end_the_waiter() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let locks = manager(&server, "desk").await;
    let guard = hold(&locks, "order:1").await;
    let words = ["run", "order:1", "--wait", "forever", "--", "echo", "ran"];
    let waiter = tokio::spawn(said(command(&proxy.url(), &words)));
    eventually("it waits", IN_TIME, async || queue_length(&locks, "order:1").await == 1).await;
    // The push arrives, and nothing can be asked for.
    proxy.refuse(true);
    proxy.on_next("order:1", Fault::CutCommand);
    guard.release().await.expect("it was kept");
    eventually("the first try has failed", IN_TIME, async || proxy.orders_are_done()).await;
    // For most of the time that the lock is kept for it.
    tokio::time::sleep(ms(3_000)).await;
    proxy.refuse(false);
    let said = in_time(waiter).await.expect("no panic");
    assert_eq!((said.code, &*said.out), (Some(0), "ran\n"), "{said:?}");
}

#[tokio::test]
async fn a_closed_stdout_is_the_affair_of_the_command() {
    let server = Server::start();
    // A reader that has gone away, and no stdout from the start.
    let cases = [
        ("{ \"$@\"; echo $? >&2; } | true", "yes", "141\n"),
        ("\"$@\" >&-", "out=$(readlink /proc/$$/fd/1); echo $out >&2", "/dev/null\n"),
    ];
    for (shell, script, err) in cases {
        let mut command = Command::new("env");
        command.args(["--default-signal", "sh", "-c", shell, "sh"]);
        command.args([env!("CARGO_BIN_EXE_lockmacro"), "run", "order:1", "--", "sh", "-c", script]);
        command.env("REDIS_URL", server.url()).stdin(Stdio::null()).kill_on_drop(true);
        assert_eq!(said(command).await.err, err, "{shell}");
    }
}

#[tokio::test]
async fn the_lock_of_a_killed_tool_ends_with_its_lease() {
    let server = Server::start();
    let words = ["order:1", "--ttl", "1s"];
    let held = Held::start(&server.url(), &words, "echo go; read end").await;
    held.signal(Signal::KILL);
    let said = tool(&server, &["run", "order:1", "--wait", "10s", "--", "echo", "ran"]).await;
    assert_eq!((said.code, &*said.out), (Some(0), "ran\n"), "{said:?}");
}

#[on(redis, postgres)]
async fn a_command_whose_lock_is_lost_gets_sigterm_and_then_sigkill(backend: &Backend) {
    let key = &*backend.key("order:1");
    let held = Held::start(backend.url(), &[key, "--ttl", "8s"], STUBBORN).await;
    let process = format!("/proc/{}", held.first);
    assert_eq!(tool(backend, &["release", key, "--force", "--yes"]).await.code, Some(0));
    let (code, lines, err) = held.ends().await;
    assert_eq!((code, &*lines), (Some(76), &["TERM".to_owned()][..]), "{err}");
    assert!(err.contains("was lost") && err.contains("was stopped with 137"), "{err}");
    assert!(!Path::new(&process).exists());
    backend.forget_fences();
}

#[tokio::test]
async fn a_command_that_ends_after_a_loss_has_not_ended_under_its_lock() {
    let server = Server::start();
    let mut held = Held::start(&server.url(), &["order:1"], "echo go; read end; exit 0").await;
    server.admin().ask::<()>(&["DEL", "order:1"]);
    // Long before the next renewal.
    drop(held.tool.stdin.take());
    let (code, _, err) = held.ends().await;
    assert_eq!(code, Some(76), "{err}");
    assert!(err.contains("was lost") && err.contains("has ended with 0"), "{err}");
}

#[tokio::test]
async fn what_a_stopped_command_has_started_is_killed_with_it() {
    let server = Server::start();
    let script = "(trap '' TERM; for n in $(seq 600); do sleep 0.05; done) & echo $!; wait";
    let held = Held::start(&server.url(), &["order:1", "--ttl", "1s"], script).await;
    let process = format!("/proc/{}", held.first);
    server.admin().ask::<()>(&["DEL", "order:1"]);
    // The loop has the same stdout, so it has ended by then.
    let (code, _, err) = held.ends().await;
    assert_eq!(code, Some(76), "{err}");
    assert!(err.contains("was stopped with 143"), "{err}");
    eventually("it is gone", SOON, async || !Path::new(&process).exists()).await;
}

#[tokio::test]
async fn a_command_is_dead_before_a_lease_ends_that_cannot_be_renewed() {
    let server = Server::start();
    let held = Held::start(&server.url(), &["order:1", "--ttl", "3s"], STUBBORN).await;
    let process = format!("/proc/{}", held.first);
    // The lease began before this, and its first renewal comes after a second.
    tokio::time::sleep(ms(500)).await;
    let since = Instant::now();
    server.pause();
    eventually("it is killed", TEST_TIMEOUT, async || !Path::new(&process).exists()).await;
    let lived = since.elapsed();
    server.resume();
    assert!(lived > ms(1_500) && lived < Duration::from_secs(3), "{lived:?}");
    let (code, lines, err) = held.ends().await;
    assert_eq!((code, &*lines), (Some(76), &["TERM".to_owned()][..]), "{err}");
}

/// The signals that are passed to the command.
const PASSED: [Signal; 8] = [
    Signal::INT,
    Signal::TERM,
    Signal::HUP,
    Signal::QUIT,
    Signal::USR1,
    Signal::USR2,
    Signal::ALARM,
    Signal::XCPU,
];

/// A script that says its process id, and goes on until a signal ends it.
const GOES_ON: &str = "echo $$; for n in $(seq 600); do sleep 0.05; done";

#[tokio::test]
async fn the_tool_dies_of_the_signal_that_has_ended_its_command() {
    let server = Server::start();
    for signal in PASSED {
        let held = Held::start(&server.url(), &["order:1"], GOES_ON).await;
        held.signal(signal);
        assert_eq!(held.dies_of().await, Some(signal));
        assert_eq!(server.admin().get("order:1"), None);
    }
    // A shell shows the same.
    let tool = env!("CARGO_BIN_EXE_lockmacro");
    let script = format!("{tool} run order:1 -- sh -c 'kill -INT $$'; echo $?");
    let mut shell = Command::new("env");
    shell.args(["--default-signal", "bash", "-c", &*script]).env("REDIS_URL", server.url());
    assert_eq!(said(shell).await.out, "130\n");
}

/// Whether a process, whose id is the first number, is in the foreground of its terminal.
fn has_terminal(ids: &str) -> bool {
    let id = ids.split(' ').next().expect("an id");
    let stat = read_to_string(format!("/proc/{id}/stat")).expect("it runs");
    let fields: Vec<_> = stat.rsplit(") ").next().expect("fields").split(' ').collect();
    fields[2] == fields[5]
}

/// A loop of three commands, which a Ctrl-C is to end.
const LOOP: &str = "for n in 1 2 3; do \"$0\" \"$@\"; done; echo after";

#[tokio::test]
async fn ctrl_c_ends_the_loop_that_has_called_the_tool() {
    let server = Server::start();
    // Without the terminal, and with it.
    for script in [GOES_ON, "echo $$; read line < /dev/tty; echo read"] {
        for shell in [LOOP, &format!("exec bash -c '{LOOP}' \"$0\" \"$@\"")] {
            let (held, mut terminal) =
                Held::at_a_terminal(&server.url(), shell, &["order:1"], script).await;
            if script != GOES_ON {
                eventually("it reads", SOON, async || has_terminal(&held.first)).await;
            }
            terminal.write_all(b"\x03").expect("typed");
            let (code, lines, err) = held.ends().await;
            assert_eq!((code, &*lines), (None, &[][..]), "{script}: {shell}: {err}");
            assert_eq!(server.admin().get("order:1"), None);
        }
    }
}

#[tokio::test]
async fn ctrl_c_ends_a_wait_and_the_loop_that_has_called_the_tool() {
    let server = Server::start();
    let locks = manager(&server, "desk").await;
    let guard = hold(&locks, "order:1").await;
    for name in ["sh", "bash"] {
        let shell = format!("echo go; exec {name} -c '{LOOP}' \"$0\" \"$@\"");
        let options = ["order:1", "--wait", "forever"];
        let (held, mut terminal) =
            Held::at_a_terminal(&server.url(), &shell, &options, "echo ran").await;
        eventually("it waits", IN_TIME, async || queue_length(&locks, "order:1").await == 1).await;
        terminal.write_all(b"\x03").expect("typed");
        let (code, lines, err) = held.ends().await;
        assert_eq!((code, &*lines), (None, &[][..]), "{name}: {err}");
        assert_eq!(queue_length(&locks, "order:1").await, 0);
    }
    guard.release().await.unwrap();
}

#[tokio::test]
async fn ctrl_c_ends_a_tool_whose_server_does_not_answer() {
    let server = Server::start();
    server.pause();
    let mut tool = command(&server.url(), &["run", "order:1", "--", "true"]).spawn().unwrap();
    let id = Pid::from_raw(tool.id().unwrap().try_into().unwrap()).unwrap();
    // It catches the signal before it connects.
    let is_caught = async || {
        let status = read_to_string(format!("/proc/{}/status", id.as_raw_pid())).expect("it runs");
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).expect("a mask");
        let mask = u64::from_str_radix(caught.trim(), 16).expect("a number");
        mask >> (Signal::XCPU.as_raw() - 1) & 1 == 1
    };
    eventually("it catches signals", SOON, is_caught).await;
    kill_process(id, Signal::INT).unwrap();
    let status = in_time(tool.wait()).await.unwrap();
    server.resume();
    assert_eq!(status.signal(), Some(Signal::INT.as_raw()));
}

#[tokio::test]
async fn a_command_inside_of_two_tools_gets_the_terminal_when_it_reads() {
    let server = Server::start();
    let tool = env!("CARGO_BIN_EXE_lockmacro");
    let inner = "run order:2 -- sh -c 'echo go; read line < /dev/tty; echo \"command $line\"'";
    let shell = "\"$0\" \"$@\"; read line < /dev/tty; echo \"shell $line\"";
    // Right under the outer tool, and under a shell of its group.
    for script in [format!("exec {tool} {inner}"), format!("{tool} {inner}; exit $?")] {
        let (held, mut terminal) =
            Held::at_a_terminal(&server.url(), shell, &["order:1"], &script).await;
        terminal.write_all(b"one\ntwo\n").expect("typed");
        let (code, lines, err) = held.ends().await;
        assert_eq!((code, &*err), (Some(0), ""), "{script}");
        assert_eq!(lines, ["command one", "shell two"], "{script}");
    }
}

#[tokio::test]
async fn signals_reach_the_command_and_the_lock_is_released_at_its_end() {
    let server = Server::start();
    for signal in PASSED {
        let script = "trap 'echo bye; exit 5' INT TERM HUP QUIT USR1 USR2 ALRM XCPU; echo go;
            for n in $(seq 600); do sleep 0.05; done";
        let held = Held::start(&server.url(), &["order:1"], script).await;
        held.signal(signal);
        let (code, lines, err) = held.ends().await;
        // The shell itself may say on stderr that its `sleep` got the signal.
        assert_eq!((code, &*lines), (Some(5), &["bye".to_owned()][..]), "{err}");
        assert_eq!(server.admin().get("order:1"), None);
    }
}

#[tokio::test]
async fn a_signal_that_was_ignored_at_the_start_does_not_end_the_command() {
    let server = Server::start();
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' HUP; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_lockmacro")]);
    let script = "trap 'echo bye; exit 5' USR1; echo go; for n in $(seq 600); do sleep 0.05; done";
    command.args(["run", "order:1", "--", "sh", "-c", script]).env("REDIS_URL", server.url());
    let held = Held::of(command).await;
    held.signal(Signal::HUP);
    held.signal(Signal::USR1);
    let (code, lines, err) = held.ends().await;
    assert_eq!((code, &*lines), (Some(5), &["bye".to_owned()][..]), "{err}");
}

#[tokio::test]
async fn what_a_stopped_command_has_started_at_a_terminal_is_killed_with_it() {
    let server = Server::start();
    let script = "(trap '' TERM; for n in $(seq 600); do sleep 0.05; done) & echo $!; wait";
    let options = ["order:1", "--ttl", "1s"];
    let shell = "exec \"$0\" \"$@\"";
    let (held, _terminal) = Held::at_a_terminal(&server.url(), shell, &options, script).await;
    let process = format!("/proc/{}", held.first);
    server.admin().ask::<()>(&["DEL", "order:1"]);
    let (code, _, err) = held.ends().await;
    assert_eq!(code, Some(76), "{err}");
    eventually("it is gone", SOON, async || !Path::new(&process).exists()).await;
}

#[tokio::test]
async fn a_command_gets_the_terminal_when_it_reads_and_the_shell_has_it_afterwards() {
    let server = Server::start();
    let script = "echo go; read line < /dev/tty; echo \"command $line\"";
    let shell = "\"$0\" \"$@\"; read line < /dev/tty; echo \"shell $line\"";
    let (held, mut terminal) =
        Held::at_a_terminal(&server.url(), shell, &["order:1"], script).await;
    terminal.write_all(b"one\ntwo\n").expect("typed");
    let (code, lines, err) = held.ends().await;
    assert_eq!((code, &*lines), (Some(0), &["command one".to_owned(), "shell two".to_owned()][..]));
    assert_eq!(err, "");
}

/// Stops a script at a terminal by Ctrl-Z, after it has said the ids of itself and of the tool.
/// Returns the id of the tool.
async fn stop(held: &Held, terminal: &mut File) -> Pid {
    let (command, tool) = held.first.split_once(' ').expect("two numbers");
    terminal.write_all(b"\x1a").expect("typed");
    // A shell is in the state D that waits for a child which was stopped before it had begun.
    let both = async || matches!(state(command), 'T' | 'D') && state(tool) == 'T';
    eventually("both have stopped", SOON, both).await;
    tool.parse().ok().and_then(Pid::from_raw).expect("a number")
}

/// A shell that says the exit status of the tool.
const SAYS_STATUS: &str = "\"$0\" \"$@\"; echo $?";

#[tokio::test]
async fn a_command_that_was_stopped_at_its_terminal_goes_on_under_its_lock() {
    let server = Server::start();
    let script = "echo $$ $PPID; read line < /dev/tty; echo \"command $line\"";
    let options = ["order:1"];
    let (held, mut terminal) =
        Held::at_a_terminal(&server.url(), SAYS_STATUS, &options, script).await;
    let tool = stop(&held, &mut terminal).await;
    kill_process(tool, Signal::CONT).expect("it is there");
    terminal.write_all(b"one\n").expect("typed");
    let (_, lines, err) = held.ends().await;
    assert_eq!(lines, ["command one", "0"], "{err}");
}

#[tokio::test]
async fn a_command_inside_of_two_tools_stops_with_them_and_goes_on() {
    let server = Server::start();
    let tool = env!("CARGO_BIN_EXE_lockmacro");
    let inner = "echo $$ $OUTER; read line < /dev/tty; echo $line";
    let script = format!("export OUTER=$PPID; exec {tool} run order:2 -- sh -c '{inner}'");
    let (held, mut terminal) =
        Held::at_a_terminal(&server.url(), SAYS_STATUS, &["order:1"], &script).await;
    eventually("it has the terminal", SOON, async || has_terminal(&held.first)).await;
    let outer = stop(&held, &mut terminal).await;
    kill_process(outer, Signal::CONT).expect("it is there");
    terminal.write_all(b"one\n").expect("typed");
    let (_, lines, err) = held.ends().await;
    assert_eq!(lines, ["one", "0"], "{err}");
}

/// The state of a process: `T` when it has stopped.
fn state(id: &str) -> char {
    let stat = read_to_string(format!("/proc/{id}/stat")).expect("it is there");
    stat.rsplit_once(") ").and_then(|(_, state)| state.chars().next()).expect("a state")
}

#[tokio::test]
async fn no_command_inside_of_another_one_goes_on_while_its_tool_is_stopped() {
    let tool = env!("CARGO_BIN_EXE_lockmacro");
    let works = "trap \"\" TERM TSTP; echo $$ $OUTER; for n in $(seq 600); do sleep 0.05; done";
    let works = format!("export OUTER=$PPID; {tool} run order:2 --ttl 2s -- sh -c '{works}'");
    let reads = "read line < /dev/tty";
    // In the background another tool asks for the terminal, or a command beside the tool does, and
    // in the foreground somebody types Ctrl-Z.
    let background = "set -m; \"$0\" \"$@\" & read end";
    let asks = format!("{tool} run order:3 -- sh -c '{reads}'");
    let cases = [(background, &*asks), (background, reads), (SAYS_STATUS, "cat")];
    let works = [works.clone(), format!("({works} &)")];
    let cases = cases.iter().flat_map(|case| works.each_ref().map(|works| (*case, works)));
    for ((shell, other), works) in cases {
        let server = Server::start();
        // After the command has begun.
        let script = format!("{works} | {{ read ids; echo $ids; {other}; }}");
        let (held, mut terminal) =
            Held::at_a_terminal(&server.url(), shell, &["order:1"], &script).await;
        let (command, outer) = held.first.split_once(' ').expect("two numbers");
        if shell == SAYS_STATUS {
            terminal.write_all(b"\x1a").expect("typed");
        }
        eventually("the outer tool stops", SOON, async || state(outer) == 'T').await;
        let is_free = async || server.admin().get("order:2").is_none();
        eventually("the lease has ended", IN_TIME, is_free).await;
        assert!(matches!(state(command), 'T' | 'D'), "{script}");
        let process = format!("/proc/{command}");
        let outer = outer.parse().ok().and_then(Pid::from_raw).expect("a number");
        let session = getsid(Some(outer)).expect("it is there").as_raw_pid().to_string();
        kill_process(outer, Signal::CONT).expect("it is there");
        let is_gone = async || !Path::new(&process).exists() || state(command) == 'Z';
        eventually("it is killed", SOON, is_gone).await;
        let all = Command::new("pkill").args(["-KILL", "-s", &session]).status().await;
        assert!(all.is_ok_and(|status| status.success()));
    }
}

#[tokio::test]
async fn a_command_that_was_stopped_at_its_terminal_does_not_go_on_without_its_lock() {
    let server = Server::start();
    // With the terminal, and without it.
    let reads = "trap '' TERM; echo $$ $PPID; read line < /dev/tty; echo $line";
    let works =
        "trap '' TERM TSTP; echo $$ $PPID; for n in $(seq 600); do sleep 0.05; done; echo end";
    for script in [reads, works] {
        let options = ["order:1", "--ttl", "1s"];
        let (held, mut terminal) =
            Held::at_a_terminal(&server.url(), SAYS_STATUS, &options, script).await;
        let tool = stop(&held, &mut terminal).await;
        let is_free = async || server.admin().get("order:1").is_none();
        eventually("the lease has ended", SOON, is_free).await;
        terminal.write_all(b"late\n").expect("typed");
        kill_process(tool, Signal::CONT).expect("it is there");
        let (_, lines, err) = held.ends().await;
        assert_eq!(lines, ["76"], "{err}");
    }
}

#[tokio::test]
async fn a_document_says_why_on_each_path() {
    let server = Server::start();
    let words = ["run", "order:1", "--json", "--", "no-such-program"];
    let missing = (tool(&server, &words).await, 127, "failed", "cannot start `no-such-program`");
    let down = tool_at("redis://127.0.0.1:1", &words).await;
    let down = (down, 1, "failed", "connection refused");
    let mut held =
        Held::start(&server.url(), &["order:1", "--json"], "echo go; read end; exit 0").await;
    server.admin().ask::<()>(&["DEL", "order:1"]);
    drop(held.tool.stdin.take());
    let (code, _, err) = held.ends().await;
    let lost = (Said { code, out: String::new(), err }, 76, "lost", "was lost");
    for (said, code, outcome, error) in [missing, down, lost] {
        let document: Value = serde_json::from_str(&said.err).expect("JSON");
        assert_eq!((said.code, &document["outcome"]), (Some(code), &outcome.into()));
        assert!(document["error"].as_str().is_some_and(|text| text.contains(error)), "{document}");
    }
}

#[tokio::test]
async fn an_interrupted_waiter_leaves_the_queue() {
    let server = Server::start();
    let locks = manager(&server, "desk").await;
    let held = hold(&locks, "order:1").await;
    let mut waiter = command(&server.url(), &["run", "order:1", "--wait", "forever", "--", "true"]);
    let mut waiter = waiter.spawn().unwrap();
    eventually("it waits", IN_TIME, async || queue_length(&locks, "order:1").await == 1).await;
    let id = Pid::from_raw(waiter.id().unwrap().try_into().unwrap()).unwrap();
    kill_process(id, Signal::INT).unwrap();
    let status = in_time(waiter.wait()).await.unwrap();
    assert_eq!(status.signal(), Some(Signal::INT.as_raw()));
    assert_eq!(queue_length(&locks, "order:1").await, 0);
    held.release().await.unwrap();
}

#[on(redis, postgres)]
async fn the_fence_in_the_environment_grows(backend: &Backend) {
    let key = &*backend.key("order:1");
    let mut last = 0;
    for _ in 0..3 {
        let script = "echo $LOCKMACRO_FENCE $LOCKMACRO_KEY";
        let said = tool(backend, &["run", key, "--", "sh", "-c", script]).await;
        let (fence, name) = said.out.trim().split_once(' ').expect("two words");
        let fence: u64 = fence.parse().expect("a number");
        assert!(fence > last && name == key, "{said:?}");
        last = fence;
    }
    backend.forget_fences();
}

#[tokio::test]
async fn a_command_that_cannot_be_started_leaves_no_lock() {
    let server = Server::start();
    for (program, code) in [("no-such-program", 127), ("/etc/passwd", 126)] {
        let said = tool(&server, &["run", "order:1", "--", program]).await;
        assert_eq!(said.code, Some(code), "{said:?}");
        assert!(said.err.contains(&format!("cannot start `{program}`")), "{said:?}");
        assert_eq!(server.admin().get("order:1"), None);
    }
}

#[tokio::test]
async fn others_enter_as_far_as_a_shared_lock_and_permits_allow() {
    let server = Server::start();
    for (options, others) in [(&["order:1", "--shared"][..], 0), (&["desk", "--permits", "2"], 75)]
    {
        let first = Held::start(&server.url(), options, "echo go; read end").await;
        let second = Held::start(&server.url(), options, "echo go; read end").await;
        let third = [&["run"], options, &["--", "true"]].concat();
        assert_eq!(tool(&server, &third).await.code, Some(others));
        let alone = ["run", options[0], "--", "true"];
        assert_eq!(tool(&server, &alone).await.code, Some(75));
        drop((first, second));
    }
}

#[tokio::test]
async fn failures_of_the_tool_itself_run_nothing() {
    let said = tool_at("redis://127.0.0.1:1", &["run", "order:1", "--", "echo", "ran"]).await;
    assert_eq!((said.code, &*said.out), (Some(1), ""), "{said:?}");
}

#[tokio::test]
async fn misuse_runs_nothing_and_ends_with_2() {
    let server = Server::start();
    let long = "k".repeat(1_025);
    let words: [&[&str]; 13] = [
        &["order:1", "--wait", "long", "--"],
        &["order:1", "--wait", "25h", "--"],
        &["order:1", "--ttl", "10ms", "--"],
        &["order:1", "--permits", "0", "--"],
        &["order:1", "--url", "memory://", "--"],
        &["order:1", "--url", "memory://?key_prefix=shop:", "--"],
        &["", "--"],
        &[&long, "--"],
        &["--"],
        &["--", "", "--"],
        // The words after the first `--` are a command, and no key.
        &["", "--", "env", "--"],
        &["", "--", "-k", "--"],
        &["--", "env", "--"],
    ];
    for options in words {
        let words = [&["run"], options, &["echo", "ran"]].concat();
        // Also while the server is down.
        for url in [&*server.url(), "redis://127.0.0.1:1"] {
            let said = tool_at(url, &words).await;
            assert_eq!((said.code, &*said.out), (Some(2), ""), "{words:?}: {said:?}");
        }
    }
    let nothing = tool(&server, &["run", "order:1"]).await;
    assert_eq!(nothing.code, Some(2), "{nothing:?}");
    let json = tool(&server, &["run", "order:1", "--ttl", "10ms", "--json", "--", "true"]).await;
    let document: Value = serde_json::from_str(&json.err).expect("JSON");
    assert_eq!((json.code, &document["outcome"]), (Some(2), &"failed".into()));
}

#[tokio::test]
async fn a_key_that_begins_with_a_dash_comes_after_two() {
    let server = Server::start();
    let script = "echo $LOCKMACRO_KEY \"$1\"";
    let words = ["run", "--wait", "1s", "--", "--key", "--", "sh", "-c", script, "sh", "--"];
    let said = tool(&server, &words).await;
    assert_eq!((said.code, &*said.out), (Some(0), "--key --\n"), "{said:?}");
}

#[tokio::test]
async fn a_document_begins_on_a_line_of_its_own() {
    let server = Server::start();
    let words = ["run", "order:1", "--json", "--", "sh", "-c", "printf unfinished >&2"];
    let said = tool(&server, &words).await;
    let (before, document) = said.err.trim_end().rsplit_once('\n').expect("two lines");
    let document: Value = serde_json::from_str(document).expect("JSON");
    assert_eq!((before, &document["outcome"]), ("unfinished", &"ended".into()));
}

#[tokio::test]
async fn processes_that_the_tool_inherits_are_collected() {
    let server = Server::start();
    // As the first process of a container gets them: Linux has a call for others, too.
    let subreaper = "import ctypes, os, sys; assert ctypes.CDLL(None).prctl(36, 1) == 0; \
        os.execv(sys.argv[1], sys.argv[1:])";
    let script = "for n in $(seq 20); do (true &); done; echo $PPID; read end";
    let mut command = Command::new("python3");
    command.args(["-c", subreaper, env!("CARGO_BIN_EXE_lockmacro"), "run", "order:1", "--"]);
    command.args(["sh", "-c", script]).env("REDIS_URL", server.url()).stdin(Stdio::piped());
    let held = Held::of(command).await;
    let children = format!("/proc/{0}/task/{0}/children", held.first);
    let is_alone = async || read_to_string(&children).expect("it runs").split(' ').count() <= 2;
    eventually("only the command is left", SOON, is_alone).await;
}
