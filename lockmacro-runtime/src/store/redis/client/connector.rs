//! Which server connections lead to, and what they have in common.

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
    /// Who names the server, if others do.
    pub(crate) sentinels: Option<Sentinels>,
    pub(crate) timeout: Duration,
    pub(crate) changes: Arc<Failover>,
    /// How the next connection is opened.
    delivery: Mutex<Delivery>,
    /// How many in a row were closed before grants came by them.
    pub(crate) closed: AtomicU32,
    /// Since when so many were opened that grants come by.
    pub(crate) opened: Mutex<(Instant, u32)>,
    pub(crate) sink: Arc<dyn PushSink>,
}

impl Connector {
    /// What the network does not take within `unsent` is not sent any more, where the system can
    /// be told so.
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

    /// A login that is refused may be accepted with the next credentials.
    pub(crate) fn or_next_login(&self, error: CallError) -> CallError {
        self.address.settings.or_next_login(error)
    }

    /// One for the same server, with waiters of its own.
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

    /// One for another server of a cluster, that has the same users and settings.
    pub(crate) fn to(&self, (host, port): (&str, u16), sink: &Arc<dyn PushSink>) -> Self {
        let target = Target::At(ConnectionAddr::Tcp(host.to_owned(), port));
        let address = Address { target, ..self.address.clone() };
        Self::with(address, self.timeout, self.changes.for_node(), Arc::clone(sink))
    }

    /// The number of the database that is used.
    pub(crate) fn database(&self) -> i64 {
        self.address.settings.database()
    }

    /// The host and port of the server; `None` for a socket, and for one that others name.
    pub(crate) fn endpoint(&self) -> Option<(&str, u16)> {
        match &self.address.target {
            Target::At(ConnectionAddr::Tcp(host, port)) => Some((host, *port)),
            _ => None,
        }
    }

    /// Where the server is, for people: host and port, or a path. Without user, password and
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

    /// How the server does. Of several that follow one another under a name it is one.
    pub(crate) fn health(&self) -> Arc<Health> {
        self.changes.healths().of(&self.name())
    }

    /// What the server is known by: of several that follow one another it is one name.
    pub(crate) fn name(&self) -> String {
        match &self.address.target {
            Target::At(at) => at.to_string(),
            Target::Named(sentinels) => sentinels.to_string(),
        }
    }

    /// What the URL says that replicas have to acknowledge.
    pub(crate) fn replicated(&self) -> Option<ReplicaAcks> {
        self.address.replicated
    }

    /// What the URL says of how long fences are kept.
    pub(crate) fn fence_retention(&self) -> Option<Duration> {
        self.address.fence_retention
    }

    /// From now on connections are opened so that grants are heard, if that can be.
    pub(crate) fn receive(&self) {
        let mut delivery = self.delivery();
        if *delivery == Delivery::NotAsked {
            *delivery = Delivery::Resp3;
        }
    }

    /// Whether another server may stand behind the same name from one moment to the next.
    pub(crate) fn fails_over(&self) -> bool {
        matches!(self.address.target, Target::Named(_))
    }

    /// Whether a connection leads to the server that is the right one now.
    pub(crate) fn is_current(&self, connection: &Connection) -> bool {
        self.changes.is_current(connection.generation)
    }

    /// Whether most sentinels name another server than we are connected to.
    pub(crate) async fn is_replaced(&self) -> bool {
        let Some(sentinels) = &self.sentinels else { return false };
        sentinels.agreed().await.is_some_and(|at| self.changes.leads_elsewhere(&at))
    }

    /// Ends the connections to those who name the server.
    pub(crate) fn disconnect(&self) {
        if let Some(sentinels) = &self.sentinels {
            sentinels.disconnect();
        }
    }
    pub(crate) fn delivery(&self) -> MutexGuard<'_, Delivery> {
        self.delivery.lock()
    }
}
