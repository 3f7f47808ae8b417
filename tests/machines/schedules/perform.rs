//! The commands of each event.

use std::time::Duration;

use redis::{Cmd, Value};

use crate::model::{CONFIRM_WINDOW, Client, Event, FENCE_TTL, Reply};
use crate::runner::Stop;
use crate::schedule::{LAST, Schedule};
use crate::scripts::Script;
use crate::store::{FENCE, HOLDERS, LOCK, Look, NUMBER_DIGITS, QUEUE, RECORDS, SECRET, block};

/// Ends the lease of one holder.
const OVER: &str = "
if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZADD', KEYS[2], 'XX', string.format('%.0f', now - 1), ARGV[1])
local last = redis.call('ZRANGE', KEYS[2], -1, -1, 'WITHSCORES')[2]
if not string.find(redis.call('GET', KEYS[1]) or '', '/shared$') then return 0 end
redis.call('PEXPIREAT', KEYS[2], last)
return redis.call('PEXPIREAT', KEYS[1], last)";

impl Schedule<'_> {
    /// Performs an event, and reads the state after it.
    pub fn perform(&mut self, event: &Event) -> Result<(Reply, Look), Stop> {
        match *event {
            Event::Ask { client, max_queue, lease, .. } => {
                return self.perform_ask(client, max_queue, lease);
            }
            Event::Set { client, .. } => {
                let client = &self.world.clients[client];
                let (replies, look) = self.store.run(&[set(&client.token, client.ttl)]);
                return Ok((Reply::Own(replies[0] == Value::Okay), look));
            }
            Event::Release { client, keep } => {
                let Client { token, max_queue, .. } = &self.world.clients[client];
                // The cheaper scripts say when others wait.
                let cheaper = match self.world.shares {
                    true => self.is_merged(client).then_some(Script::ReleaseShared),
                    false => (*max_queue == 0).then_some(Script::ReleaseUncontended),
                };
                if let Some(cheaper) = cheaper.filter(|_| keep == 0) {
                    let (replies, look) = self.store.call(cheaper, &[token], &[]);
                    if replies[0] != Value::Int(2) {
                        return Ok((Reply::Own(one(&replies[0])), look));
                    }
                }
                let [keep, confirm_window, fence_ttl] =
                    [keep, CONFIRM_WINDOW, FENCE_TTL].map(|number| number.to_string());
                let args = [token.as_str(), &keep, &confirm_window, &fence_ttl];
                let (replies, look) = self.store.call(Script::Release, &args, &[]);
                return Ok((Reply::Own(one(&replies[0])), look));
            }
            Event::Renew { client, ttl } => {
                let args = [self.world.clients[client].token.as_str(), &ttl.to_string()];
                let script = if self.world.shares { Script::RenewShared } else { Script::Renew };
                let (replies, look) = self.store.call(script, &args, &[]);
                return Ok((Reply::Own(one(&replies[0])), look));
            }
            Event::CrashProcess { process } | Event::Down { process } => {
                self.store.unsubscribe(process);
            }
            Event::Up { process } => {
                let channel = self.world.channel(process);
                self.store.subscribe(process, &channel);
            }
            _ => {}
        }
        let commands: &[Cmd] = match event {
            Event::Expire if self.rng.u8(..4) > 0 => &[words(&["DEL", LOCK])],
            Event::Expire => {
                self.store.run(&[words(&["PEXPIRE", LOCK, "1"])]);
                self.store.pause(Duration::from_micros(2_200));
                &[]
            }
            Event::Over { client } => {
                &[words(&["EVAL", OVER, "2", LOCK, HOLDERS, &self.world.clients[*client].token])]
            }
            Event::ForeignSet => &[set("a stranger", 20_000)],
            Event::Delete => &[words(&["DEL", LOCK])],
            Event::ForeignDelete => {
                let compare = "if redis.call('GET', KEYS[1]) == ARGV[1] then \
                               return redis.call('DEL', KEYS[1]) end return 0";
                &[words(&["EVAL", compare, "1", LOCK, "a stranger"])]
            }
            Event::FenceForgotten => &[words(&["DEL", FENCE])],
            Event::FenceAhead(fence) => {
                &[words(&["SET", FENCE, &fence.to_string(), "PX", "604800000"])]
            }
            Event::Silence => {
                let over = |key| words(&["PEXPIRE", key, "1"]);
                self.store.run(&[over(QUEUE), over(RECORDS)]);
                self.store.pause(Duration::from_micros(2_200));
                &[]
            }
            Event::Publish(may) => {
                let sign = if *may { '+' } else { '-' };
                let (publish, ask) = (format!("{sign}publish"), format!("{sign}pubsub"));
                &[words(&["ACL", "SETUSER", "default", &publish, &ask])]
            }
            Event::Memory(left) => {
                let most = if *left { "0" } else { "1" };
                &[words(&["CONFIG", "SET", "maxmemory", most])]
            }
            Event::Flush => &[words(&["SCRIPT", "FLUSH"])],
            _ => &[],
        };
        Ok((Reply::None, self.store.run(commands).1))
    }

    /// Whether the calls of a client are those that are merged, before the whole scripts.
    fn is_merged(&self, client: usize) -> bool {
        let Client { limit, fenced, .. } = self.world.clients[client];
        limit != 1 && !fenced && client.is_multiple_of(2)
    }

    fn perform_ask(
        &mut self,
        client: usize,
        max_queue: usize,
        lease: u64,
    ) -> Result<(Reply, Look), Stop> {
        let channel = self.world.channel(self.world.clients[client].process);
        let answered = self.world.reachable(client);
        let Client { token, limit, ttl, fenced, .. } = &self.world.clients[client];
        let numbers = [
            *ttl,
            u64::from(*limit),
            CONFIRM_WINDOW,
            FENCE_TTL,
            max_queue as u64,
            lease,
            client as u64,
        ];
        let [ttl, limit, confirm_window, fence_ttl, max_queue, lease_ms, number] =
            numbers.map(|number| number.to_string());
        if self.is_merged(client) {
            let (replies, look) =
                self.store.call(Script::AcquireShared, &[token, &ttl, &limit], &[]);
            // Otherwise the whole script decides.
            if one(&replies[0]) {
                return Ok((answer(&replies[0]), look));
            }
        }
        let id = format!("{number:0>NUMBER_DIGITS$}{SECRET:020}");
        let flag = |flag: bool| if flag { "1" } else { "0" };
        let fenced = flag(*fenced);
        let record = format!("{ttl}|{fenced}|{}|{id}|{channel}|1|{limit}", flag(answered));
        let mut args = vec![
            token.as_str(),
            &ttl,
            fenced,
            &confirm_window,
            &fence_ttl,
            &limit,
            "0",
            &max_queue,
        ];
        if max_queue != "0" {
            args.extend([lease_ms.as_str(), &record]);
        }
        // As if only the lease of this waiter were about to end, and not that of all.
        let more: Vec<Cmd> = match lease {
            LAST => [QUEUE, RECORDS].map(|key| words(&["PEXPIRE", key, "15000"])).into(),
            _ => Vec::new(),
        };
        let (replies, look) = self.store.call(Script::Acquire, &args, &more);
        let reply = answer(&replies[0]);
        // The machine may have stopped the server in between, until the queue was gone. One that is
        // granted the lock may leave others in it.
        let waits = matches!(&reply, Reply::Busy(_, _, Some((0.., _))));
        if (waits || self.look.queue.len() > 1) && replies[1..].iter().any(|reply| !one(reply)) {
            return Err(Stop::Stalled);
        }
        Ok((reply, look))
    }
}

fn words(words: &[&str]) -> Cmd {
    let mut cmd = redis::cmd(words[0]);
    cmd.arg(&words[1..]);
    cmd
}

fn set(value: &str, ttl: u64) -> Cmd {
    words(&["SET", LOCK, value, "NX", "PX", &ttl.to_string()])
}

fn one(reply: &Value) -> bool {
    match reply {
        Value::Int(number @ (0 | 1)) => *number == 1,
        other => panic!("neither 0 nor 1: {other:?}"),
    }
}

fn answer(reply: &Value) -> Reply {
    let number = |text: &[u8]| String::from_utf8_lossy(text).parse().expect("a number");
    match reply {
        Value::Int(1) => Reply::Granted(None),
        Value::BulkString(fences) => Reply::Granted(Some(block(&String::from_utf8_lossy(fences)))),
        Value::Array(parts) => match &parts[..] {
            [Value::Int(left), Value::BulkString(holder), queued @ ..] => {
                let queued = match queued {
                    [Value::Int(rank), Value::BulkString(at)] => Some((*rank, number(at))),
                    _ => None,
                };
                Reply::Busy(*left, String::from_utf8_lossy(holder).into_owned(), queued)
            }
            _ => panic!("an answer: {parts:?}"),
        },
        Value::ServerError(error) if error.code() == "OOM" => Reply::Refused,
        other => panic!("an answer: {other:?}"),
    }
}
