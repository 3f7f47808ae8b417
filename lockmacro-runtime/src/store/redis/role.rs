//! Whether the server of a URL is a replica: every lock would fail there.

use redis::{Value, cmd};

use crate::store::redis::client::budget::Budget;
use crate::store::redis::client::error::CallError;
use crate::store::redis::client::node::Node;
use crate::store::redis::reply::parsed;
use crate::store::redis::store::Redis;
use crate::store::redis::topology::route::Topology;
use crate::value::error::LockError;
use crate::value::random::HashMap;
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
        let facts: Result<HashMap<String, Value>, _> = hello.and_then(parsed);
        let role = facts.ok().and_then(|mut facts| parsed::<String>(facts.remove("role")?).ok());
        role.as_deref() == Some("replica")
    }

    /// The host and port of the primary of this replica.
    async fn primary(&self, budget: Budget) -> Option<String> {
        // A replica that has received nothing has the offset -1, which `redis::Role` does not read.
        type Replica = (String, String, u16, String, i64);
        let (_, host, port, ..): Replica =
            self.call(cmd("ROLE"), budget).await.and_then(parsed).ok()?;
        Some(format!("{host}:{port}"))
    }

    /// Gives up the connection, so that the next call opens another.
    async fn leave(&self, budget: Budget) {
        if let Ok(live) = self.connect(budget.until).await {
            self.discard(&live);
        }
    }
}
