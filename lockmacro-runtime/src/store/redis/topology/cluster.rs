//! A Redis Cluster: its nodes, and the slot map that each of them knows.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use redis::ConnectionAddr;
use tokio::time::timeout;

use crate::store::redis::client::budget::Budget;
use crate::store::redis::client::connector::Connector;
use crate::store::redis::client::error::{CallError, Redirect, Transient};
use crate::store::redis::client::failover::Failover;
use crate::store::redis::client::node::Node;
use crate::store::redis::client::settings::Settings;
use crate::store::redis::client::singleflight::SingleFlight;
use crate::store::redis::client::subscriptions::{NoPushes, PushSink};
use crate::store::redis::client::url::Target;
use crate::store::redis::topology::slot_map::{Range, SlotMap, read_address, relative_to, slots};
use crate::value::applied::Applied;
use crate::value::error::Unavailability;
use crate::value::random;
use crate::value::sync::{Mutex, MutexGuard};
use crate::value::time::Instant;

/// Time without an answer after which the next node is asked for the slot map, too.
const STAGGER: Duration = Duration::from_millis(50);
/// Shortest time between two requests for the slot map.
const REFRESH_EVERY: Duration = Duration::from_millis(100);

/// A cluster; clones share it.
#[derive(Clone)]
pub(crate) struct Cluster(Arc<Shared>);

struct Shared {
    /// The nodes of the URL, whose settings all other nodes use.
    seeds: Vec<Connector>,
    sink: Arc<dyn PushSink>,
    timeout: Duration,
    /// The state that all nodes share.
    changes: Arc<Failover>,
    map: Mutex<SlotMap>,
    refreshing: SingleFlight<Result<(), CallError>>,
    /// No node keeps a connection any more.
    closed: AtomicBool,
}

impl Cluster {
    /// A cluster with these nodes, not connected yet. All share the state of `changes`.
    pub(crate) fn new(
        at: &[ConnectionAddr],
        settings: &Settings,
        timeout: Duration,
        changes: &Arc<Failover>,
        sink: Arc<dyn PushSink>,
    ) -> Self {
        let seed = |at: &ConnectionAddr| {
            let (target, sink) = (Target::At(at.clone()), Arc::clone(&sink));
            Connector::new(target, settings.clone(), timeout, changes.for_node(), sink)
        };
        Self::with(at.iter().map(seed).collect(), timeout, Arc::clone(changes), sink)
    }

    /// The same cluster, through connections of its own.
    pub(crate) fn apart(&self, sink: Arc<dyn PushSink>) -> Self {
        let map = self.map();
        let known = map.nodes().filter_map(|node| self.connector(node.address()?.clone()));
        let seeds = self.0.seeds.iter().map(|seed| seed.apart(Arc::clone(&sink))).chain(known);
        Self::with(seeds.collect(), self.0.timeout, Arc::clone(&self.0.changes), sink)
    }

    fn with(
        seeds: Vec<Connector>,
        timeout: Duration,
        changes: Arc<Failover>,
        sink: Arc<dyn PushSink>,
    ) -> Self {
        let refreshing = SingleFlight::new(timeout);
        let (map, closed) = Default::default();
        Self(Arc::new(Shared { seeds, sink, timeout, changes, map, refreshing, closed }))
    }

    /// Fetches the slot map, unless it is known.
    pub(crate) async fn ready(&self, until: Instant) -> Result<(), CallError> {
        if self.map().is_known() {
            return Ok(());
        }
        self.refresh(until).await
    }

    /// Closes all connections for good, also those of nodes that become known later.
    pub(crate) fn close(&self) {
        self.0.closed.store(true, Ordering::SeqCst);
        self.0.refreshing.abort();
        self.map().nodes().for_each(Node::close);
    }

    /// Changes the slot map.
    fn change<T>(&self, change: impl FnOnce(&mut SlotMap) -> T) -> T {
        let mut map = self.map();
        let changed = change(&mut map);
        // Either this sees the shutdown, or the shutdown sees the new nodes.
        if self.0.closed.load(Ordering::SeqCst) {
            map.nodes().for_each(Node::close);
        }
        changed
    }

    /// All primaries.
    pub(crate) async fn nodes(&self, until: Instant) -> Result<Vec<Node>, CallError> {
        self.refresh(until).await?;
        Ok(self.map().nodes().cloned().collect())
    }

    /// Fetches the slot map, unless that was done just now.
    pub(crate) async fn refresh(&self, until: Instant) -> Result<(), CallError> {
        if self.map().is_younger_than(REFRESH_EVERY) {
            return Ok(());
        }
        let fetch = || {
            let cluster = self.clone();
            async move { cluster.fetch_map().await }
        };
        let refreshed = self.0.refreshing.run(fetch, until);
        let timeout = || CallError::timeout("asking for the slots", Applied::No);
        Box::pin(refreshed).await.unwrap_or_else(|| Err(timeout().at(|| self.servers())))
    }

    /// The address of the node that sent the slot map.
    pub(crate) fn source(&self) -> String {
        let source = self.map().source().map(str::to_owned);
        source.unwrap_or_else(|| self.servers())
    }

    /// The addresses of the URL.
    fn servers(&self) -> String {
        let servers: Vec<_> = self.0.seeds.iter().map(Connector::server).collect();
        servers.join(", ")
    }

    /// Fetches the slot map in the background.
    pub(crate) fn refresh_soon(&self) {
        if !self.map().is_younger_than(REFRESH_EVERY) {
            let cluster = self.clone();
            self.0.refreshing.begin(|| async move { cluster.fetch_map().await });
        }
    }

    /// Asks the nodes for the slot map, each after a short delay, until one has answered.
    async fn fetch_map(&self) -> Result<(), CallError> {
        let mut nodes: Vec<Node> = self.map().nodes().cloned().collect();
        random::shuffle(&mut nodes);
        let seeds = self.0.seeds.iter().filter(|seed| {
            let at = seed.address();
            !nodes.iter().any(|node| node.address() == at)
        });
        let seeds = seeds.map(|seed| Node::with(seed.apart(NoPushes::sink()), self.0.timeout));
        let seeds: Vec<Node> = seeds.collect();
        let mut nodes = nodes.into_iter().chain(seeds);
        let (mut asked, mut error) = (FuturesUnordered::new(), down("no node was asked"));
        let ask = |node: Node| async move {
            let budget = Budget::new(self.0.timeout, self.0.timeout);
            (slots(&node, budget).await, node)
        };
        loop {
            let more = nodes.next().map(|node| asked.push(ask(node))).is_some();
            let pause = if more { STAGGER } else { self.0.timeout };
            match timeout(pause, asked.next()).await {
                // A node without slots has forgotten its cluster.
                Ok(Some((Ok(ranges), node))) if ranges.is_empty() => {
                    let none = down("no slot is assigned to a node").at(|| node.server());
                    error = error.unless_final(none);
                }
                Ok(Some((Ok(ranges), node))) => return self.take(&node, ranges),
                Ok(Some((Err(cause), _))) => error = error.unless_final(cause),
                Ok(None) if !more => return Err(error),
                _ => {}
            }
        }
    }

    /// Adopts the slot map of a node, and makes the waiters of slots that moved ask again.
    fn take(&self, source: &Node, ranges: Vec<Range>) -> Result<(), CallError> {
        let mut next = SlotMap::default();
        for range in ranges {
            let node = self.node_at(relative_to(source.address(), range.at), source)?;
            next.assign(range.first..=range.last, node);
        }
        let moved = self.change(|map| {
            let moved = next.differs_from(map);
            *map = next.known(source);
            moved
        });
        if !moved.is_empty() {
            self.0.sink.interrupted(&moved);
            // A replica that has taken over may not know the locks. A first slot map counts as a
            // change, because the slots may have moved since the locks were granted.
            self.0.changes.changed();
        }
        Ok(())
    }

    /// The node at an address: the known one, or a new one.
    fn node_at(&self, at: ConnectionAddr, source: &Node) -> Result<Node, CallError> {
        let known = self.map().nodes().find(|node| node.address() == Some(&at)).cloned();
        if let Some(node) = known {
            return Ok(node);
        }
        if source.address() == Some(&at) && Arc::ptr_eq(source.sink(), &self.0.sink) {
            return Ok(source.clone());
        }
        let connector = self.connector(at);
        Ok(Node::with(connector.ok_or_else(|| down("no node is known"))?, self.0.timeout))
    }

    fn connector(&self, at: ConnectionAddr) -> Option<Connector> {
        Some(self.0.seeds.first()?.to(at, &self.0.sink))
    }

    /// The node that `source` redirects to.
    pub(crate) fn redirected(
        &self,
        slot: u16,
        to: &Redirect,
        source: &Node,
    ) -> Result<Node, CallError> {
        let Some(at) = read_address(&to.address) else {
            return Err(
                down("a node has sent a redirect without an address").at(|| source.server())
            );
        };
        let node = self.node_at(relative_to(source.address(), at), source)?;
        if to.once {
            return Ok(node.asking());
        }
        if self.change(|map| map.assign(slot..=slot, node.clone())) {
            // Other slots may have moved, too; and the waiters of this slot have to ask its new
            // node.
            self.refresh_soon();
            self.0.sink.interrupted(&[slot]);
        }
        Ok(node)
    }

    pub(crate) fn map(&self) -> MutexGuard<'_, SlotMap> {
        self.0.map.lock()
    }
}

pub(crate) fn down(detail: &str) -> CallError {
    CallError::Transient(Transient::new(Unavailability::ClusterDown, detail, Applied::No))
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the connectors, which have the password.
        f.debug_struct("Cluster")
            .field("nodes", &self.map().nodes().count())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::redis::client::url::{Addresses, Deployment};
    use crate::store::redis::pubsub::channels::Grants;
    use crate::value::url::Url;

    #[test]
    fn a_node_has_one_round_trip_for_all_connections_of_a_manager() {
        let timeout = Duration::from_secs(1);
        let servers = Deployment::of(&Url::parse("redis-cluster://one:7000").unwrap(), timeout);
        let Deployment { at: Addresses::Cluster(at), settings, .. } = servers.unwrap() else {
            panic!("a cluster")
        };
        let cluster = Cluster::new(&at, &settings, timeout, &Arc::default(), Grants::new(true, ""));
        let node = |cluster: &Cluster, host: &str| {
            let at = ConnectionAddr::Tcp(host.to_owned(), 7000);
            Node::with(cluster.connector(at).unwrap(), timeout)
        };
        let (main, background) =
            (node(&cluster, "one"), node(&cluster.apart(Grants::new(true, "")), "one"));
        assert!(Arc::ptr_eq(main.round_trip(), background.round_trip()));
        assert!(!Arc::ptr_eq(main.round_trip(), node(&cluster, "two").round_trip()));
    }
}
