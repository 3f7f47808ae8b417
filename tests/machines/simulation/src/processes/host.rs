//! A machine with a server on it.

use std::time::Duration;

use crate::processes::process::Clock;
use crate::processes::scenario::ms;
use crate::processes::sim::sim;
use crate::processes::work::{label_of, name_of};
use crate::processes::world::BEGIN;
use crate::server::{ConnectionId, Output, Server};

pub(crate) struct Host {
    nth: usize,
    pub(crate) server: Server,
    clock: Clock,
    /// The server is stopped until then, and its system still takes connections.
    pub(crate) frozen_until: Duration,
    /// Until when it refuses commands because it reads its data, and writes because it is to be
    /// replaced.
    pub(crate) loads_until: Duration,
    pub(crate) reads_until: Duration,
    pub(crate) down: bool,
    /// When it last lost its data.
    pub(crate) forgot: Option<Duration>,
}

impl Host {
    pub(crate) fn new(nth: usize, clock: Clock) -> Self {
        let server = Server::with_seed(nth as u64);
        let (frozen_until, loads_until, reads_until, down, forgot) = Default::default();
        let mut host =
            Self { nth, server, clock, frozen_until, loads_until, reads_until, down, forgot };
        host.server.start(host.clock(Duration::ZERO));
        host
    }

    /// The server's clock, since 1970.
    pub(crate) fn clock(&self, now: Duration) -> Duration {
        BEGIN + self.clock.after(now)
    }

    /// Whether a process has a lock at `now` that this server keeps until `until`.
    pub(crate) fn keeps(
        &mut self,
        process: usize,
        key: usize,
        now: Duration,
        until: Duration,
    ) -> bool {
        let (now, until) = (self.clock(now), self.clock(until).as_millis() as u64);
        let (name, label) = (name_of(key), label_of(process));
        let Some((value, expires)) = self.server.string(&name, now) else { return false };
        if !value.ends_with("/shared") {
            return value.starts_with(&label) && expires.is_none_or(|at| at >= until);
        }
        let holders = self.server.scores(&format!("lm1:wh:{{{name}}}"), now);
        let keeps =
            |(token, ends): &(String, f64)| token.starts_with(&label) && *ends >= until as f64;
        expires.is_none_or(|at| at >= until) && holders.iter().any(keeps)
    }

    /// Whether somebody has a lock at `now`.
    pub(crate) fn has(&mut self, key: usize, now: Duration) -> bool {
        let now = self.clock(now);
        self.server.string(&name_of(key), now).is_some()
    }

    /// The last fence of a lock, as long as the server keeps it.
    pub(crate) fn last_fence(&mut self, key: usize, now: Duration) -> Option<u64> {
        let now = self.clock(now);
        let (fence, _) = self.server.string(&format!("lm1:wf:{{{}}}", name_of(key)), now)?;
        fence.parse().ok()
    }

    /// Sends a command, as another program does.
    pub(crate) fn command(&mut self, words: &[&str], now: Duration) {
        let client = self.server.connect();
        let mut command = format!("*{}\r\n", words.len());
        words.iter().for_each(|word| command += &format!("${}\r\n{word}\r\n", word.len()));
        drop(self.receive(client, command.as_bytes(), now));
        self.server.disconnect(client);
    }

    pub(crate) fn receive(&mut self, id: ConnectionId, bytes: &[u8], now: Duration) -> Vec<Output> {
        let clock = self.clock(now);
        if self.loads_until > Duration::ZERO || self.reads_until > Duration::ZERO {
            self.server.set_loading(now < self.loads_until);
            self.server.set_read_only(now < self.reads_until);
        }
        let outputs = self.server.receive(id, bytes, clock);
        for served in self.server.take_served() {
            sim().traces.served(self.nth, &served);
        }
        outputs
    }

    /// When, by the true clock, somebody has waited for replicas for long enough.
    pub(crate) fn next_timeout(&self) -> Option<Duration> {
        let at = self.server.next_timeout()?.saturating_sub(BEGIN + self.clock.start);
        Some(self.clock.truly(at) + ms(1))
    }

    /// Starts the server again, with the data that it had or without.
    pub(crate) fn restart(&mut self, now: Duration, keeps: bool) {
        self.forgot = if keeps { self.forgot } else { Some(now) };
        // All connections were closed when it ended.
        drop(match keeps {
            true => self.server.restart_with_data(),
            false => self.server.restart_empty(),
        });
        self.server.start(self.clock(now));
    }
}
