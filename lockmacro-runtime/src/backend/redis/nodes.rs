//! Where the keys are: on one server, or on those of a cluster.

use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, Value};
use tokio::time::Instant;

use super::changes::Changes;
use super::cluster::Cluster;
use super::grants::Grants;
use super::node::{Node, Patience};
use super::replicated::Replicated;
use super::round_trip::RoundTrip;
use super::script::Script;
use super::trouble::Trouble;
use crate::error::LockError;
use crate::key::LockKey;
use crate::side::slot;

#[derive(Debug)]
pub(super) enum Nodes {
    One(Node),
    Cluster(Cluster),
}

impl Nodes {
    /// What a URL names, not connected yet.
    pub(super) fn new(url: &str, timeout: Duration) -> Result<Self, LockError> {
        Ok(match Cluster::is_meant(url) {
            true => Nodes::Cluster(Cluster::new(url, timeout)?),
            false => Nodes::One(Node::new(url, timeout)?),
        })
    }

    /// The same through connections of their own.
    pub(super) fn apart(&self) -> Self {
        match self {
            Nodes::One(node) => Nodes::One(node.apart()),
            Nodes::Cluster(cluster) => Nodes::Cluster(cluster.apart()),
        }
    }

    /// What the URL says that replicas have to acknowledge.
    pub(super) fn replicated(&self) -> Option<Replicated> {
        match self {
            Nodes::One(node) => node.replicated(),
            Nodes::Cluster(cluster) => cluster.replicated(),
        }
    }

    /// What the URL says of how long fences are kept.
    pub(super) fn fence_retention(&self) -> Option<Duration> {
        match self {
            Nodes::One(node) => node.inner.connector.fence_retention(),
            Nodes::Cluster(cluster) => cluster.fence_retention(),
        }
    }

    /// Makes sure that they can be asked.
    pub(super) async fn ready(&self, until: Instant) -> Result<(), Trouble> {
        match self {
            Nodes::One(node) => node.ready(until).await,
            Nodes::Cluster(cluster) => cluster.ready(until).await,
        }
    }

    /// Has `tell` called when a server may be another one than the one that granted our locks.
    pub(super) fn on_change(&self, tell: impl Fn() + Send + Sync + 'static) {
        match self {
            Nodes::One(node) => node.changes().tell(tell),
            Nodes::Cluster(cluster) => cluster.on_change(tell),
        }
    }

    /// What all connections have in common.
    pub(super) fn changes(&self) -> Option<&Changes> {
        match self {
            Nodes::One(node) => Some(node.changes()),
            Nodes::Cluster(cluster) => cluster.changes(),
        }
    }

    /// Whether another server may take a server's place from one moment to the next.
    pub(super) fn fails_over(&self) -> bool {
        match self {
            Nodes::One(node) => node.fails_over(),
            Nodes::Cluster(_) => true,
        }
    }

    /// Has a server that stands still, or is no primary any more, noticed.
    pub(super) async fn look(&self, patience: Patience) {
        match self {
            Nodes::One(node) => node.look(patience).await,
            Nodes::Cluster(cluster) => cluster.look(patience.until).await,
        }
    }

    /// Ends all connections; the next calls make new ones.
    pub(super) fn disconnect(&self) {
        match self {
            Nodes::One(node) => node.disconnect(),
            Nodes::Cluster(cluster) => cluster.disconnect(),
        }
    }

    pub(super) fn grants(&self) -> &Arc<Grants> {
        match self {
            Nodes::One(node) => node.grants(),
            Nodes::Cluster(cluster) => cluster.grants(),
        }
    }

    /// The node that has the key, if it is known.
    fn node_of(&self, key: &LockKey) -> Option<Node> {
        match self {
            Nodes::One(node) => Some(node.clone()),
            Nodes::Cluster(cluster) => cluster.map().node_of(slot(key.as_str())),
        }
    }

    /// Where the server is that has the key, if it is known.
    pub(super) fn server_of(&self, key: &LockKey) -> Option<String> {
        self.node_of(key).map(|node| node.server())
    }

    /// Whether the server that has the key is lost.
    pub(super) fn is_lost(&self, key: &LockKey) -> bool {
        self.node_of(key).is_some_and(|node| node.is_lost())
    }

    /// How long the server that has the key takes to answer, if it is known.
    pub(super) fn round_trip(&self, key: &LockKey) -> Option<Arc<RoundTrip>> {
        self.node_of(key).map(|node| Arc::clone(node.round_trip()))
    }

    /// Sends a command to the server that has the key.
    pub(super) async fn call(
        &self,
        key: &LockKey,
        command: Cmd,
        patience: Patience,
    ) -> Result<Value, Trouble> {
        match self {
            Nodes::One(node) => node.call(command, patience).await,
            // Boxed, as is all that is rare.
            Nodes::Cluster(cluster) => Box::pin(cluster.call(key, &command, patience)).await,
        }
    }

    /// Calls a script at the server that has these keys.
    pub(super) async fn eval(
        &self,
        script: &Script,
        keys: &[LockKey],
        args: &[&str],
        patience: Patience,
    ) -> Result<Value, Trouble> {
        match self {
            Nodes::One(node) => node.eval(script, keys, args, patience).await,
            Nodes::Cluster(cluster) => Box::pin(cluster.eval(script, keys, args, patience)).await,
        }
    }
}
