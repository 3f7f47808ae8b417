//! The slot map of a cluster: which node has which slot.

use std::ops::RangeInclusive;
use std::time::Duration;

use redis::{ConnectionAddr, Value, from_redis_value_ref};

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
    /// When the map was sent, and the address of the node that sent it. The node itself would keep
    /// its connection open.
    fetched: Option<(Instant, String)>,
}

impl SlotMap {
    /// A map of no slots yet, which that node has just sent.
    pub(crate) fn fetched_from(source: &Node) -> Self {
        Self { fetched: Some((Instant::now(), source.server())), ..Self::default() }
    }

    pub(crate) fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.nodes.iter()
    }

    pub(crate) fn node_at(&self, at: &ConnectionAddr) -> Option<&Node> {
        self.nodes.iter().find(|node| node.connector().address() == Some(at))
    }

    pub(crate) fn node_of(&self, slot: u16) -> Option<&Node> {
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
        let same = |slot: &u16| match (self.node_of(*slot), other.node_of(*slot)) {
            (Some(one), Some(other)) => one.is(other),
            (one, other) => one.is_none() && other.is_none(),
        };
        (0..SLOTS).filter(|slot| !same(slot)).collect()
    }

    /// The address of the node that sent the map.
    pub(crate) fn source(&self) -> Option<&str> {
        self.fetched.as_ref().map(|(_, source)| &**source)
    }

    pub(crate) fn is_younger_than(&self, age: Duration) -> bool {
        self.fetched.as_ref().is_some_and(|(fetched, _)| fetched.elapsed() < age)
    }
}

/// Consecutive slots, and the address of their node.
pub(crate) type Assigned = (RangeInclusive<u16>, ConnectionAddr);

/// Reads `host:port` as the node `source` has sent it; the host may contain colons.
pub(crate) fn address_from(source: &Node, text: &str) -> Option<ConnectionAddr> {
    read_address(source.connector().address(), text)
}

fn read_address(source: Option<&ConnectionAddr>, text: &str) -> Option<ConnectionAddr> {
    let (host, port) = text.rsplit_once(':')?;
    Some(address(source, host, port.parse().ok()?))
}

/// An address as the node at `source` has sent it.
fn address(source: Option<&ConnectionAddr>, host: &str, port: u16) -> ConnectionAddr {
    let host = match (host, source) {
        // A question mark stands for the name of a node that does not know it.
        ("" | "?", Some(ConnectionAddr::Tcp(source, _))) => source,
        (host, _) => host,
    };
    ConnectionAddr::Tcp(host.to_owned(), port)
}

/// Asks a node for the slot map.
pub(crate) async fn slots(node: &Node, budget: Budget) -> Result<Vec<Assigned>, CallError> {
    let mut command = redis::cmd("CLUSTER");
    command.arg("SLOTS");
    let reply = node.call(command, budget).await.map_err(no_cluster)?;
    ranges(node.connector().address(), &reply).ok_or_else(|| unexpected(&reply))
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
fn ranges(source: Option<&ConnectionAddr>, reply: &Value) -> Option<Vec<Assigned>> {
    let ranges: Vec<Vec<Value>> = from_redis_value_ref(reply).ok()?;
    let read = |range: Vec<Value>| {
        let [Value::Int(first), Value::Int(last), Value::Array(primary), ..] = &*range else {
            return None;
        };
        let [host, Value::Int(port), ..] = primary.as_slice() else { return None };
        let host: Option<String> = from_redis_value_ref(host).ok()?;
        let (first, last) = (u16::try_from(*first).ok()?, u16::try_from(*last).ok()?);
        let port = u16::try_from(*port).ok()?;
        Some((first..=last, address(source, &host.unwrap_or_default(), port)))
    };
    ranges.into_iter().map(read).collect()
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
        let source = Some(address(None, "one", 7_000));
        let read = |range| ranges(source.as_ref(), &Value::Array(range));
        let both =
            vec![range(0, 9, node(text("two"), 7_000)), range(10, 16_383, node(Value::Nil, 7_001))];
        let expected =
            [(0..=9, address(None, "two", 7_000)), (10..=16_383, address(None, "one", 7_001))];
        assert_eq!(read(both).as_deref(), Some(&expected[..]));
        assert_eq!(read(vec![range(0, 99_999, node(text("one"), 1))]), None);
    }

    #[test]
    fn an_address_without_a_host_is_on_the_host_of_its_source() {
        let source = address(None, "one", 7_000);
        for (sent, host) in
            [("two:7001", "two"), (":7001", "one"), ("?:7001", "one"), ("::1:7001", "::1")]
        {
            let at = address(None, host, 7_001);
            assert_eq!(read_address(Some(&source), sent), Some(at));
        }
        assert_eq!(read_address(Some(&source), "nowhere"), None);
    }
}
