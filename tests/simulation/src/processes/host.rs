//! A machine with a server on it.

use std::time::Duration;

use crate::processes::process::Clock;
use crate::processes::world::BEGIN;
use crate::server::{ConnectionId, Output, Server};

pub(crate) struct Host {
    pub(crate) server: Server,
    clock: Clock,
    /// The server is stopped until then, and its system still takes connections.
    pub(crate) frozen_until: Duration,
    pub(crate) down: bool,
}

impl Host {
    pub(crate) fn new(nth: usize, clock: Clock) -> Self {
        let server = Server::with_seed(nth as u64);
        let mut host = Self { server, clock, frozen_until: Duration::ZERO, down: false };
        host.server.start(host.clock(Duration::ZERO));
        host
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
        self.server.start(self.clock(now));
    }
}
