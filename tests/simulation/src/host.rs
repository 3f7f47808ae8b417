//! A machine with a server on it.

use std::time::Duration;

use crate::process::Clock;
use crate::server::{ConnectionId, Output, Server};
use crate::world::BEGIN;

pub struct Host {
    pub server: Server,
    clock: Clock,
    /// The server is stopped until then, and its system still takes connections.
    pub frozen_until: Duration,
    pub down: bool,
}

impl Host {
    pub fn new(server: Server, clock: Clock) -> Self {
        Self { server, clock, frozen_until: Duration::ZERO, down: false }
    }

    /// The server's clock, since 1970.
    pub fn clock(&self, now: Duration) -> Duration {
        BEGIN + self.clock.after(now)
    }

    pub fn receive(&mut self, id: ConnectionId, bytes: &[u8], now: Duration) -> Vec<Output> {
        let clock = self.clock(now);
        self.server.receive(id, bytes, clock)
    }

    /// Starts the server again, with the data that it had or without.
    pub fn restart(&mut self, _now: Duration, keeps: bool) {
        match keeps {
            true => self.server.restart_with_data(),
            false => self.server.restart_empty(),
        }
    }
}
