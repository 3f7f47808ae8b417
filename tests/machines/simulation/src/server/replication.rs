//! Changes that a primary sends to its replicas, and clients that wait for acknowledgements.
//!
//! The simulation carries snapshots, changes and acknowledgements between servers, so that it can
//! delay and lose them. A change holds the new values of keys, where Redis sends commands; messages
//! of channels are not replicated.

use std::collections::BTreeMap;
use std::time::Duration;

use super::connection::ConnectionId;
use super::core::{Core, Output};
use super::keyspace::{Entry, Keyspace};
use super::reply::{Fault, Reply};

/// A replica, as its primary knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReplicaId(pub u64);

/// All data of a primary at one moment.
#[derive(Debug, Clone)]
pub struct Snapshot {
    keyspace: Keyspace,
    offset: u64,
}

/// What one command, or one script, has changed.
#[derive(Debug, Clone)]
pub struct Change {
    /// The number of changes up to and with this one.
    pub offset: u64,
    keys: Vec<(Vec<u8>, Option<Entry>)>,
}

/// What a server does in a replication.
#[derive(Debug, Default)]
pub(super) struct Replication {
    /// The address of the primary, if this is a replica.
    pub(super) primary: Option<(String, u16)>,
    pub(super) offset: u64,
    /// Kept since the first snapshot.
    changes: Vec<Change>,
    keeps_changes: bool,
    /// The offset that each connected replica has acknowledged.
    pub(super) replicas: BTreeMap<ReplicaId, u64>,
}

/// A client that waits for replicas.
#[derive(Debug, Clone, Copy)]
pub(super) struct Waiting {
    pub(super) replicas: usize,
    pub(super) offset: u64,
    /// `None` to wait without a limit.
    pub(super) until: Option<Duration>,
}

const UNBLOCKED: &str = "UNBLOCKED force unblock from blocking operation, instance state changed \
                         (master -> replica?)";

impl Replication {
    pub(super) fn is_replica(&self) -> bool {
        self.primary.is_some()
    }

    /// The number of replicas that have acknowledged an offset.
    pub(super) fn acknowledged(&self, offset: u64) -> usize {
        self.replicas.values().filter(|acknowledged| **acknowledged >= offset).count()
    }

    pub(super) fn after(&self, offset: u64) -> &[Change] {
        let first = self.changes.partition_point(|change| change.offset <= offset);
        &self.changes[first..]
    }
}

impl Core {
    /// Adds what a command has changed to the changes.
    pub(super) fn record(&mut self) {
        let keys = self.keyspace.take_changed();
        if !keys.is_empty() {
            self.replication.offset += 1;
            if !self.replication.keeps_changes {
                return;
            }
            let value = |key: Vec<u8>| {
                let entry = self.keyspace.stored(&key).cloned();
                (key, entry)
            };
            let keys = keys.into_iter().map(value).collect();
            self.replication.changes.push(Change { offset: self.replication.offset, keys });
        }
    }

    pub(super) fn snapshot(&mut self) -> Snapshot {
        self.replication.keeps_changes = true;
        Snapshot { keyspace: self.keyspace.clone(), offset: self.replication.offset }
    }

    pub(super) fn follow(&mut self, primary: (String, u16), snapshot: Snapshot) {
        for (id, _) in self.waiting() {
            self.connections.entry(id).or_default().waiting = None;
            self.send(id, &Reply::from(Fault::new(UNBLOCKED)));
            self.close(id);
        }
        self.keyspace = snapshot.keyspace;
        self.replication =
            Replication { primary: Some(primary), offset: snapshot.offset, ..Default::default() };
    }

    /// Applies the next change of the primary.
    pub(super) fn apply(&mut self, change: &Change) {
        assert!(self.replication.is_replica(), "a primary applies no changes");
        assert_eq!(change.offset, self.replication.offset + 1, "changes arrive in order");
        for (key, entry) in &change.keys {
            self.keyspace.restore(key, entry.clone());
        }
        self.keyspace.take_changed();
        self.replication.offset = change.offset;
    }

    fn waiting(&self) -> Vec<(ConnectionId, Waiting)> {
        let waiting = |(id, connection): (&ConnectionId, &super::connection::Connection)| {
            connection.waiting.map(|waiting| (*id, waiting))
        };
        self.connections.iter().filter_map(waiting).collect()
    }

    pub(super) fn next_timeout(&self) -> Option<Duration> {
        self.waiting().iter().filter_map(|(_, waiting)| waiting.until).min()
    }

    /// Answers the clients whose replicas have acknowledged, or whose time is over.
    pub(super) fn answer_waiting(&mut self) {
        for (id, waiting) in self.waiting() {
            let acknowledged = self.replication.acknowledged(waiting.offset);
            let is_over = waiting.until.is_some_and(|until| until <= self.now);
            if acknowledged >= waiting.replicas || is_over {
                if let Some(connection) = self.connections.get_mut(&id) {
                    connection.waiting = None;
                }
                self.send(id, &Reply::int(acknowledged));
                self.receive(id, &[]);
            }
        }
    }

    /// Ends all connections without a word, as when the process ends.
    pub(super) fn close_all(&mut self) {
        let all: Vec<ConnectionId> = self.connections.keys().copied().collect();
        for id in all {
            self.disconnect(id);
            self.outputs.push(Output::Close(id));
        }
    }
}
