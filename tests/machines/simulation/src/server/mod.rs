//! A Redis server without sockets, clocks and threads: bytes of clients and the time go in, and
//! bytes to clients come out.
//!
//! It answers as Redis 7.0 does, byte for byte, to every command that the runtime and its scripts
//! send to a server that is no part of a cluster. Scripts run in a real Lua 5.1. What it does not know is an error for the client, and is
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
mod replication;
mod reply;
mod request;
mod served;
mod sorted_set;

use std::time::Duration;

pub use connection::ConnectionId;
use core::Core;
pub use core::Output;
use keyspace::Value;
pub use replication::{Change, ReplicaId, Snapshot};
#[cfg(feature = "processes")]
pub(crate) use request::Input;
pub use served::{Lock, Served};

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

    /// A server without data whose `run_id` is another one than that of other seeds.
    pub fn with_seed(seed: u64) -> Server {
        let mut server = Server::default();
        server.core.seed = seed;
        server
    }

    /// Counts the uptime from `now` on. Without this it counts from the first bytes of a client on.
    pub fn start(&mut self, now: Duration) {
        self.core.used_since = Some(now);
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

    /// When the server has to be called next, although nothing arrives: see [`Server::tick`].
    pub fn next_timeout(&self) -> Option<Duration> {
        self.core.next_timeout()
    }

    /// Ends what has lasted until `now`: a client's `WAIT` for replicas.
    pub fn tick(&mut self, now: Duration) -> Vec<Output> {
        self.core.now = now;
        self.core.answer_waiting();
        std::mem::take(&mut self.core.outputs)
    }

    /// Loses all data and scripts, and closes all connections, as a server without persistence
    /// does that is started again.
    pub fn restart_empty(&mut self) -> Vec<Output> {
        self.core.restart(false);
        std::mem::take(&mut self.core.outputs)
    }

    /// Loses the scripts and closes all connections, as a server with persistence does that is
    /// started again. It is a primary then.
    pub fn restart_with_data(&mut self) -> Vec<Output> {
        self.core.restart(true);
        std::mem::take(&mut self.core.outputs)
    }

    /// Whether the server still reads its data, and refuses most commands.
    pub fn set_loading(&mut self, is_loading: bool) {
        self.core.is_loading = is_loading;
    }

    /// Whether the server refuses writes, like a primary that is being replaced.
    pub fn set_read_only(&mut self, is_read_only: bool) {
        self.core.replication.primary = is_read_only.then(|| ("elsewhere".to_owned(), 6379));
    }

    /// All data, for a replica that begins to [`follow`](Server::follow).
    pub fn snapshot(&mut self) -> Snapshot {
        self.core.snapshot()
    }

    /// The number of changes so far: on a replica, of those that it has applied.
    pub fn offset(&self) -> u64 {
        self.core.replication.offset
    }

    /// The changes after an offset, in order, for a replica to [`apply`](Server::apply): those
    /// since the first snapshot.
    pub fn changes_after(&self, offset: u64) -> &[Change] {
        self.core.replication.after(offset)
    }

    /// Notes that a replica is connected and has applied the changes up to an offset. Answers the
    /// clients that wait for it.
    pub fn acknowledge(&mut self, replica: ReplicaId, offset: u64, now: Duration) -> Vec<Output> {
        self.core.replication.replicas.insert(replica, offset);
        self.tick(now)
    }

    /// Notes that a replica is not connected any more.
    pub fn lose_replica(&mut self, replica: ReplicaId) {
        self.core.replication.replicas.remove(&replica);
    }

    /// Makes this server a replica, with the data of its primary. Clients that wait for replicas
    /// are answered with an error.
    pub fn follow(&mut self, primary: (String, u16), snapshot: Snapshot) -> Vec<Output> {
        self.core.follow(primary, snapshot);
        std::mem::take(&mut self.core.outputs)
    }

    /// Applies the next change of the primary.
    ///
    /// # Panics
    /// Where the server is no replica, or a change before this one is missing.
    pub fn apply(&mut self, change: &Change) {
        self.core.apply(change);
    }

    /// Makes this replica a primary, with the data that it has.
    pub fn promote(&mut self) {
        self.core.replication.primary = None;
    }

    /// The keys at `now`, and whether each of them expires.
    pub fn keys(&mut self, now: Duration) -> Vec<(String, bool)> {
        self.core.keyspace.now = now.as_millis() as u64;
        let keys = self.core.keyspace.iter();
        let name = |key: &[u8]| String::from_utf8_lossy(key).into_owned();
        keys.map(|(key, entry)| (name(key), entry.expires.is_some())).collect()
    }

    /// The value of a key that holds a string at `now`, and when it expires, in milliseconds since
    /// 1970 by this server's clock.
    pub fn string(&mut self, key: &str, now: Duration) -> Option<(String, Option<u64>)> {
        self.core.keyspace.now = now.as_millis() as u64;
        let entry = self.core.keyspace.entry(key.as_bytes())?;
        match &entry.value {
            Value::String(value) => {
                Some((String::from_utf8_lossy(value).into_owned(), entry.expires))
            }
            _ => None,
        }
    }

    /// The members of a key that holds a sorted set at `now`, and their scores.
    pub fn scores(&mut self, key: &str, now: Duration) -> Vec<(String, f64)> {
        self.core.keyspace.now = now.as_millis() as u64;
        let Some(entry) = self.core.keyspace.entry(key.as_bytes()) else { return Vec::new() };
        let Value::SortedSet(set) = &entry.value else { return Vec::new() };
        let text = |member: &[u8]| String::from_utf8_lossy(member).into_owned();
        set.iter().map(|(member, score)| (text(member), score)).collect()
    }

    /// Notes from now on what is served to clients about locks.
    pub fn watch(&mut self) {
        self.core.served = Some(Vec::new());
    }

    /// What was served since the last call, if the server is watched.
    pub fn take_served(&mut self) -> Vec<Served> {
        self.core.served.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// The commands that clients sent and this server does not know. A test that relies on its
    /// answers checks that there are none.
    pub fn unknown(&self) -> &[String] {
        &self.core.unknown
    }
}
