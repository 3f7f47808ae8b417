//! What a server keeps, and the bytes that it sends.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::connection::{Connection, ConnectionId, Protocol};
use super::keyspace::Keyspace;
use super::pubsub::Channels;
use super::replication::Replication;
use super::reply::{Fault, Reply};
use super::served::Served;

/// What a server sends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// Bytes to a client.
    Send(ConnectionId, Vec<u8>),
    /// The server closes the connection, after the bytes before.
    Close(ConnectionId),
}

#[derive(Debug, Default)]
pub(super) struct Core {
    pub(super) now: Duration,
    /// Tells servers apart, and their starts.
    pub(super) seed: u64,
    pub(super) starts: u64,
    /// When the first client has sent something since the last start.
    pub(super) used_since: Option<Duration>,
    pub(super) keyspace: Keyspace,
    /// The texts of scripts by their hashes.
    pub(super) scripts: BTreeMap<String, Arc<[u8]>>,
    pub(super) channels: Channels,
    pub(super) settings: BTreeMap<String, Vec<u8>>,
    /// The commands that the user may not run.
    pub(super) denied: BTreeSet<String>,
    /// The script that runs has written, and may go on to write on a full server.
    pub(super) has_written: bool,
    pub(super) replication: Replication,
    /// The server reads its data, and refuses most commands meanwhile.
    pub(super) is_loading: bool,
    pub(super) connections: BTreeMap<ConnectionId, Connection>,
    pub(super) outputs: Vec<Output>,
    pub(super) unknown: Vec<String>,
    /// What was served; `None` when nobody watches.
    pub(super) served: Option<Vec<Served>>,
    last_connection: u64,
}

impl Core {
    pub(super) fn connect(&mut self) -> ConnectionId {
        self.last_connection += 1;
        let id = ConnectionId(self.last_connection);
        self.connections.insert(id, Connection::default());
        id
    }

    pub(super) fn disconnect(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections.remove(&id) else { return };
        connection.channels.iter().for_each(|channel| self.channels.unsubscribe(channel, id));
    }

    /// Closes a connection after what was sent to it.
    pub(super) fn close(&mut self, id: ConnectionId) {
        self.disconnect(id);
        self.outputs.push(Output::Close(id));
    }

    pub(super) fn receive(&mut self, id: ConnectionId, bytes: &[u8]) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        connection.input.add(bytes);
        self.used_since.get_or_insert(self.now);
        self.keyspace.now = self.now.as_millis() as u64;
        while let Some(connection) = self.connections.get_mut(&id)
            && connection.waiting.is_none()
        {
            match connection.input.next() {
                Ok(None) => return,
                Ok(Some(request)) if request.is_empty() => {}
                Ok(Some(request)) => self.serve(id, &request),
                Err(why) => {
                    let text = format!("ERR Protocol error: {why}").into_bytes();
                    self.send(id, &Reply::Error(text.into()));
                    self.close(id);
                }
            }
        }
    }

    pub(super) fn protocol(&self, id: ConnectionId) -> Protocol {
        self.connections.get(&id).map_or(Protocol::Resp2, |connection| connection.protocol)
    }

    /// Sends a reply or a push.
    pub(super) fn send(&mut self, to: ConnectionId, reply: &Reply) {
        if *reply == Reply::None || !self.connections.contains_key(&to) {
            return;
        }
        let protocol = self.protocol(to);
        if let Some(Output::Send(last, bytes)) = self.outputs.last_mut()
            && *last == to
        {
            return reply.write(bytes, protocol);
        }
        let mut bytes = Vec::new();
        reply.write(&mut bytes, protocol);
        self.outputs.push(Output::Send(to, bytes));
    }

    /// Notes that a client relies on something that is not simulated.
    pub(super) fn not_simulated(&mut self, what: &str, fault: Fault) -> Fault {
        self.unknown.push(what.to_owned());
        fault
    }

    /// Whether the memory that the server may use is used up. An empty server uses about a
    /// megabyte; the data is not counted.
    pub(super) fn is_full(&self) -> bool {
        const USED: u64 = 1 << 20;
        let most = self.settings.get("maxmemory");
        let most = most.and_then(|most| std::str::from_utf8(most).ok()?.parse().ok());
        most.is_some_and(|most: u64| most > 0 && most < USED)
    }

    pub(super) fn restart(&mut self, keeps_data: bool) {
        self.close_all();
        let keyspace = std::mem::take(&mut self.keyspace);
        *self = Core {
            keyspace: if keeps_data { keyspace } else { Keyspace::default() },
            last_connection: self.last_connection,
            now: self.now,
            seed: self.seed,
            starts: self.starts + 1,
            outputs: std::mem::take(&mut self.outputs),
            unknown: std::mem::take(&mut self.unknown),
            served: self.served.take(),
            ..Core::default()
        };
    }
}
