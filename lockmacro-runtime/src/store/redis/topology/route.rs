//! Where the keys are: on one server, or on those of a cluster.

use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, Value};
use tokio::time::Instant;

use crate::store::redis::client::budget::Budget;
use crate::store::redis::client::error::CallError;
use crate::store::redis::client::failover::Failover;
use crate::store::redis::client::node::Node;
use crate::store::redis::client::replicas::ReplicaAcks;
use crate::store::redis::client::round_trip::RoundTrip;
use crate::store::redis::client::script::Script;
use crate::store::redis::client::subscriptions::PushSink;
use crate::store::redis::topology::cluster::Cluster;
use crate::value::companion::slot;
use crate::value::error::LockError;
use crate::value::key::LockKey;

#[derive(Debug)]
pub(crate) enum Topology {
    One(Node),
    Cluster(Cluster),
}

impl Topology {
    /// Whether a URL names a cluster.
    pub(crate) fn is_cluster(url: &str) -> bool {
        Cluster::is_cluster_url(url)
    }

    /// What a URL names, not connected yet.
    pub(crate) fn new(
        url: &str,
        timeout: Duration,
        sink: Arc<dyn PushSink>,
    ) -> Result<Self, LockError> {
        Ok(match Cluster::is_cluster_url(url) {
            true => Topology::Cluster(Cluster::new(url, timeout, sink)?),
            false => Topology::One(Node::new(url, timeout, sink)?),
        })
    }

    /// The same through connections of their own.
    pub(crate) fn apart(&self, sink: Arc<dyn PushSink>) -> Self {
        match self {
            Topology::One(node) => Topology::One(node.apart(sink)),
            Topology::Cluster(cluster) => Topology::Cluster(cluster.apart(sink)),
        }
    }

    /// What the URL says that replicas have to acknowledge.
    pub(crate) fn replicated(&self) -> Option<ReplicaAcks> {
        match self {
            Topology::One(node) => node.replicated(),
            Topology::Cluster(cluster) => cluster.replicated(),
        }
    }

    /// What the URL says of how long fences are kept.
    pub(crate) fn fence_retention(&self) -> Option<Duration> {
        match self {
            Topology::One(node) => node.inner.connector.fence_retention(),
            Topology::Cluster(cluster) => cluster.fence_retention(),
        }
    }

    /// Makes sure that they can be asked.
    pub(crate) async fn ready(&self, until: Instant) -> Result<(), CallError> {
        match self {
            Topology::One(node) => node.ready(until).await,
            Topology::Cluster(cluster) => cluster.ready(until).await,
        }
    }

    /// Has `tell` called when a server may be another one than the one that granted our locks.
    pub(crate) fn on_change(&self, listener: impl Fn() + Send + Sync + 'static) {
        match self {
            Topology::One(node) => node.changes().on_change(listener),
            Topology::Cluster(cluster) => cluster.on_change(listener),
        }
    }

    /// What all connections have in common.
    pub(crate) fn changes(&self) -> Option<&Failover> {
        match self {
            Topology::One(node) => Some(node.changes()),
            Topology::Cluster(cluster) => cluster.changes(),
        }
    }

    /// Whether another server may take a server's place from one moment to the next.
    pub(crate) fn fails_over(&self) -> bool {
        match self {
            Topology::One(node) => node.fails_over(),
            Topology::Cluster(_) => true,
        }
    }

    /// Has a server that stands still, or is no primary any more, noticed.
    pub(crate) async fn look(&self, budget: Budget) {
        match self {
            Topology::One(node) => node.look(budget).await,
            Topology::Cluster(cluster) => cluster.look(budget.until).await,
        }
    }

    /// Ends all connections; the next calls make new ones.
    pub(crate) fn disconnect(&self) {
        match self {
            Topology::One(node) => node.disconnect(),
            Topology::Cluster(cluster) => cluster.disconnect(),
        }
    }

    /// The node that has the key, if it is known.
    fn node_of(&self, key: &LockKey) -> Option<Node> {
        match self {
            Topology::One(node) => Some(node.clone()),
            Topology::Cluster(cluster) => cluster.map().node_of(slot(key.as_str())),
        }
    }

    /// Where the server is that has the key, if it is known.
    pub(crate) fn server_of(&self, key: &LockKey) -> Option<String> {
        self.node_of(key).map(|node| node.server())
    }

    /// Whether the server that has the key is lost.
    pub(crate) fn is_lost(&self, key: &LockKey) -> bool {
        self.node_of(key).is_some_and(|node| node.is_lost())
    }

    /// How long the server that has the key takes to answer, if it is known.
    pub(crate) fn round_trip(&self, key: &LockKey) -> Option<Arc<RoundTrip>> {
        self.node_of(key).map(|node| Arc::clone(node.round_trip()))
    }

    /// Sends a command to the server that has the key.
    pub(crate) async fn call(
        &self,
        key: &LockKey,
        command: Cmd,
        budget: Budget,
    ) -> Result<Value, CallError> {
        match self {
            Topology::One(node) => node.call(command, budget).await,
            // Boxed, as is all that is rare.
            Topology::Cluster(cluster) => {
                let send = |node: Node| {
                    let command = command.clone();
                    async move { node.call(command, budget).await }
                };
                Box::pin(cluster.route(slot(key.as_str()), budget, send)).await
            }
        }
    }

    /// Calls a script at the server that has these keys.
    pub(crate) async fn eval(
        &self,
        script: &'static Script,
        keys: &[LockKey],
        args: &[&str],
        budget: Budget,
    ) -> Result<Value, CallError> {
        let slot = || keys.first().map_or(0, |key| slot(key.as_str()));
        let eval = |node: Node| async move { node.eval(script, keys, args, budget).await };
        self.route(slot, budget, eval).await
    }

    /// Has `send` send a call to the node of a slot, and to the next node for as long as the call is
    /// redirected. The slot matters in a cluster only.
    pub(crate) async fn route<T, F>(
        &self,
        slot: impl FnOnce() -> u16,
        budget: Budget,
        mut send: impl FnMut(Node) -> F,
    ) -> Result<T, CallError>
    where
        F: Future<Output = Result<T, CallError>>,
    {
        match self {
            Topology::One(node) => send(node.clone()).await,
            Topology::Cluster(cluster) => Box::pin(cluster.route(slot(), budget, send)).await,
        }
    }
}
