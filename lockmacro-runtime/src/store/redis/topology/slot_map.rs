//! The slot map of a cluster: which node has which slot.

use std::ops::RangeInclusive;
use std::time::Duration;

use redis::{ConnectionAddr, Value};

use crate::store::redis::client::budget::Budget;
use crate::store::redis::client::error::{CallError, unexpected};
use crate::store::redis::client::node::Node;
use crate::value::companion::SLOTS;
use crate::value::error::LockError;
use crate::value::time::Instant;

/// Stands for no node.
const NONE: u16 = u16::MAX;

/// A slot map; empty at first.
#[derive(Debug, Default)]
pub(crate) struct SlotMap {
    nodes: Vec<Node>,
    /// The index of each slot's node; empty while the map is unknown.
    owners: Vec<u16>,
    fetched: Option<Instant>,
    /// The address of the node that sent the map. The node itself would keep its connection open.
    source: Option<String>,
}

impl SlotMap {
    pub(crate) fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.nodes.iter()
    }

    pub(crate) fn node_of(&self, slot: u16) -> Option<Node> {
        self.owner(slot).cloned()
    }

    fn owner(&self, slot: u16) -> Option<&Node> {
        self.nodes.get(usize::from(*self.owners.get(usize::from(slot))?))
    }

    /// Assigns slots to a node; returns whether one of them had another node.
    pub(crate) fn assign(&mut self, slots: RangeInclusive<u16>, node: Node) -> bool {
        let known = self.nodes.iter().position(|known| known.is(&node));
        let nth = known.unwrap_or_else(|| {
            self.nodes.push(node);
            self.nodes.len() - 1
        });
        let nth = u16::try_from(nth).unwrap_or(NONE);
        self.owners.resize(usize::from(SLOTS), NONE);
        let mut moved = false;
        for slot in slots {
            if let Some(owner) = self.owners.get_mut(usize::from(slot)) {
                moved |= *owner != nth;
                *owner = nth;
            }
        }
        moved
    }

    /// The slots that have another node in the other map.
    pub(crate) fn differs_from(&self, other: &Self) -> Vec<u16> {
        let same = |slot: &u16| match (self.owner(*slot), other.owner(*slot)) {
            (Some(one), Some(other)) => one.is(other),
            (one, other) => one.is_none() && other.is_none(),
        };
        (0..SLOTS).filter(|slot| !same(slot)).collect()
    }

    /// The same map, marked as fetched now.
    pub(crate) fn known(self, source: &Node) -> Self {
        Self { fetched: Some(Instant::now()), source: Some(source.server()), ..self }
    }

    pub(crate) fn source(&self) -> Option<&str> {
        self.source.as_deref()
    }

    pub(crate) fn is_known(&self) -> bool {
        self.fetched.is_some()
    }

    pub(crate) fn is_younger_than(&self, age: Duration) -> bool {
        self.fetched.is_some_and(|fetched| fetched.elapsed() < age)
    }
}

/// Consecutive slots of one node.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) first: u16,
    pub(crate) last: u16,
    /// With an empty host for that of the node that sent the map.
    pub(crate) at: ConnectionAddr,
}

/// Reads `host:port`; the host may contain colons. It is empty for the host of the sender.
pub(crate) fn read_address(text: &str) -> Option<ConnectionAddr> {
    let (host, port) = text.rsplit_once(':')?;
    Some(address(host, port.parse().ok()?))
}

fn address(host: &str, port: u16) -> ConnectionAddr {
    // A question mark stands for the name of a node that does not know it.
    let host = if host == "?" { "" } else { host };
    ConnectionAddr::Tcp(host.to_owned(), port)
}

/// An address as the node at `source` has sent it.
pub(crate) fn relative_to(source: Option<&ConnectionAddr>, sent: ConnectionAddr) -> ConnectionAddr {
    match (source, sent) {
        (Some(ConnectionAddr::Tcp(source, _)), ConnectionAddr::Tcp(host, port))
            if host.is_empty() =>
        {
            ConnectionAddr::Tcp(source.clone(), port)
        }
        (_, sent) => sent,
    }
}

/// Asks a node for the slot map.
pub(crate) async fn slots(node: &Node, budget: Budget) -> Result<Vec<Range>, CallError> {
    let mut command = redis::cmd("CLUSTER");
    command.arg("SLOTS");
    let reply = node.call(command, budget).await.map_err(no_cluster)?;
    ranges(&reply).ok_or_else(|| unexpected(&reply))
}

/// A server that is in no cluster is a mistake in the URL.
fn no_cluster(error: CallError) -> CallError {
    match error {
        CallError::Final(LockError::Unavailable { detail, .. }) if detail.contains("disabled") => {
            let detail = "the server is not in a cluster: use a `redis://` URL".to_owned();
            CallError::Final(LockError::InvalidUrl { detail })
        }
        other => other,
    }
}

/// Reads `[first, last, [host, port, …] of the primary, of a replica …] …`.
fn ranges(reply: &Value) -> Option<Vec<Range>> {
    let Value::Array(ranges) = reply else { return None };
    let ranges = ranges.iter().map(|range| {
        let Value::Array(parts) = range else { return None };
        let [Value::Int(first), Value::Int(last), Value::Array(primary), ..] = parts.as_slice()
        else {
            return None;
        };
        let [host, Value::Int(port), ..] = primary.as_slice() else { return None };
        let host = match host {
            Value::BulkString(host) => std::str::from_utf8(host).ok()?,
            Value::Nil => "",
            _ => return None,
        };
        let (first, last) = (u16::try_from(*first).ok()?, u16::try_from(*last).ok()?);
        Some(Range { first, last, at: address(host, u16::try_from(*port).ok()?) })
    });
    ranges.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    #[test]
    fn a_map_is_read_with_primaries_only() {
        let node = |host, port| Value::Array(vec![host, Value::Int(port), text("id")]);
        let range = |first, last, primary| {
            Value::Array(vec![
                Value::Int(first),
                Value::Int(last),
                primary,
                node(text("replica"), 1),
            ])
        };
        let read = ranges(&Value::Array(vec![
            range(0, 9, node(text("one"), 7_000)),
            range(10, 16_383, node(Value::Nil, 7_001)),
        ]));
        let expected = [
            Range { first: 0, last: 9, at: address("one", 7_000) },
            Range { first: 10, last: 16_383, at: address("", 7_001) },
        ];
        assert_eq!(read.as_deref(), Some(&expected[..]));
        assert_eq!(ranges(&Value::Array(vec![range(0, 99_999, node(text("one"), 1))])), None);
    }

    #[test]
    fn an_address_without_a_host_is_on_the_host_of_its_source() {
        for (source, host) in
            [("two:7001", "two"), (":7001", "one"), ("?:7001", "one"), ("::1:7001", "::1")]
        {
            let sent = read_address(source).unwrap();
            assert_eq!(relative_to(Some(&address("one", 7_000)), sent), address(host, 7_001));
        }
        assert_eq!(read_address("nowhere"), None);
    }
}
