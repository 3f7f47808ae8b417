//! A Redis server without sockets, clocks and threads: bytes of clients and the time go in, and
//! bytes to clients come out.
//!
//! It answers as Redis 7.0 does, byte for byte, to every command that the runtime and its scripts
//! send. Scripts run in a real Lua 5.1. What it does not know is an error for the client, and is
//! listed by [`Server::unknown`].

mod call;
mod commands;
mod connection;
mod core;
mod keyspace;
mod lua;
mod number;
mod pattern;
mod pubsub;
mod reply;
mod request;
mod sorted_set;

use std::time::Duration;

pub use connection::ConnectionId;
use core::Core;
pub use core::Output;

/// A simulated server.
#[derive(Default)]
pub struct Server {
    core: Core,
}

impl Server {
    /// A server without data.
    pub fn new() -> Server {
        Server::default()
    }

    /// Names this run of the server, which began at that time.
    pub fn begin(&mut self, run_id: String, started: Duration) {
        (self.core.run_id, self.core.started) = (run_id, started);
    }

    /// Accepts a connection.
    pub fn connect(&mut self) -> ConnectionId {
        self.core.connect()
    }

    /// Forgets a connection whose client has closed it.
    pub fn disconnect(&mut self, id: ConnectionId) {
        self.core.disconnect(id);
    }

    /// Takes bytes of a client at `now`, the server's clock since 1970. Returns what the server
    /// sends, to this connection and to others, in order.
    ///
    /// Requests may arrive in pieces, and several at once. Bytes of a closed connection are
    /// ignored.
    pub fn receive(&mut self, id: ConnectionId, bytes: &[u8], now: Duration) -> Vec<Output> {
        self.core.now = now;
        self.core.receive(id, bytes);
        std::mem::take(&mut self.core.outputs)
    }

    /// Loses all data and scripts, and closes all connections, as a server without persistence
    /// does that is started again.
    pub fn restart_empty(&mut self) {
        self.core.restart(false);
    }

    /// Loses the scripts and closes all connections, as a server with persistence does that is
    /// started again.
    pub fn restart_with_data(&mut self) {
        self.core.restart(true);
    }

    /// The keys at `now`, and whether each of them expires.
    pub fn keys(&mut self, now: Duration) -> Vec<(String, bool)> {
        self.core.keyspace.now = now.as_millis() as u64;
        let keys = self.core.keyspace.iter();
        let name = |key: &[u8]| String::from_utf8_lossy(key).into_owned();
        keys.map(|(key, entry)| (name(key), entry.expires.is_some())).collect()
    }

    /// The commands that clients sent and this server does not know. A test that relies on its
    /// answers checks that there are none.
    pub fn unknown(&self) -> &[String] {
        &self.core.unknown
    }
}
