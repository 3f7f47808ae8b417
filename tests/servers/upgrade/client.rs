//! A program of an earlier version, as far as the server sees it.
//!
//! Its scripts are those of commit 8f195e38, and its commands are what its client sent. That is the
//! last version before the format on Redis has changed: tokens had no number of permits then, kept
//! values had keys of their own, and stored calls no time. `git show` has the scripts of a later
//! commit when the format changes again.

use std::time::Duration;

use lockmacro_tests::times::IN_TIME;
use lockmacro_tests::{Admin, Server};
use redis::{FromRedisValue, Value, from_redis_value};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::timeout;

macro_rules! script {
    ($($file:literal),+) => {
        concat!($(include_str!(concat!("earlier/", $file, ".lua"))),+)
    };
    ($before:tt of each lock: $($file:literal),+) => {
        concat!(
            script! $before,
            "local function one()\n",
            script!($($file),+),
            "end\n",
            script!("for_each_lock"),
        )
    };
}

const ACQUIRE: &str = script!("queue", "grant", "acquire");
const ACQUIRE_SHARED: &str = script!("acquire_shared", "for_each_call");
const ACQUIRE_ALL: &str = script!("several_locks", "queue", "grant", "acquire_all");
const RELEASE: &str = script!("release_unqueued", "queue", "release");
const RELEASE_UNCONTENDED: &str = script!("release_uncontended", "for_each_call");
const RELEASE_SHARED: &str = script!("release_shared", "for_each_call");
const RELEASE_ALL: &str =
    script!(("several_locks", "queue") of each lock: "release_unqueued", "release");
const RENEW: &str = script!("renew");
const RENEW_ALL: &str = script!(("several_locks") of each lock: "renew");
const PUT: &str = script!("jobs/check_memory", "jobs/calls", "jobs/put");
const TAKE: &str = script!("jobs/calls", "jobs/take");
const SETTLE: &str = script!("jobs/calls", "jobs/settle");

const OF_A_LOCK: &[&str] = &["q", "w", "f", "h"];
const OF_CALLS: &[&str] = &["d", "r", "x", "u", "i", "o"];

const TTL_MS: &str = "60000";
const CONFIRM_WINDOW_MS: &str = "5000";
const FENCE_RETENTION_MS: &str = "604800000";
const QUEUE_MAX: &str = "10000";
const WAITER_TTL_MS: &str = "10000";
const TICK: Duration = Duration::from_secs(2);

/// What is asked for.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) keys: Vec<String>,
    /// How many may hold a key: 1 for an exclusive lock, 0 for a shared one.
    pub(crate) limit: u32,
    pub(crate) fenced: bool,
}

impl Request {
    pub(crate) fn of(key: &str) -> Self {
        Self { keys: vec![key.to_owned()], limit: 1, fenced: false }
    }

    pub(crate) fn of_all(keys: &[String]) -> Self {
        Self { keys: keys.to_vec(), limit: 1, fenced: false }
    }

    pub(crate) fn permits(self, limit: u32) -> Self {
        Self { limit, ..self }
    }

    pub(crate) fn fenced(self) -> Self {
        Self { fenced: true, ..self }
    }
}

/// A lock that was granted.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    pub(crate) request: Request,
    pub(crate) token: String,
    /// The first and the last fence of each key.
    pub(crate) fences: Vec<[u64; 2]>,
}

/// A stored call that was taken.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) id: String,
    pub(crate) arguments: String,
    pub(crate) key: String,
    claim: u64,
}

/// The answer to a request for a lock.
enum Asked {
    /// With the fences, as the server writes them.
    Granted(Vec<String>),
    Contended,
}

pub(crate) struct Program {
    server: Admin,
    channel: String,
    pushes: UnboundedReceiver<String>,
}

impl Program {
    pub(crate) fn on(server: &Server) -> Self {
        let channel = format!("lm1:{:032x}", fastrand::u128(..));
        let client = redis::Client::open(server.url()).expect("an address");
        let mut listening = client.get_connection().expect("let in");
        let (sender, pushes) = unbounded_channel();
        let name = channel.clone();
        let (subscribed, is_subscribed) = std::sync::mpsc::channel();
        // Ends with the server.
        std::thread::spawn(move || {
            let mut listening = listening.as_pubsub();
            listening.subscribe(name).expect("subscribed");
            subscribed.send(()).expect("awaited");
            while let Ok(push) = listening.get_message() {
                if sender.send(push.get_payload().expect("text")).is_err() {
                    return;
                }
            }
        });
        is_subscribed.recv_timeout(IN_TIME).expect("subscribed");
        Self { server: server.admin(), channel, pushes }
    }

    fn eval<T: FromRedisValue>(&mut self, script: &str, keys: &[String], args: &[&str]) -> T {
        let count = keys.len().to_string();
        let mut words = vec!["EVAL", script, &count];
        words.extend(keys.iter().map(String::as_str));
        words.extend(args);
        self.server.ask(&words)
    }

    /// Asks once, as a caller that does not wait.
    pub(crate) fn ask(&mut self, request: Request) -> Option<Held> {
        let token = token();
        let limit = request.limit.to_string();
        if request.keys.len() == 1 && !request.fenced {
            let key = &request.keys[0];
            let granted = if request.limit == 1 {
                let set = ["SET", key, &token, "NX", "PX", TTL_MS];
                self.server.ask::<Option<String>>(&set).is_some()
            } else {
                let keys = companions(&request.keys, &["q", "h"]);
                self.eval(ACQUIRE_SHARED, &keys, &[&token, TTL_MS, &limit])
            };
            if granted {
                return Some(Held { request, token, fences: Vec::new() });
            }
        }
        let limits = format!("{limit} ").repeat(request.keys.len());
        let keys = companions(&request.keys, OF_A_LOCK);
        let fenced = if request.fenced { "1" } else { "0" };
        let args = [&token, TTL_MS, fenced, CONFIRM_WINDOW_MS, FENCE_RETENTION_MS, &*limits];
        let script = if request.keys.len() == 1 { ACQUIRE } else { ACQUIRE_ALL };
        match asked(self.eval(script, &keys, &args)) {
            Asked::Granted(fences) => Some(held(request, token, &fences)),
            Asked::Contended => None,
        }
    }

    /// Waits for a lock on one key: asks with a place in the queue, and again with each tick.
    pub(crate) async fn acquire(&mut self, request: Request) -> Held {
        let number = format!("{:020}", fastrand::u64(..));
        let mut token = token();
        let keys = companions(&request.keys, OF_A_LOCK);
        let fenced = u8::from(request.fenced).to_string();
        let limit = request.limit.to_string();
        loop {
            let id = format!("{number}{:020}", fastrand::u64(..));
            let record = format!("{TTL_MS}|{fenced}|1|{id}|{}|1|{limit}|", self.channel);
            let (window, retention) = (CONFIRM_WINDOW_MS, FENCE_RETENTION_MS);
            let asks = [&*token, TTL_MS, &fenced, window, retention, &limit];
            let waits = [QUEUE_MAX, WAITER_TTL_MS, &record];
            let args = [&asks[..], &waits].concat();
            if let Asked::Granted(fences) = asked(self.eval(ACQUIRE, &keys, &args)) {
                return held(request, token, &fences);
            }
            // Asks again after a tick, and after a push that grants nothing.
            let Ok(push) = timeout(TICK, self.pushed(&number)).await else { continue };
            if push[0] == id {
                let fences = if request.fenced { &push[1..2] } else { &[] };
                let handed = held(request.clone(), token, fences);
                if self.renew(&handed) {
                    return handed;
                }
                token = self::token();
            }
        }
    }

    /// The fields of the next push to a waiter with this number.
    async fn pushed(&mut self, number: &str) -> Vec<String> {
        loop {
            let push = self.pushes.recv().await.expect("it listens");
            if push.starts_with(number) {
                return push.split('|').map(str::to_owned).collect();
            }
        }
    }

    /// Renews a lock, as a holder does, and a waiter that it was handed to. Returns whether it is
    /// held.
    pub(crate) fn renew(&mut self, held: &Held) -> bool {
        let Request { keys, limit, .. } = &held.request;
        let args = [&*held.token, TTL_MS];
        match (&keys[..], limit) {
            ([_], 1) => self.eval(RENEW, keys, &args),
            ([_], _) => self.eval(RENEW, &companions(keys, &["h"]), &args),
            _ => self.eval(RENEW_ALL, &companions(keys, OF_A_LOCK), &args),
        }
    }

    /// Releases a lock. Returns whether it was held.
    pub(crate) fn release(&mut self, held: &Held) -> bool {
        let Request { keys, limit, .. } = &held.request;
        if let [_] = keys[..] {
            let (script, kinds): (_, &[&str]) = match limit {
                1 => (RELEASE_UNCONTENDED, &["q"]),
                _ => (RELEASE_SHARED, &["q", "h"]),
            };
            let released: u8 = self.eval(script, &companions(keys, kinds), &[&held.token]);
            // 2: others wait.
            if released < 2 {
                return released == 1;
            }
        }
        let args = [&*held.token, "0", CONFIRM_WINDOW_MS, FENCE_RETENTION_MS];
        let script = if keys.len() == 1 { RELEASE } else { RELEASE_ALL };
        self.eval(script, &companions(keys, OF_A_LOCK), &args)
    }

    /// Stores a call of a function, which is due at once. `keep` is "all", "first" or "latest".
    /// Returns the id of the call that waits.
    pub(crate) fn put(&mut self, function: &str, key: &str, arguments: &str, keep: &str) -> String {
        let id = format!("{:032x}", fastrand::u128(..));
        let args = [&*id, "0", arguments, key, keep, "10000", "10", "0"];
        let (waits, _): (String, u64) = self.eval(PUT, &of_calls(function), &args);
        waits
    }

    /// Takes a call that is due, if there is one.
    pub(crate) fn take(&mut self, function: &str) -> Option<Taken> {
        type Call = (String, String, String, u32, u64, u32);
        let request = format!("{:032x}", fastrand::u128(..));
        let error = " runs of it have not ended";
        let args = ["1", TTL_MS, "", "2000", &request, "262144", "10000", error];
        let (_, _, dead, calls): (u64, u64, Vec<(String, u64)>, Vec<Call>) =
            self.eval(TAKE, &of_calls(function), &args);
        assert_eq!(dead, []);
        let taken = |(id, arguments, key, _, claim, _)| Taken { id, arguments, key, claim };
        calls.into_iter().map(taken).next()
    }

    /// Ends a call: "done", or "again". Returns whether it was still this program's.
    pub(crate) fn settle(&mut self, function: &str, taken: &Taken, how: &str) -> bool {
        let args = [&*taken.id, &taken.claim.to_string(), how, "0", "it failed", "10000"];
        self.eval(SETTLE, &of_calls(function), &args)
    }
}

fn token() -> String {
    format!("earlier:4711:order ~t8nxqs/{:032x}", fastrand::u128(..))
}

/// Each key, without braces in it, and after it those beside it.
fn companions(keys: &[String], kinds: &[&str]) -> Vec<String> {
    let of_one = |key: &String| {
        let beside = kinds.iter().map(move |kind| format!("lm1:w{kind}:{{{key}}}"));
        std::iter::once(key.clone()).chain(beside.collect::<Vec<_>>())
    };
    keys.iter().flat_map(of_one).collect()
}

fn of_calls(function: &str) -> Vec<String> {
    companions(&[format!("lm1:jobs:{function}")], OF_CALLS)
}

fn asked(reply: Value) -> Asked {
    match reply {
        Value::Int(1) => Asked::Granted(Vec::new()),
        Value::BulkString(fence) => {
            Asked::Granted(vec![String::from_utf8(fence).expect("a number")])
        }
        Value::Array(parts) if matches!(parts[0], Value::BulkString(_)) => {
            let fences = from_redis_value(Value::Array(parts));
            Asked::Granted(fences.expect("numbers"))
        }
        Value::Array(_) => Asked::Contended,
        other => panic!("{other:?}"),
    }
}

fn held(request: Request, token: String, fences: &[String]) -> Held {
    let number = |text: &str| text.parse().expect("a number");
    let of_one = |fences: &String| {
        let (first, last) = fences.split_once('-').unwrap_or((fences, fences));
        [number(first), number(last)]
    };
    Held { request, token, fences: fences.iter().map(of_one).collect() }
}
