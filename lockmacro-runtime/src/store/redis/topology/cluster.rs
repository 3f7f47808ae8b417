//! A Redis Cluster: its nodes, the slot map that each of them knows, and the route of a command to
//! the node of its slot.
//!
//! By the specification of Redis Cluster a MOVED names the node of a slot for good, and an ASK for
//! one command only. A redirected command was not applied.

use std::fmt;
use std::mem;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use redis::{ConnectionAddr, Value, from_redis_value_ref};
use tokio::time::timeout;

use crate::store::redis::client::channels::Grants;
use crate::store::redis::client::connector::{Connector, Server};
use crate::store::redis::client::error::unexpected;
use crate::store::redis::client::node::Node;
use crate::store::redis::client::settings::Settings;
use crate::store::remote::budget::Budget;
use crate::store::remote::error::{RemoteError, Transient};
use crate::store::remote::health::Monitor;
use crate::store::remote::singleflight::SingleFlight;
use crate::sys::random;
use crate::sys::sync::{Mutex, MutexGuard};
use crate::sys::time::Instant;
use crate::value::applied::Applied;
use crate::value::companion::SLOTS;
use crate::value::error::{LockError, UnavailableReason};

/// Time without an answer after which the next node is asked for the slot map, too.
const STAGGER: Duration = Duration::from_millis(50);
/// Shortest time between two requests for the slot map.
const REFRESH_EVERY: Duration = Duration::from_millis(100);
/// Most redirects of one command.
const REDIRECTIONS: u32 = 8;
/// Stands for no node.
const NONE: u16 = u16::MAX;

/// A cluster; clones share it.
#[derive(Clone)]
pub(crate) struct Cluster(Arc<ClusterState>);

struct ClusterState {
    /// The addresses of the URL.
    seeds: Vec<ConnectionAddr>,
    /// Of all nodes.
    settings: Settings,
    timeout: Duration,
    monitor: Arc<Monitor>,
    grants: Arc<Grants>,
    map: Mutex<SlotMap>,
    refreshing: SingleFlight<Result<(), RemoteError>>,
    /// No node keeps a connection any more.
    closed: AtomicBool,
}

impl Cluster {
    /// A cluster with these nodes, not connected yet. All share the monitor.
    pub(crate) fn new(
        seeds: Vec<ConnectionAddr>,
        settings: Settings,
        timeout: Duration,
        monitor: &Arc<Monitor>,
        grants: &Arc<Grants>,
    ) -> Self {
        let monitor = Arc::clone(monitor);
        let grants = Arc::clone(grants);
        let map = Mutex::default();
        let refreshing = SingleFlight::new(timeout);
        let closed = false.into();
        let shared =
            ClusterState { seeds, settings, timeout, monitor, grants, map, refreshing, closed };
        Self(Arc::new(shared))
    }

    /// The same cluster, through connections of its own.
    pub(crate) fn apart(&self, grants: &Arc<Grants>) -> Self {
        let ClusterState { seeds, settings, timeout, monitor, .. } = &*self.0;
        let mut seeds = seeds.clone();
        seeds
            .extend(self.map().nodes.iter().filter_map(|node| node.connector().address().cloned()));
        Self::new(seeds, settings.clone(), *timeout, monitor, grants)
    }

    /// Closes all connections for good, also those of nodes that become known later.
    pub(crate) fn close(&self) {
        self.0.closed.store(true, Ordering::SeqCst);
        self.0.refreshing.abort();
        self.map().nodes.iter().for_each(Node::close);
    }

    /// Changes the slot map.
    fn change<T>(&self, change: impl FnOnce(&mut SlotMap) -> T) -> T {
        let mut map = self.map();
        let changed = change(&mut map);
        // Either this sees the shutdown, or the shutdown sees the new nodes.
        if self.0.closed.load(Ordering::SeqCst) {
            map.nodes.iter().for_each(Node::close);
        }
        changed
    }

    /// All primaries.
    pub(crate) async fn nodes(&self, until: Instant) -> Result<Vec<Node>, RemoteError> {
        self.refresh(until).await?;
        Ok(self.map().nodes.clone())
    }

    /// Fetches the slot map, unless that was done just now.
    pub(crate) async fn refresh(&self, until: Instant) -> Result<(), RemoteError> {
        if self.map().is_younger_than(REFRESH_EVERY) {
            return Ok(());
        }
        let refreshed = self.0.refreshing.run(|| self.clone().fetch_map(), until);
        let timeout = || RemoteError::timeout("asking for the slots", Applied::No);
        Box::pin(refreshed).await.unwrap_or_else(|| Err(timeout().at(|| self.servers())))
    }

    /// The addresses of the URL.
    fn servers(&self) -> String {
        let servers: Vec<_> = self.0.seeds.iter().map(ToString::to_string).collect();
        servers.join(", ")
    }

    /// Fetches the slot map in the background.
    fn refresh_soon(&self) {
        if !self.map().is_younger_than(REFRESH_EVERY) {
            self.0.refreshing.begin(|| self.clone().fetch_map());
        }
    }

    /// Asks the nodes for the slot map, each after a short delay, until one has answered.
    async fn fetch_map(self) -> Result<(), RemoteError> {
        let mut nodes = self.map().nodes.clone();
        // Otherwise all processes would ask the same node after a failover.
        random::shuffle(&mut nodes);
        // All known nodes may be gone by now.
        for seed in &self.0.seeds {
            if !nodes.iter().any(|node| node.connector().address() == Some(seed)) {
                nodes.push(self.new_node(seed.clone()));
            }
        }
        let mut nodes = nodes.into_iter();
        let mut asked = FuturesUnordered::new();
        let mut error = down("no node was asked");
        let budget = || Budget::new(self.0.timeout, self.0.timeout);
        let ask = |node: Node| async move { (slots(&node, budget()).await, node) };
        loop {
            let more = nodes.next().map(|node| asked.push(ask(node))).is_some();
            let pause = if more { STAGGER } else { self.0.timeout };
            match timeout(pause, asked.next()).await {
                // A node without slots has forgotten its cluster.
                Ok(Some((Ok(ranges), node))) if ranges.is_empty() => {
                    let none = down("no slot is assigned to a node").at(|| node.server());
                    error = error.unless_final(none);
                }
                Ok(Some((Ok(ranges), node))) => {
                    self.take(&node, ranges);
                    return Ok(());
                }
                Ok(Some((Err(cause), _))) => error = error.unless_final(cause),
                Ok(None) if !more => return Err(error),
                _ => {}
            }
        }
    }

    /// Adopts the slot map of a node, and makes the waiters of slots that moved ask again.
    fn take(&self, source: &Node, ranges: Vec<Assigned>) {
        let fetched = Some((Instant::now(), source.server()));
        let mut next = SlotMap { fetched, ..SlotMap::default() };
        for (slots, at) in ranges {
            // A node may have several ranges.
            let node = next.node_at(&at).cloned();
            next.assign(slots, node.unwrap_or_else(|| self.node_at(at, source)));
        }
        let (moved, before) = self.change(|map| {
            let moved = next.differs_from(map);
            (moved, mem::replace(map, next))
        });
        // Without the mutex: the drop of a node that is down tells a recorder of metrics.
        drop(before);
        if !moved.is_empty() {
            // After the change of the map, by which the waiters ask again.
            self.0.grants.interrupted(&moved);
            // A replica that has taken over may not know the locks. A first slot map counts as a
            // change, because the slots may have moved since the locks were granted.
            self.0.monitor.changed();
        }
    }

    /// The node at an address: a known one, that which named it, or a new one.
    fn node_at(&self, at: ConnectionAddr, source: &Node) -> Node {
        if let Some(known) = self.map().node_at(&at) {
            return known.clone();
        }
        if source.connector().address() == Some(&at) { source.clone() } else { self.new_node(at) }
    }

    fn new_node(&self, at: ConnectionAddr) -> Node {
        let ClusterState { settings, timeout, monitor, grants, .. } = &*self.0;
        Node::new(Connector::new(Server::At(at), settings.clone(), *timeout, monitor, grants))
    }

    /// Sends a call by `send` to the node of a slot, and to the next node for as long as the call
    /// is redirected.
    pub(crate) async fn route<T, F>(
        &self,
        slot: u16,
        budget: Budget,
        mut send: impl FnMut(Node) -> F,
    ) -> Result<T, RemoteError>
    where
        F: Future<Output = Result<T, RemoteError>>,
    {
        let mut node = self.node_of(slot, budget.until).await?;
        for _ in 0..=REDIRECTIONS {
            match send(node.clone()).await {
                Err(RemoteError::Redirect { address, once }) => {
                    node = self.redirected(slot, (&address, once), &node)?;
                }
                Err(error) => return Err(self.failed(error, budget.until).await),
                reply => return reply,
            }
        }
        Err(down("its nodes redirect the command in a circle").at(|| node.server()))
    }

    /// The node of a slot.
    async fn node_of(&self, slot: u16, until: Instant) -> Result<Node, RemoteError> {
        if let Some(node) = self.known(slot) {
            return Ok(node);
        }
        self.refresh(until).await?;
        self.known(slot).ok_or_else(|| {
            let source = self.map().fetched.as_ref().map(|(_, source)| source.clone());
            down("no node has the slot").at(|| source.unwrap_or_else(|| self.servers()))
        })
    }

    /// The node of a slot, if it is known.
    pub(crate) fn known(&self, slot: u16) -> Option<Node> {
        self.map().node_of(slot).cloned()
    }

    /// The node that `source` redirects to, for one call only if `once`.
    fn redirected(
        &self,
        slot: u16,
        (to, once): (&str, bool),
        source: &Node,
    ) -> Result<Node, RemoteError> {
        let Some(at) = read_address(source.connector().address(), to) else {
            let detail = "a node has sent a redirect without an address";
            return Err(down(detail).at(|| source.server()));
        };
        let node = self.node_at(at, source);
        if once {
            // The slot is still being moved, so the map stays as it is.
            return Ok(node.asking());
        }
        if self.change(|map| map.assign(slot..=slot, node.clone())) {
            // Other slots may have moved, too; and the waiters of this slot have to ask its new
            // node.
            self.refresh_soon();
            self.0.grants.interrupted(&[slot]);
        }
        Ok(node)
    }

    /// Refreshes the slot map after an error that a change of it may explain; returns the error for
    /// the caller.
    async fn failed(&self, mut error: RemoteError, until: Instant) -> RemoteError {
        match &mut error {
            RemoteError::Transient(transient) => {
                // One node refuses connections, and the cluster may go on without it.
                if transient.reason == UnavailableReason::Refused {
                    transient.reason = UnavailableReason::ClusterDown;
                }
                if transient.replace {
                    // The slot may have a new primary, which a retry at once then finds.
                    let _ = Box::pin(self.refresh(until)).await;
                } else {
                    self.refresh_soon();
                }
            }
            RemoteError::Split(_) => self.refresh_soon(),
            _ => {}
        }
        error
    }

    fn map(&self) -> MutexGuard<'_, SlotMap> {
        self.0.map.lock()
    }
}

pub(crate) fn down(detail: &str) -> RemoteError {
    RemoteError::Transient(Transient::new(UnavailableReason::ClusterDown, detail, Applied::No))
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the settings, which have the password.
        f.debug_struct("Cluster").field("nodes", &self.map().nodes.len()).finish_non_exhaustive()
    }
}

/// A slot map; empty at first.
#[derive(Default)]
struct SlotMap {
    nodes: Vec<Node>,
    /// The index of each slot's node; empty while the map is unknown.
    owners: Vec<u16>,
    /// When the map was sent, and the address of the node that sent it. The node itself would keep
    /// its connection open.
    fetched: Option<(Instant, String)>,
}

impl SlotMap {
    fn node_at(&self, at: &ConnectionAddr) -> Option<&Node> {
        self.nodes.iter().find(|node| node.connector().address() == Some(at))
    }

    fn node_of(&self, slot: u16) -> Option<&Node> {
        self.nodes.get(usize::from(*self.owners.get(usize::from(slot))?))
    }

    /// Assigns slots to a node; returns whether one of them had another node.
    fn assign(&mut self, slots: RangeInclusive<u16>, node: Node) -> bool {
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
    fn differs_from(&self, other: &Self) -> Vec<u16> {
        let same = |slot: &u16| match (self.node_of(*slot), other.node_of(*slot)) {
            (Some(one), Some(other)) => one.is(other),
            (one, other) => one.is_none() && other.is_none(),
        };
        (0..SLOTS).filter(|slot| !same(slot)).collect()
    }

    fn is_younger_than(&self, age: Duration) -> bool {
        self.fetched.as_ref().is_some_and(|(fetched, _)| fetched.elapsed() < age)
    }
}

/// Consecutive slots, and the address of their node.
type Assigned = (RangeInclusive<u16>, ConnectionAddr);

/// Reads `host:port` as the node at `source` has sent it; the host may contain colons.
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
async fn slots(node: &Node, budget: Budget) -> Result<Vec<Assigned>, RemoteError> {
    let mut command = redis::cmd("CLUSTER");
    command.arg("SLOTS");
    let reply = node.call(command, budget).await.map_err(no_cluster)?;
    ranges(node.connector().address(), &reply).ok_or_else(|| unexpected(&reply))
}

/// A server that is in no cluster is a mistake in the URL.
fn no_cluster(error: RemoteError) -> RemoteError {
    match error {
        RemoteError::Final(LockError::Unavailable { detail, .. })
            if detail.contains("disabled") =>
        {
            let detail = "the server is not in a cluster: use a `redis://` URL";
            RemoteError::Final(LockError::invalid_url(detail))
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
        let first = u16::try_from(*first).ok()?;
        let last = u16::try_from(*last).ok()?;
        let port = u16::try_from(*port).ok()?;
        Some((first..=last, address(source, &host.unwrap_or_default(), port)))
    };
    ranges.into_iter().map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::redis::client::url::{Addresses, Deployment};
    #[cfg(feature = "metrics")]
    use crate::sys::metrics::gauges::Gauges;
    use crate::value::url::Url;

    #[test]
    fn a_map_of_slots_of_any_shape_is_read_or_refused() {
        use crate::store::redis::tests::{fuzz, value};
        fuzz(|rng| {
            let first = redis::Value::Int(rng.i64(-2..70_000));
            let range = redis::Value::Array(vec![first, value(rng, 0), value(rng, 1)]);
            let map = [value(rng, 3), redis::Value::Array(vec![range])];
            map.iter().for_each(|map| drop(ranges(None, map)));
        });
    }

    #[test]
    fn a_node_has_one_round_trip_for_all_connections_of_a_manager() {
        let timeout = Duration::from_secs(1);
        let servers = Deployment::of(&Url::parse("redis-cluster://one:7000").unwrap(), timeout);
        let Deployment { at: Addresses::Cluster(at), settings, .. } = servers.unwrap() else {
            panic!("a cluster")
        };
        let grants = Grants::new(true, "");
        let cluster = Cluster::new(at, settings, timeout, &Arc::default(), &grants);
        let node = |cluster: &Cluster, host: &str| {
            cluster.new_node(ConnectionAddr::Tcp(host.to_owned(), 7000))
        };
        let main = node(&cluster, "one");
        let background = node(&cluster.apart(&Grants::new(true, "")), "one");
        assert!(std::ptr::eq(main.health(), background.health()));
        assert!(!std::ptr::eq(main.health(), node(&cluster, "two").health()));
    }

    /// Its outage ends then, as no answer would end it.
    #[cfg(feature = "metrics")]
    #[test]
    fn a_recorder_of_metrics_may_use_the_cluster_that_a_node_which_is_down_leaves() {
        let (done, is_done) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let timeout = Duration::from_secs(1);
            let url = Url::parse("redis-cluster://one:7000").unwrap();
            let Deployment { settings, .. } = Deployment::of(&url, timeout).unwrap();
            let grants = Grants::new(true, "");
            let cluster = Cluster::new(Vec::new(), settings, timeout, &Arc::default(), &grants);
            let take = |host: &str| {
                let at = ConnectionAddr::Tcp(host.to_owned(), 7000);
                let node = cluster.new_node(at.clone());
                cluster.take(&node, vec![(0..=SLOTS - 1, at)]);
                node
            };
            let used = cluster.clone();
            let recorder = Gauges::new(move |change| {
                done.send((change, used.known(0).is_some())).unwrap();
            });
            metrics::with_local_recorder(&recorder, || {
                let down = UnavailableReason::Timeout;
                take("one").health().failed(down, None, Duration::ZERO, || "one".to_owned());
                drop(take("two"));
            });
        });
        for change in [1.0, -1.0] {
            let told = is_done.recv_timeout(Duration::from_secs(10)).expect("no deadlock");
            assert_eq!(told, (change, true));
        }
    }

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
