//! A machine with a server on it.

use std::time::Duration;

use crate::process::Clock;
use crate::server::{ConnectionId, Output, Server};
use crate::world::BEGIN;

pub(crate) struct Host {
    pub(crate) server: Server,
    clock: Clock,
    nth: usize,
    runs: u32,
    /// The server is stopped until then, and its system still takes connections.
    pub(crate) frozen_until: Duration,
    pub(crate) down: bool,
}

impl Host {
    pub(crate) fn new(nth: usize, clock: Clock) -> Self {
        let (server, frozen_until) = (Server::new(), Duration::ZERO);
        let mut host = Self { server, clock, nth, runs: 0, frozen_until, down: false };
        host.begin(Duration::ZERO);
        host
    }

    fn begin(&mut self, now: Duration) {
        self.runs += 1;
        self.server.begin(format!("{:020}{:020}", self.nth, self.runs), self.clock(now));
    }

    /// The server's clock, since 1970.
    pub(crate) fn clock(&self, now: Duration) -> Duration {
        BEGIN + self.clock.after(now)
    }

    pub(crate) fn receive(&mut self, id: ConnectionId, bytes: &[u8], now: Duration) -> Vec<Output> {
        let clock = self.clock(now);
        self.server.receive(id, bytes, clock)
    }

    /// Starts the server again, with the data that it had or without.
    pub(crate) fn restart(&mut self, now: Duration, keeps: bool) {
        // All connections were closed when it ended.
        drop(match keeps {
            true => self.server.restart_with_data(),
            false => self.server.restart_empty(),
        });
        self.begin(now);
    }
}
