//! A server of one worker: calls of the scripts with a look at everything after each, and the
//! subscriptions of three processes.

use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use lockmacro_tests::Server;
use redis::{Cmd, Connection, ConnectionLike, PushInfo, PushKind, Value};

use crate::scripts::Scripts;

pub const LOCK: &str = "order:1";
pub const QUEUE: &str = "lm1:wq:{order:1}";
pub const RECORDS: &str = "lm1:ww:{order:1}";
pub const FENCE: &str = "lm1:wf:{order:1}";
/// Processes that wait.
pub const PROCESSES: usize = 3;

/// Reads all keys and the clock in one step.
const LOOK: &str = r"
local function text(value) return value or '' end
local queue = redis.call('ZRANGE', KEYS[2], 0, -1, 'WITHSCORES')
local records = redis.call('HGETALL', KEYS[3])
for i = 2, #records, 2 do records[i] = string.match(records[i], '^%d+') or '0' end
local all, keys = redis.call('KEYS', '*'), {}
for i, key in ipairs(all) do keys[i] = key .. ' ' .. redis.call('PEXPIRETIME', key) end
local time = redis.call('TIME')
return table.concat({
  string.format('%.0f', time[1] * 1000000 + time[2]),
  text(redis.call('GET', KEYS[1])),
  text(redis.call('GET', KEYS[4])),
  table.concat(queue, ' '),
  table.concat(records, ' '),
  table.concat(keys, ';'),
}, '\n')";

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

    fn read(reply: &Value) -> Look {
        let Value::BulkString(bytes) = reply else { panic!("a look: {reply:?}") };
        let text = String::from_utf8_lossy(bytes);
        let parts: Vec<&str> = text.split('\n').collect();
        let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let words: Vec<&str> = parts[3].split_whitespace().collect();
        let fields: Vec<&str> = parts[4].split_whitespace().collect();
        let mut records: Vec<(String, u64)> = fields
            .chunks(2)
            .map(|pair| (pair[0].to_owned(), pair[1].parse().expect("a deadline")))
            .collect();
        records.sort();
        let key = |entry: &str| {
            let (name, at) = entry.split_once(' ').expect("a key and its expiry");
            (name.to_owned(), at.parse().expect("an expiry"))
        };
        Look {
            at: parts[0].parse().expect("a time"),
            held: some(parts[1]),
            fence: some(parts[2]).map(|fence| fence.parse().expect("a fence")),
            queue: words
                .chunks(2)
                .map(|pair| (pair[0].to_owned(), pair[1].parse().expect("a ticket")))
                .collect(),
            records,
            keys: parts[5].split(';').filter(|entry| !entry.is_empty()).map(key).collect(),
        }
    }
}

/// A grant that a process received, by a push or by a reply.
#[derive(Debug, Clone, PartialEq)]
pub struct Push {
    pub process: usize,
    pub number: usize,
    /// The first and the last fence, if it has fences.
    pub fences: Option<(u64, u64)>,
    pub at: u64,
    pub px: u64,
}

impl Push {
    fn read(process: usize, grant: &[u8]) -> Push {
        let grant = String::from_utf8_lossy(grant);
        let part: Vec<_> = grant.split('|').collect();
        let [number, fences, at, px] = part[..] else { panic!("a grant: {grant}") };
        let read = |text: &str| text.parse().unwrap_or_else(|_| panic!("a grant: {grant}"));
        let fences = (fences != "0").then(|| block(fences));
        Push { process, number: read(number) as usize, fences, at: read(at), px: read(px) }
    }
}

/// Reads `last` or `first-last`.
pub fn block(fences: &str) -> (u64, u64) {
    let (first, last) = fences.split_once('-').unwrap_or((fences, fences));
    let read = |text: &str| text.parse().unwrap_or_else(|_| panic!("fences: {fences}"));
    (read(first), read(last))
}

#[derive(Debug, Clone, Copy)]
pub enum Which {
    Acquire,
    ReleaseUncontended,
    Release,
    Renew,
}

pub struct Store {
    connection: Connection,
    subscribers: Vec<Subscriber>,
    passed_on: Vec<Push>,
    scripts: Scripts,
    hashes: [String; 4],
    // Last: the connections go before their server.
    _server: Server,
}

struct Subscriber {
    connection: Connection,
    pushes: Receiver<PushInfo>,
    channel: Option<String>,
}

impl Store {
    pub fn start(scripts: Scripts) -> Store {
        let server = Server::start();
        let open = |url: String| {
            let client = redis::Client::open(url).expect("a valid address");
            let connection = client.get_connection().expect("the server accepts a connection");
            let timeout = Some(Duration::from_secs(30));
            connection.set_read_timeout(timeout).expect("a socket takes a timeout");
            connection
        };
        let connection = open(server.url());
        let subscribers = (0..PROCESSES)
            .map(|_| {
                // Messages come before the reply to a PING that was sent after them.
                let mut connection = open(format!("{}?protocol=resp3", server.url()));
                let (sender, pushes) = channel();
                connection.set_push_sender(sender);
                Subscriber { connection, pushes, channel: None }
            })
            .collect();
        let (passed_on, hashes) = Default::default();
        let mut store =
            Store { connection, subscribers, passed_on, scripts, hashes, _server: server };
        store.load(store.scripts.clone());
        store
    }

    /// Loads other scripts.
    pub fn load(&mut self, scripts: Scripts) {
        let Scripts { acquire, release_uncontended, release, renew } = &scripts;
        self.hashes = [acquire, release_uncontended, release, renew].map(|text| {
            let load = redis::cmd("SCRIPT").arg("LOAD").arg(text).clone();
            load.query(&mut self.connection).expect("a script that compiles")
        });
        self.scripts = scripts;
    }

    /// Empties the server.
    pub fn clear(&mut self) -> Look {
        for process in 0..PROCESSES {
            self.unsubscribe(process);
            self.barrier(process);
            while self.subscribers[process].pushes.try_recv().is_ok() {}
        }
        self.passed_on.clear();
        let mut memory = redis::cmd("CONFIG");
        memory.arg("SET").arg("maxmemory").arg("0");
        let mut rights = redis::cmd("ACL");
        rights.arg("SETUSER").arg("default").arg("+publish").arg("+pubsub");
        self.run(&[memory, rights, redis::cmd("FLUSHALL")]).1
    }

    /// Runs commands, and looks.
    pub fn run(&mut self, commands: &[Cmd]) -> (Vec<Value>, Look) {
        let mut look = redis::cmd("EVAL");
        look.arg(LOOK).arg(4).arg(LOCK).arg(QUEUE).arg(RECORDS).arg(FENCE);
        let mut packed = Vec::new();
        for command in commands.iter().chain([&look]) {
            command.write_packed_command(&mut packed);
        }
        let mut replies = self
            .connection
            .req_packed_commands(&packed, 0, commands.len() + 1)
            .expect("the server answers");
        let look = replies.pop().expect("a reply to each command");
        (replies, Look::read(&look))
    }

    /// Calls a script as the engine does, by its hash first.
    pub fn call(&mut self, which: Which, args: &[&str], then: &[Cmd]) -> (Vec<Value>, Look) {
        let reply = self.run(&self.invocation("EVALSHA", which, args, then));
        match &reply.0[0] {
            Value::ServerError(error) if error.code() == "NOSCRIPT" => {
                self.run(&self.invocation("EVAL", which, args, then))
            }
            _ => reply,
        }
    }

    fn invocation(&self, verb: &str, which: Which, args: &[&str], then: &[Cmd]) -> Vec<Cmd> {
        let (text, keys): (_, &[&str]) = match which {
            Which::Acquire => (&self.scripts.acquire, &[LOCK, QUEUE, RECORDS, FENCE]),
            Which::ReleaseUncontended => (&self.scripts.release_uncontended, &[LOCK, QUEUE]),
            Which::Release => (&self.scripts.release, &[LOCK, QUEUE, RECORDS, FENCE]),
            Which::Renew => (&self.scripts.renew, &[LOCK]),
        };
        let script = if verb == "EVAL" { text } else { &self.hashes[which as usize] };
        let mut cmd = redis::cmd(verb);
        cmd.arg(script).arg(keys.len()).arg(keys).arg(args);
        [cmd].into_iter().chain(then.iter().cloned()).collect()
    }

    pub fn subscribe(&mut self, process: usize, channel: &str) {
        self.unsubscribe(process);
        let subscriber = &mut self.subscribers[process];
        subscriber.connection.subscribe_resp3(channel).expect("a subscription");
        subscriber.channel = Some(channel.to_owned());
        self.barrier(process);
    }

    pub fn unsubscribe(&mut self, process: usize) {
        let subscriber = &mut self.subscribers[process];
        if let Some(channel) = subscriber.channel.take() {
            subscriber.connection.unsubscribe_resp3(channel).expect("an end of a subscription");
            self.barrier(process);
        }
    }

    /// The pushes to a process until now.
    pub fn pushes(&mut self, process: usize) -> Vec<Push> {
        self.barrier(process);
        let mut pushes = Vec::new();
        while let Ok(push) = self.subscribers[process].pushes.try_recv() {
            if let (PushKind::Message, [_, Value::BulkString(grant)]) =
                (push.kind, push.data.as_slice())
            {
                pushes.push(Push::read(process, grant));
            }
        }
        pushes.extend(self.passed_on.extract_if(.., |push| push.process == process));
        pushes
    }

    fn barrier(&mut self, process: usize) {
        let connection = &mut self.subscribers[process].connection;
        redis::cmd("PING").query::<()>(connection).expect("the server answers");
    }
}
