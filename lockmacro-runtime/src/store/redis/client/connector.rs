//! The address of a server, and the state that its connections share.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

use redis::ConnectionAddr;

use crate::store::redis::client::connection::Connection;
use crate::store::redis::client::failover::Failover;
use crate::store::redis::client::health::Health;
use crate::store::redis::client::sentinel::Sentinels;
use crate::store::redis::client::settings::Settings;
use crate::store::redis::client::subscriptions::PushSink;
use crate::store::redis::client::url::Target;

/// Opens connections to one server.
pub(crate) struct Connector {
    pub(crate) target: Target,
    pub(crate) settings: Settings,
    /// The sentinels that name the server, if the URL lists sentinels.
    pub(crate) sentinels: Option<Sentinels>,
    pub(crate) timeout: Duration,
    pub(crate) changes: Arc<Failover>,
    /// Connections in a row that were closed before grants could arrive on them.
    pub(crate) closed: AtomicU32,
    pub(crate) sink: Arc<dyn PushSink>,
}

impl Connector {
    /// A connector for the same server, with other waiters.
    pub(crate) fn apart(&self, sink: Arc<dyn PushSink>) -> Self {
        let (target, settings) = (self.target.clone(), self.settings.clone());
        Self::new(target, settings, self.timeout, Arc::clone(&self.changes), sink)
    }

    /// A connector for a server. Opening a connection takes at most `timeout`.
    pub(crate) fn new(
        target: Target,
        settings: Settings,
        timeout: Duration,
        changes: Arc<Failover>,
        sink: Arc<dyn PushSink>,
    ) -> Self {
        let sentinels = match &target {
            Target::Named(group) => Some(Sentinels::new((**group).clone())),
            Target::At(_) => None,
        };
        let closed = AtomicU32::new(0);
        Self { target, settings, sentinels, timeout, changes, closed, sink }
    }

    /// A connector for another server of a cluster, with the same users and settings.
    pub(crate) fn to(&self, at: ConnectionAddr, sink: &Arc<dyn PushSink>) -> Self {
        let (settings, changes) = (self.settings.clone(), self.changes.for_node());
        Self::new(Target::At(at), settings, self.timeout, changes, Arc::clone(sink))
    }

    /// The address of the server; `None` where sentinels name the server.
    pub(crate) fn address(&self) -> Option<&ConnectionAddr> {
        match &self.target {
            Target::At(at) => Some(at),
            Target::Named(_) => None,
        }
    }

    /// The server's address for messages: host and port, or a path; without user, password and
    /// database.
    pub(crate) fn server(&self) -> String {
        match &self.target {
            Target::At(at) => at.to_string(),
            Target::Named(sentinels) => match self.changes.last() {
                Some(at) => at.to_string(),
                None => sentinels.to_string(),
            },
        }
    }

    /// The health of the server. Servers that follow one another under one name share it.
    pub(crate) fn health(&self) -> Arc<Health> {
        let name = match &self.target {
            Target::At(at) => at.to_string(),
            Target::Named(sentinels) => sentinels.to_string(),
        };
        self.changes.healths().of(&name)
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
}
