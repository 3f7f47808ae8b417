//! The address of a server, and the state that its connections share.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

use redis::{ConnectionAddr, ConnectionInfo};
use tokio::time::Instant;

use crate::store::redis::client::connection::{Connection, Delivery};
use crate::store::redis::client::error::CallError;
use crate::store::redis::client::failover::Failover;
use crate::store::redis::client::health::Health;
use crate::store::redis::client::replicas::ReplicaAcks;
use crate::store::redis::client::sentinel::Sentinels;
use crate::store::redis::client::settings::Settings;
use crate::store::redis::client::subscriptions::PushSink;
use crate::store::redis::client::url::{Address, Target};
use crate::value::error::LockError;
use crate::value::sync::{Mutex, MutexGuard};

/// Opens connections to one server.
pub(crate) struct Connector {
    pub(crate) address: Address,
    /// The sentinels that name the server, if the URL lists sentinels.
    pub(crate) sentinels: Option<Sentinels>,
    pub(crate) timeout: Duration,
    pub(crate) changes: Arc<Failover>,
    /// How grants arrive on the next connection.
    delivery: Mutex<Delivery>,
    /// Connections in a row that were closed before grants could arrive on them.
    pub(crate) closed: AtomicU32,
    /// The start of the period in which connections for subscriptions are counted, and their
    /// number.
    pub(crate) opened: Mutex<(Instant, u32)>,
    pub(crate) sink: Arc<dyn PushSink>,
}

impl Connector {
    /// A connector for the server of a URL. Data that the network has not accepted within `unsent`
    /// is dropped, on systems with such a setting.
    pub(crate) fn new(
        url: &str,
        unsent: Duration,
        sink: Arc<dyn PushSink>,
    ) -> Result<Self, LockError> {
        let address = Address::parse(url, unsent)?;
        Ok(Self::with(address, unsent, Arc::default(), sink))
    }

    pub(crate) fn of_server(
        server: ConnectionInfo,
        unsent: Duration,
        sink: Arc<dyn PushSink>,
    ) -> Self {
        Self::with(Address::of_server(&server, unsent), unsent, Arc::default(), sink)
    }

    pub(crate) fn settings_mut(&mut self) -> &mut Settings {
        &mut self.address.settings
    }

    /// Makes a refused login transient if the next credentials may be accepted.
    pub(crate) fn or_next_login(&self, error: CallError) -> CallError {
        self.address.settings.or_next_login(error)
    }

    /// A connector for the same server, with other waiters.
    pub(crate) fn apart(&self, sink: Arc<dyn PushSink>) -> Self {
        let (address, changes) = (self.address.clone(), Arc::clone(&self.changes));
        Self::with(address, self.timeout, changes, sink)
    }

    fn with(
        address: Address,
        timeout: Duration,
        changes: Arc<Failover>,
        sink: Arc<dyn PushSink>,
    ) -> Self {
        let (delivery, closed) = (Mutex::new(Delivery::NotAsked), AtomicU32::new(0));
        let opened = Mutex::new((Instant::now(), 0));
        let sentinels = match &address.target {
            Target::Named(group) => Some(Sentinels::new((**group).clone())),
            Target::At(_) => None,
        };
        Self { address, sentinels, timeout, changes, delivery, closed, opened, sink }
    }

    /// A connector for another server of a cluster, with the same users and settings.
    pub(crate) fn to(&self, (host, port): (&str, u16), sink: &Arc<dyn PushSink>) -> Self {
        let target = Target::At(ConnectionAddr::Tcp(host.to_owned(), port));
        let address = Address { target, ..self.address.clone() };
        Self::with(address, self.timeout, self.changes.for_node(), Arc::clone(sink))
    }

    /// The number of the selected database.
    pub(crate) fn database(&self) -> i64 {
        self.address.settings.database()
    }

    /// The host and port of the server; `None` for a socket, and where sentinels name the server.
    pub(crate) fn endpoint(&self) -> Option<(&str, u16)> {
        match &self.address.target {
            Target::At(ConnectionAddr::Tcp(host, port)) => Some((host, *port)),
            _ => None,
        }
    }

    /// The server's address for messages: host and port, or a path; without user, password and
    /// database.
    pub(crate) fn server(&self) -> String {
        match &self.address.target {
            Target::At(at) => at.to_string(),
            Target::Named(sentinels) => match self.changes.last() {
                Some(at) => at.to_string(),
                None => sentinels.to_string(),
            },
        }
    }

    /// The health of the server. Servers that follow one another under one name share it.
    pub(crate) fn health(&self) -> Arc<Health> {
        self.changes.healths().of(&self.name())
    }

    /// The name of the server. Servers that follow one another under one name share it.
    pub(crate) fn name(&self) -> String {
        match &self.address.target {
            Target::At(at) => at.to_string(),
            Target::Named(sentinels) => sentinels.to_string(),
        }
    }

    /// The replicas that have to acknowledge a lock, as the URL says.
    pub(crate) fn replicated(&self) -> Option<ReplicaAcks> {
        self.address.replicated
    }

    /// The retention of fences, as the URL says.
    pub(crate) fn fence_retention(&self) -> Option<Duration> {
        self.address.fence_retention
    }

    /// Makes new connections receive grants, where the server allows it.
    pub(crate) fn receive(&self) {
        let mut delivery = self.delivery();
        if *delivery == Delivery::NotAsked {
            *delivery = Delivery::Resp3;
        }
    }

    /// Whether another server may take over the name at any time.
    pub(crate) fn fails_over(&self) -> bool {
        matches!(self.address.target, Target::Named(_))
    }

    /// Whether a connection leads to the server that the address leads to now.
    pub(crate) fn is_current(&self, connection: &Connection) -> bool {
        self.changes.is_current(connection.generation)
    }

    /// Whether most sentinels name another server than the one connected to.
    pub(crate) async fn is_replaced(&self) -> bool {
        let Some(sentinels) = &self.sentinels else { return false };
        sentinels.agreed().await.is_some_and(|at| self.changes.leads_elsewhere(&at))
    }

    /// Closes the connections to the sentinels, and keeps none from now on.
    pub(crate) fn close(&self) {
        if let Some(sentinels) = &self.sentinels {
            sentinels.close();
        }
    }

    pub(crate) fn delivery(&self) -> MutexGuard<'_, Delivery> {
        self.delivery.lock()
    }
}
