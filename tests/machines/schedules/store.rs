//! A server of one worker: calls of the scripts with a look at everything after each, and the
//! subscriptions of three processes.

use std::time::Duration;

use redis::{Cmd, Value};

use crate::scripts::{Script, Scripts};

pub const LOCK: &str = "order:1";
pub const QUEUE: &str = "lm1:wq:{order:1}";
pub const RECORDS: &str = "lm1:ww:{order:1}";
pub const FENCE: &str = "lm1:wf:{order:1}";
pub const HOLDERS: &str = "lm1:wh:{order:1}";
/// The keys of a lock, in the order in which the scripts take them.
const KEYS: [&str; 5] = [LOCK, QUEUE, RECORDS, FENCE, HOLDERS];
/// The digits of a waiter's number in its id, and the secret after them.
pub const NUMBER_DIGITS: usize = 20;
pub const SECRET: u64 = 7_777;
/// Processes that wait.
pub const PROCESSES: usize = 3;

/// Reads all keys and the clock in one step.
const LOOK: &str = r"
local waiting, records = redis.call('HKEYS', KEYS[3]), {}
table.sort(waiting)
for i, token in ipairs(waiting) do
  local record = redis.call('HGET', KEYS[3], token)
  records[2 * i - 1], records[2 * i] = token, string.match(record, '^%d+') or '0'
end
local all, keys = redis.call('KEYS', '*'), {}
table.sort(all)
for i, key in ipairs(all) do
  keys[2 * i - 1], keys[2 * i] = key, redis.call('PEXPIRETIME', key)
end
local time = redis.call('TIME')
return {
  string.format('%.0f', time[1] * 1000000 + time[2]),
  redis.call('GET', KEYS[1]),
  redis.call('GET', KEYS[4]),
  redis.call('ZRANGE', KEYS[2], 0, -1, 'WITHSCORES'),
  records,
  redis.call('ZRANGE', KEYS[5], 0, -1, 'WITHSCORES'),
  keys,
}";

/// A server, with a connection for commands and one that each process receives pushes on.
pub trait Connected {
    /// Sends commands at once.
    fn run(&mut self, commands: &[Cmd]) -> Vec<Value>;

    fn subscribe(&mut self, process: usize, channel: &str);

    fn unsubscribe(&mut self, process: usize, channel: &str);

    /// The messages that a process has received since the last time.
    fn messages(&mut self, process: usize) -> Vec<Vec<u8>>;

    /// Lets time pass by the server's clock.
    fn pause(&mut self, time: Duration);
}

/// The state of the server at one moment.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Look {
    /// The server's clock in microseconds.
    pub at: u64,
    pub held: Option<String>,
    pub fence: Option<u64>,
    /// The waiters, by ticket.
    pub queue: Vec<(String, f64)>,
    /// The waiters that have a record, with the deadline of each, sorted.
    pub records: Vec<(String, u64)>,
    /// Those who share the lock, with the end of each lease in milliseconds of the server's clock.
    pub holders: Vec<(String, f64)>,
    /// Every key and when it expires, in milliseconds of the server's clock; -1 for never.
    pub keys: Vec<(String, i64)>,
}

impl Look {
    /// When a key expires; -2 when it is absent.
    pub fn expiry(&self, key: &str) -> i64 {
        self.keys.iter().find(|(name, _)| name == key).map_or(-2, |(_, at)| *at)
    }

    pub fn waits(&self, token: &str) -> bool {
        self.rank(token).is_some()
    }

    pub fn rank(&self, token: &str) -> Option<usize> {
        self.queue.iter().position(|(waiting, _)| waiting == token)
    }

    pub fn is_shared(&self) -> bool {
        self.held.as_deref().is_some_and(|held| held.ends_with("/shared"))
    }

    /// The tokens that hold the lock, those that keep it after their release included.
    pub fn live_holders(&self) -> impl Iterator<Item = &String> {
        let (is_shared, now) = (self.is_shared(), (self.at / 1_000) as f64);
        let shared = self.holders.iter().filter(move |(_, ends)| is_shared && *ends > now);
        shared.map(|(token, _)| token).chain(self.held.iter().filter(move |_| !is_shared))
    }

    pub fn holds(&self, token: &str) -> bool {
        self.live_holders().any(|holder| holder == token)
    }

    fn read(reply: Value) -> Look {
        let (at, held, fence, queue, mut records, holders, keys): Read =
            redis::from_redis_value(reply).expect("a look");
        records.sort();
        Look { at, held, fence, queue, records, holders, keys }
    }
}

/// The fields of a [`Look`].
type Read = (
    u64,
    Option<String>,
    Option<u64>,
    Vec<(String, f64)>,
    Vec<(String, u64)>,
    Vec<(String, f64)>,
    Vec<(String, i64)>,
);

/// A grant that a process received, by a push or by a reply.
#[derive(Debug, Clone, PartialEq)]
pub struct Push {
    pub process: usize,
    pub number: usize,
    /// The rest of the waiter's id, if the push has it.
    pub secret: Option<u64>,
    /// The first and the last fence, if it has fences.
    pub fences: Option<(u64, u64)>,
    pub at: u64,
    pub px: u64,
}

impl Push {
    fn read(process: usize, grant: &[u8]) -> Push {
        let grant = String::from_utf8_lossy(grant);
        let part: Vec<_> = grant.split('|').collect();
        let [id, fences, at, px] = part[..] else { panic!("a grant: {grant}") };
        let read = |text: &str| text.parse().unwrap_or_else(|_| panic!("a grant: {grant}"));
        let fences = (fences != "0").then(|| block(fences));
        let (number, secret) = id.split_at_checked(NUMBER_DIGITS).unwrap_or((id, ""));
        let (number, secret) = (read(number) as usize, secret.parse().ok());
        Push { process, number, secret, fences, at: read(at), px: read(px) }
    }
}

/// Reads `last` or `first-last`.
pub fn block(fences: &str) -> (u64, u64) {
    let (first, last) = fences.split_once('-').unwrap_or((fences, fences));
    let read = |text: &str| text.parse().unwrap_or_else(|_| panic!("fences: {fences}"));
    (read(first), read(last))
}

pub struct Store {
    server: Box<dyn Connected>,
    /// The channel of each process.
    channels: [Option<String>; PROCESSES],
    scripts: Scripts,
    hashes: Scripts,
}

impl Store {
    pub fn start(server: impl Connected + 'static, scripts: Scripts) -> Store {
        let (channels, hashes) = Default::default();
        let mut store = Store { server: Box::new(server), channels, scripts, hashes };
        store.load(store.scripts.clone());
        store
    }

    /// Loads other scripts.
    pub fn load(&mut self, scripts: Scripts) {
        self.hashes = scripts.each_ref().map(|text| {
            let load = redis::cmd("SCRIPT").arg("LOAD").arg(text).clone();
            match self.server.run(&[load]).pop() {
                Some(Value::BulkString(hash)) => String::from_utf8_lossy(&hash).into_owned(),
                other => panic!("a script that compiles: {other:?}"),
            }
        });
        self.scripts = scripts;
    }

    /// Empties the server.
    pub fn clear(&mut self) -> Look {
        for process in 0..PROCESSES {
            self.unsubscribe(process);
            self.server.messages(process);
        }
        let mut memory = redis::cmd("CONFIG");
        memory.arg("SET").arg("maxmemory").arg("0");
        let mut rights = redis::cmd("ACL");
        rights.arg("SETUSER").arg("default").arg("+publish").arg("+pubsub");
        self.run(&[memory, rights, redis::cmd("FLUSHALL")]).1
    }

    /// Runs commands, and looks.
    pub fn run(&mut self, commands: &[Cmd]) -> (Vec<Value>, Look) {
        let mut look = redis::cmd("EVAL");
        look.arg(LOOK).arg(KEYS.len()).arg(&KEYS);
        let all: Vec<Cmd> = commands.iter().cloned().chain([look]).collect();
        let mut replies = self.server.run(&all);
        let look = replies.pop().expect("a reply to each command");
        (replies, Look::read(look))
    }

    /// Calls a script as the engine does, by its hash first.
    pub fn call(&mut self, script: Script, args: &[&str], then: &[Cmd]) -> (Vec<Value>, Look) {
        let keys: &[&str] = match script {
            Script::Acquire | Script::Release => &KEYS,
            Script::ReleaseUncontended => &[LOCK, QUEUE],
            Script::Renew => &[LOCK],
            Script::RenewShared => &[LOCK, HOLDERS],
            Script::AcquireShared | Script::ReleaseShared => &[LOCK, QUEUE, HOLDERS],
        };
        let commands = |verb: &str, of: &Scripts| {
            let mut cmd = redis::cmd(verb);
            cmd.arg(&of[script as usize]).arg(keys.len()).arg(keys).arg(args);
            [cmd].into_iter().chain(then.iter().cloned()).collect::<Vec<_>>()
        };
        let reply = self.run(&commands("EVALSHA", &self.hashes));
        match &reply.0[0] {
            Value::ServerError(error) if error.code() == "NOSCRIPT" => {
                self.run(&commands("EVAL", &self.scripts))
            }
            _ => reply,
        }
    }

    pub fn subscribe(&mut self, process: usize, channel: &str) {
        self.unsubscribe(process);
        self.server.subscribe(process, channel);
        self.channels[process] = Some(channel.to_owned());
    }

    pub fn unsubscribe(&mut self, process: usize) {
        if let Some(channel) = self.channels[process].take() {
            self.server.unsubscribe(process, &channel);
        }
    }

    /// The pushes to a process until now.
    pub fn pushes(&mut self, process: usize) -> Vec<Push> {
        let messages = self.server.messages(process);
        messages.iter().map(|message| Push::read(process, message)).collect()
    }

    /// Lets time pass by the server's clock.
    pub fn pause(&mut self, time: Duration) {
        self.server.pause(time);
    }
}
