//! The commands of the guide's page on scripts, and what it says that they print.

use rustix::process::{Pid, Signal, kill_process};
use tokio::process::Child;

use super::*;

const PAGE: &str = include_str!("../../docs/scripts.md");

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
    let tools = std::path::Path::new(env!("CARGO_BIN_EXE_lockmacro")).parent().unwrap();
    let path = format!("{}:{}", tools.display(), std::env::var("PATH").unwrap());
    let blocks = PAGE.split("```console\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let (mut number, mut holders, mut ended) = (0, Vec::<Child>::new(), Vec::new());
    for session in blocks.flat_map(|block| block.split("$ ").skip(1)) {
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
            let is_held = async || locks.inspect_lock(key).await.expect("answered").is_some();
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
    assert!(number >= 5, "{number} commands");
}
