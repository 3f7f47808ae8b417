//! The servers that have the keys, and the route of a call to the right one.

use std::sync::Arc;
use std::time::Duration;

use redis::Value;

use crate::store::redis::client::channels::Grants;
use crate::store::redis::client::connector::Connector;
use crate::store::redis::client::node::Node;
use crate::store::redis::client::script::ScriptCall;
use crate::store::redis::client::url::{Addresses, Deployment};
use crate::store::redis::topology::cluster::Cluster;
use crate::store::remote::budget::Budget;
use crate::store::remote::error::RemoteError;
use crate::store::remote::health::Monitor;
use crate::sys::time::Instant;
use crate::value::companion::slot;
use crate::value::key::LockKey;

#[derive(Debug)]
pub(crate) enum Topology {
    One(Node),
    Cluster(Cluster),
}

impl Topology {
    /// These servers, not connected yet. All share the monitor.
    pub(crate) fn new(
        servers: &Deployment,
        timeout: Duration,
        monitor: &Arc<Monitor>,
        grants: &Arc<Grants>,
    ) -> Self {
        let settings = servers.settings.clone();
        match servers.at.clone() {
            Addresses::One(server) => {
                let connector = Connector::new(server, settings, timeout, monitor, grants);
                Topology::One(Node::new(connector))
            }
            Addresses::Cluster(at) => {
                Topology::Cluster(Cluster::new(at, settings, timeout, monitor, grants))
            }
        }
    }

    /// The same servers, through connections of their own.
    pub(crate) fn apart(&self, grants: &Arc<Grants>) -> Self {
        match self {
            Topology::One(node) => Topology::One(Node::new(node.connector().apart(grants))),
            Topology::Cluster(cluster) => Topology::Cluster(cluster.apart(grants)),
        }
    }

    /// Checks the servers: notices one that hangs or is no longer a primary.
    pub(crate) async fn check(&self, budget: Budget) {
        match self {
            Topology::One(node) => node.check(budget).await,
            // A failure is left to the next call.
            Topology::Cluster(cluster) => drop(cluster.refresh(budget.until).await),
        }
    }

    /// Closes all connections for good. A later call opens one that is not kept.
    pub(crate) fn close(&self) {
        match self {
            Topology::One(node) => node.close(),
            Topology::Cluster(cluster) => cluster.close(),
        }
    }

    /// All primaries.
    pub(crate) async fn all(&self, until: Instant) -> Result<Vec<Node>, RemoteError> {
        match self {
            Topology::One(node) => Ok(vec![node.clone()]),
            Topology::Cluster(cluster) => cluster.nodes(until).await,
        }
    }

    /// The node that has the key, if it is known.
    pub(crate) fn node_of(&self, key: &LockKey) -> Option<Node> {
        match self {
            Topology::One(node) => Some(node.clone()),
            Topology::Cluster(cluster) => cluster.known(slot(key.as_str())),
        }
    }

    /// The nodes that have these keys, as far as they are known.
    pub(crate) fn nodes_of(&self, keys: &[LockKey]) -> Vec<Node> {
        let mut nodes: Vec<Node> = Vec::new();
        for node in keys.iter().filter_map(|key| self.node_of(key)) {
            if !nodes.iter().any(|other| other.is(&node)) {
                nodes.push(node);
            }
        }
        nodes
    }

    /// Calls a script on the server that has these keys.
    pub(crate) async fn eval(
        &self,
        call: ScriptCall<'_>,
        budget: Budget,
    ) -> Result<Value, RemoteError> {
        let slot = || call.keys.first().map_or(0, |key| slot(key.as_str()));
        let eval = |node: Node| async move { node.eval(call, budget).await };
        self.route(slot, budget, eval).await
    }

    /// Sends a call by `send` to the node of a slot, and to the next node for as long as the call
    /// is redirected. The slot matters in a cluster only.
    pub(crate) async fn route<T, F>(
        &self,
        slot: impl FnOnce() -> u16,
        budget: Budget,
        mut send: impl FnMut(Node) -> F,
    ) -> Result<T, RemoteError>
    where
        F: Future<Output = Result<T, RemoteError>>,
    {
        match self {
            Topology::One(node) => send(node.clone()).await,
            Topology::Cluster(cluster) => Box::pin(cluster.route(slot(), budget, send)).await,
        }
    }
}
