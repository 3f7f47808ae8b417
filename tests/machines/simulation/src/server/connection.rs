//! What the server knows of one client.

use std::collections::BTreeSet;

use super::replication::Waiting;
use super::request::Input;

/// A connection of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub(super) u64);

/// The version of the protocol that replies are written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Protocol {
    #[default]
    Resp2,
    Resp3,
}

#[derive(Debug, Default)]
pub(super) struct Connection {
    pub(super) input: Input,
    pub(super) protocol: Protocol,
    pub(super) channels: BTreeSet<Vec<u8>>,
    /// The offset after the last command of the client.
    pub(super) offset: u64,
    /// The client waits for replicas, and its next requests wait, too.
    pub(super) waiting: Option<Waiting>,
}

impl Connection {
    /// Whether a client of RESP2 may send few commands only.
    pub(super) fn is_subscribed(&self) -> bool {
        !self.channels.is_empty()
    }
}
