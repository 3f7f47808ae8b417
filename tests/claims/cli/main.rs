//! Looking at locks and deferred calls, by the tool and by the library.

mod access;
mod acl;
mod calls;
mod cluster;
mod doctor;
mod locks;
mod misuse;
mod notes;
mod odd;
mod picture;
mod postgres;
mod release;
mod run;
mod scripts;
mod why;

use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;
use std::time::Duration;

use lockmacro_runtime::{Lock, LockGuard, LockManager};
use lockmacro_tests::times::{IN_TIME, LONG_TTL};
use lockmacro_tests::{Admin, Backend, Server, eventually, in_time, on};
use serde_json::Value;
use tokio::process::Command;
use tokio::task::JoinHandle;

/// The output of the tool.
#[derive(Debug)]
struct Said {
    /// As a shell shows it: 128 and its number for a signal.
    code: Option<i32>,
    out: String,
    err: String,
}

impl Said {
    fn json(&self) -> Value {
        assert_eq!(self.err, "");
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {}", self.out))
    }

    /// The words of each line.
    fn rows(&self) -> Vec<Vec<&str>> {
        self.out.lines().map(|line| line.split_whitespace().collect()).collect()
    }

    fn shows(&self, text: &str) -> bool {
        self.out.contains(text) || self.err.contains(text)
    }
}

/// A server that the tool looks at.
trait Place {
    fn address(&self) -> String;
    /// The random parts of all tokens on it.
    fn tokens(&self) -> Vec<String>;
}

impl Place for Server {
    fn address(&self) -> String {
        self.url()
    }

    fn tokens(&self) -> Vec<String> {
        tokens(&mut self.admin())
    }
}

impl Place for Backend {
    fn address(&self) -> String {
        self.url().to_owned()
    }

    fn tokens(&self) -> Vec<String> {
        let all = "SELECT right(token, 32) FROM (SELECT token FROM lm1.lease UNION ALL
            SELECT token FROM lm1.share UNION ALL SELECT token FROM lm1.waiter) x
            WHERE token IS NOT NULL";
        match self.database() {
            Some(database) => database.ask(all),
            None => tokens(&mut self.admin().expect("one server")),
        }
    }
}

fn command(url: &str, words: &[&str]) -> Command {
    // Tests that run in the background, or under `nohup`, ignore signals that the tool passes on.
    let mut command = Command::new("env");
    command.args(["--default-signal", env!("CARGO_BIN_EXE_lockmacro")]);
    for name in ["LOCKMACRO_URL", "DATABASE_URL"] {
        command.env_remove(name);
    }
    command.args(words).env("REDIS_URL", url).stdin(Stdio::null()).kill_on_drop(true);
    command
}

async fn tool_at(url: &str, words: &[&str]) -> Said {
    said(command(url, words)).await
}

async fn said(mut command: Command) -> Said {
    let output = in_time(command.output()).await.expect("it runs");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    let signal = output.status.signal().map(|signal| 128 + signal);
    let code = output.status.code().or(signal);
    let said = Said { code, out: text(output.stdout), err: text(output.stderr) };
    assert!(!said.shows("panicked"), "{said:?}");
    said
}

async fn tool(place: &impl Place, words: &[&str]) -> Said {
    let said = tool_at(&place.address(), words).await;
    for token in place.tokens() {
        assert!(!said.shows(&token), "{words:?} shows a token: {said:?}");
    }
    said
}

/// The random parts of all tokens on a Redis server.
fn tokens(admin: &mut Admin) -> Vec<String> {
    let held: Vec<Vec<u8>> = admin.ask(&["EVAL", EVERY_STRING, "0"]);
    let held = held.iter().map(|value| String::from_utf8_lossy(value));
    let tokens = held.filter_map(|value| Some(value.rsplit_once('/')?.1.to_owned()));
    tokens.filter(|random| random.len() == 32).collect()
}

const EVERY_STRING: &str = "local found = {}
for _, key in ipairs(redis.call('KEYS', '*')) do
  local value = redis.pcall('GET', key)
  if type(value) == 'table' then value = redis.pcall('ZRANGE', key, 0, -1) end
  for _, value in ipairs(type(value) == 'string' and { value } or value) do
    if #found < 100 then found[#found + 1] = value end
  end
end
return found";

async fn manager(place: &impl Place, label: &str) -> LockManager {
    LockManager::builder().label(label).connect(&place.address()).await.expect("it is there")
}

async fn hold(locks: &LockManager, key: &str) -> LockGuard {
    Lock::new(key).ttl(LONG_TTL).manager(locks).acquire().await.expect("it is free")
}

/// Starts one more waiter, and returns when it is in the queue.
async fn wait_for(locks: &LockManager, key: &str) -> JoinHandle<LockGuard> {
    let before = queue_length(locks, key).await;
    let (manager, own) = (locks.clone(), key.to_owned());
    let waiting = tokio::spawn(async move {
        let lock = Lock::new(own).ttl(LONG_TTL).wait(LONG_TTL).manager(&manager);
        lock.acquire().await.expect("its turn comes")
    });
    eventually("it is in the queue", IN_TIME, async || queue_length(locks, key).await > before)
        .await;
    waiting
}

async fn queue_length(locks: &LockManager, key: &str) -> usize {
    locks.inspector().waiters(key, 100).await.expect("answered").items.len()
}
