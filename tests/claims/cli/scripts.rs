//! The commands of the guide's page on scripts, and what it says that they print.

use std::fs::read_to_string;

use lockmacro_tests::times::SOON;
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::Child;

use super::run::Held;
use super::*;

const PAGE: &str = include_str!("../../../docs/scripts.md");

/// The blocks of a language on the page.
fn blocks(language: &str) -> impl Iterator<Item = &str> {
    let start = format!("```{language}\n");
    let starts = PAGE.match_indices(&start).map(|(at, start)| at + start.len());
    starts.map(|at| PAGE[at..].split("```").next().unwrap()).collect::<Vec<_>>().into_iter()
}

/// The directory of the tool.
fn tools() -> &'static str {
    env!("CARGO_BIN_EXE_lockmacro").trim_end_matches("/lockmacro")
}

/// The text with `N` for each number, as fences and times differ.
pub fn without_numbers(text: &str) -> String {
    let mut plain = String::new();
    for c in text.chars() {
        match c {
            '0'..='9' if plain.ends_with('N') => {}
            '0'..='9' => plain.push('N'),
            _ => plain.push(c),
        }
    }
    plain
}

#[tokio::test]
async fn the_commands_of_the_page_print_what_it_shows() {
    let server = Server::start();
    let locks = manager(&server, "desk").await;
    let path = format!("{}:{}", tools(), std::env::var("PATH").unwrap());
    let (mut number, mut holders, mut ended) = (0, Vec::<Child>::new(), Vec::new());
    for session in blocks("console").flat_map(|block| block.split("$ ").skip(1)) {
        let (line, shown) = session.split_once('\n').expect("a line");
        let mut shell = Command::new("sh");
        // In the order in which a terminal shows it.
        let script = format!("exec 2>&1; {}", line.trim_end_matches('&'));
        // A holder stays until the next command has met it, and its signal is to reach the tool.
        let script = match line.strip_suffix("sleep 2 &") {
            Some(line) => format!("exec 2>&1; exec {line} sleep 600"),
            None => script,
        };
        shell.args(["-c", &*script]).env("PATH", &path);
        shell.env("REDIS_URL", server.url()).stdin(Stdio::null()).kill_on_drop(true);
        number += 1;
        if line.ends_with('&') {
            // On another machine, and it has the lock.
            holders.push(shell.spawn().expect("sh"));
            let key = line.split(' ').nth(2).expect("a key");
            let is_held = async || locks.inspector().lock(key).await.expect("answered").is_some();
            eventually("it is held", IN_TIME, is_held).await;
            continue;
        }
        let output = in_time(shell.output()).await.expect("sh");
        let printed = String::from_utf8(output.stdout).expect("text");
        assert_eq!(without_numbers(&printed), without_numbers(shown), "{line}");
        for holder in holders.drain(..) {
            let id = Pid::from_raw(holder.id().expect("it runs").try_into().expect("small"));
            kill_process(id.expect("positive"), Signal::TERM).expect("it runs");
            ended.push(holder);
        }
    }
    assert!(number >= 10, "{number} commands");
}

#[tokio::test]
async fn the_job_of_the_page_runs_under_cron_or_leaves_it_to_the_holder() {
    let server = Server::start();
    let table = blocks("crontab").next().expect("a table");
    let (settings, job) = table.trim_end().rsplit_once('\n').expect("a job");
    let job = job.splitn(6, ' ').last().expect("a command").trim_start();
    let run = || {
        // As cron does: its environment is that of the table.
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", job]).env_clear().stdin(Stdio::null());
        for (name, value) in settings.lines().map(|line| line.split_once('=').expect("a value")) {
            let value = value.replace("redis://localhost", &server.url());
            shell.env(name, value.replace("/usr/local/bin", tools()));
        }
        said(shell)
    };
    let ran = run().await;
    assert_eq!((ran.code, &*ran.out, &*ran.err), (Some(0), "the report is made\n", ""));
    let locks = manager(&server, "desk").await;
    let guard = hold(&locks, "report:daily").await;
    let left = run().await;
    assert_eq!((left.code, &*left.out), (Some(0), ""), "{left:?}");
    assert!(left.err.contains("is locked by desk"), "{left:?}");
    guard.release().await.expect("held");
}

#[tokio::test]
async fn the_container_of_the_page_ends_by_sigterm_and_with_its_number() {
    let server = Server::start();
    let container = ["--user", "--map-root-user", "--pid", "--fork", "--kill-child", "--"];
    let mut command = Command::new("unshare");
    command.args(container).arg("true").stderr(Stdio::null());
    if !command.status().await.is_ok_and(|status| status.success()) {
        let is_allowed = std::env::var_os("WITHOUT_CONTAINERS").is_some();
        assert!(is_allowed, "`unshare` is refused: allow it, or set WITHOUT_CONTAINERS=1");
        return;
    }
    let file = blocks("dockerfile").next().expect("a file");
    let entry = file.lines().find_map(|line| line.strip_prefix("ENTRYPOINT ")).expect("one");
    let entry: Vec<String> = serde_json::from_str(entry).expect("words");
    let path = format!("{}:{}", tools(), std::env::var("PATH").unwrap());
    let mut command = Command::new("unshare");
    command.args(container).args(["env", "--default-signal"]).args(&entry);
    // A process whose parent has ended is collected.
    let billing = "trap 'echo bye; trap - TERM; kill $$' TERM; (true &); echo go;
        for n in $(seq 600); do sleep 0.05; done";
    command.args(["sh", "-c", billing]).env("REDIS_URL", server.url()).env("PATH", path);
    let held = Held::of(command).await;
    let children = |id: &str| {
        let children = read_to_string(format!("/proc/{id}/task/{id}/children"));
        children.expect("it runs").split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    let tool = children(&held.tool.id().expect("it runs").to_string()).remove(0);
    eventually("only the command is left", SOON, async || children(&tool).len() == 1).await;
    let tool = Pid::from_raw(tool.parse().expect("a number")).expect("one");
    kill_process(tool, Signal::TERM).expect("it is there");
    let (code, lines, err) = held.ends().await;
    // The shell itself may say on stderr that its `sleep` got the signal.
    assert_eq!((code, &*lines), (Some(143), &["bye".to_owned()][..]), "{err}");
    assert_eq!(server.admin().get("role:billing"), None);
}
