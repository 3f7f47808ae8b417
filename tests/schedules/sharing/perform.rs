//! The commands of each event.

use crate::model::{CONFIRM_WINDOW, FENCE_TTL, Reply};
use crate::perform::{answer, one, words};
use crate::sharing::model::{Client, Event};
use crate::sharing::schedule::{LAST, Schedule, Stop};
use crate::store::{HOLDERS, LOCK, Look, QUEUE, RECORDS, Which};

impl Schedule<'_> {
    /// Performs an event, and reads the state after it.
    pub fn perform(&mut self, event: Event) -> Result<(Reply, Look), Stop> {
        let token = |client: usize| self.world.clients[client].token.clone();
        let own =
            |(replies, look): (Vec<redis::Value>, Look)| Ok((Reply::Own(one(&replies[0])), look));
        let commands = match event {
            Event::Ask { client, lease } => return self.perform_ask(client, lease),
            Event::Release { client, keep } => {
                let token = token(client);
                if keep == 0 && self.is_merged(client) {
                    let (replies, look) = self.store.call(Which::ReleaseShared, &[&token], &[]);
                    // Otherwise there are waiters.
                    if replies[0] != redis::Value::Int(2) {
                        return own((replies, look));
                    }
                }
                let keep = keep.to_string();
                let args = [&*token, &keep, &CONFIRM_WINDOW.to_string(), &FENCE_TTL.to_string()];
                return own(self.store.call(Which::Release, &args, &[]));
            }
            Event::Renew { client, ttl } => {
                let args = [&*token(client), &ttl.to_string()];
                return own(self.store.call(Which::RenewShared, &args, &[]));
            }
            Event::Over { client } => {
                let over = "if redis.call('GET', KEYS[1]) == ARGV[1] then
                        return redis.call('DEL', KEYS[1])
                    end
                    local time = redis.call('TIME')
                    local now = time[1] * 1000 + math.floor(time[2] / 1000)
                    redis.call('ZADD', KEYS[2], 'XX', string.format('%.0f', now - 1), ARGV[1])
                    local last = redis.call('ZRANGE', KEYS[2], -1, -1, 'WITHSCORES')[2]
                    local held = redis.call('GET', KEYS[1]) or ''
                    if not string.find(held, '/shared$') then return 0 end
                    redis.call('PEXPIREAT', KEYS[2], last)
                    return redis.call('PEXPIREAT', KEYS[1], last)";
                words(&["EVAL", over, "2", LOCK, HOLDERS, &token(client)])
            }
            Event::ForeignSet => words(&["SET", LOCK, "a stranger", "NX", "PX", "20000"]),
            Event::ForeignDelete => words(&["DEL", LOCK]),
            Event::Up { process } => {
                self.store.subscribe(process, &channel(process));
                return Ok((Reply::None, self.store.run(&[]).1));
            }
            Event::Down { process } => {
                self.store.unsubscribe(process);
                return Ok((Reply::None, self.store.run(&[]).1));
            }
            Event::Flush => words(&["SCRIPT", "FLUSH"]),
        };
        Ok((Reply::None, self.store.run(&[commands]).1))
    }

    /// Whether a client's calls are those that are merged, before the whole scripts.
    fn is_merged(&self, client: usize) -> bool {
        let Client { limit, fenced, .. } = self.world.clients[client];
        limit != 1 && !fenced && client.is_multiple_of(2)
    }

    fn perform_ask(&mut self, client: usize, lease: u64) -> Result<(Reply, Look), Stop> {
        let Client { token, process, limit, fenced, ttl, .. } = &self.world.clients[client];
        let (ttl, limit, fenced) = (ttl.to_string(), limit.to_string(), u8::from(*fenced));
        let probe = u8::from(self.world.up[*process]);
        let record = format!("{ttl}|{fenced}|{probe}|{client}|{}|1|{limit}", channel(*process));
        let (window, retention) = (CONFIRM_WINDOW.to_string(), FENCE_TTL.to_string());
        if self.is_merged(client) {
            let args = [&**token, &ttl, &limit];
            let (replies, look) = self.store.call(Which::AcquireShared, &args, &[]);
            // Otherwise the whole script decides.
            if one(&replies[0]) {
                return Ok((answer(&replies[0]), look));
            }
        }
        let (fenced, lease_ms) = (fenced.to_string(), lease.to_string());
        let max_queue = if lease > 0 { "10000" } else { "0" };
        let args =
            [token, &*ttl, &fenced, &window, &retention, &limit, max_queue, &lease_ms, &record];
        // As if only the lease of this waiter were about to end, and not that of all.
        let more: Vec<_> = match lease {
            LAST => [QUEUE, RECORDS].map(|key| words(&["PEXPIRE", key, "15000"])).into(),
            _ => Vec::new(),
        };
        let (replies, look) = self.store.call(Which::Acquire, &args, &more);
        let reply = answer(&replies[0]);
        let waits = matches!(&reply, Reply::Busy(_, _, Some((0.., _))));
        if waits && replies[1..].iter().any(|reply| !one(reply)) {
            return Err(Stop::Stalled);
        }
        Ok((reply, look))
    }
}

fn channel(process: usize) -> String {
    format!("lm1:{process}")
}
