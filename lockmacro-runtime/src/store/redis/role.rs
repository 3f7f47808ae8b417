//! Whether the server of a URL is a replica: every lock would fail there.

use redis::{Value, cmd};

use crate::store::redis::client::budget::Budget;
use crate::store::redis::client::error::CallError;
use crate::store::redis::client::node::Node;
use crate::store::redis::store::Redis;
use crate::store::redis::topology::route::Topology;
use crate::value::error::LockError;
use crate::value::unavailability::Unavailability;

impl Redis {
    /// Refuses a server that is a replica, and names its primary where the user may ask for it.
    /// Sentinels and clusters name primaries themselves.
    pub(crate) async fn refuse_replica(&self, budget: Budget) -> Result<(), CallError> {
        let Topology::One(node) = &self.nodes else { return Ok(()) };
        if self.fails_over || !node.is_replica(budget).await {
            return Ok(());
        }
        // A server may have been replaced under its name: the next connection leads to its heir.
        node.leave(budget).await;
        if !node.is_replica(budget).await {
            return Ok(());
        }
        let detail = match node.primary(budget).await {
            Some(primary) => format!("connect to its primary, {primary}"),
            None => "connect to its primary".to_owned(),
        };
        node.leave(budget).await;
        let server = Some(node.server().into());
        let error = LockError::unavailable_at(server, Unavailability::ReadOnly, detail);
        Err(CallError::Final(error))
    }
}

impl Node {
    /// Whether the server says so. Every user may ask by HELLO; a server that does not know it is
    /// left to the first lock.
    async fn is_replica(&self, budget: Budget) -> bool {
        let hello = self.call(cmd("HELLO"), budget).await;
        hello.is_ok_and(|hello| role(hello).as_deref() == Some("replica"))
    }

    /// The host and port of the primary of this replica.
    async fn primary(&self, budget: Budget) -> Option<String> {
        match self.call(cmd("ROLE"), budget).await {
            Ok(Value::Array(parts)) => match parts.as_slice() {
                [_, Value::BulkString(host), Value::Int(port), ..] => {
                    Some(format!("{}:{port}", String::from_utf8_lossy(host)))
                }
                _ => None,
            },
            _ => None,
        }
    }

    /// Gives up the connection, so that the next call opens another.
    async fn leave(&self, budget: Budget) {
        if let Ok(live) = self.connect(budget.until).await {
            self.retire(&live);
        }
    }
}

/// The role in a reply to HELLO, which is a map, or a list of names and values before RESP3.
fn role(hello: Value) -> Option<String> {
    let facts: Vec<_> = match hello {
        Value::Map(facts) => facts.into_iter().flat_map(|(name, value)| [name, value]).collect(),
        Value::Array(facts) => facts,
        _ => return None,
    };
    let text = |value: &Value| match value {
        Value::BulkString(text) => Some(String::from_utf8_lossy(text).into_owned()),
        Value::SimpleString(text) => Some(text.clone()),
        _ => None,
    };
    let mut facts = facts.iter();
    facts.find(|name| text(name).as_deref() == Some("role"))?;
    facts.next().and_then(text)
}
