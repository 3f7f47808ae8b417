//! Opening connections to a server, and the state that they share.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::{MultiplexedConnection, SendError};
use redis::{AsyncConnectionConfig, ConnectionAddr, ProtocolVersion, PushInfo, Value};
use tokio::time::timeout;

use crate::store::redis::client::channels::{Channels, Grants};
use crate::store::redis::client::connection::Connection;
use crate::store::redis::client::rejection::explained;
use crate::store::redis::client::sentinel::{Sentinels, is_primary};
use crate::store::redis::client::settings::Settings;
use crate::store::redis::client::stream;
use crate::store::remote::clock::ServerClock;
use crate::store::remote::error::RemoteError;
use crate::store::remote::health::{Health, Monitor};
use crate::sys::time::Instant;
use crate::value::applied::Applied;
use crate::value::error::{LockError, UnavailableReason};

/// Commands that fit into the buffer of a connection: more than are ever in flight.
///
/// A caller that waited for room in the buffer could be given the room while nobody polls that
/// caller, and would keep the room from the others.
const PIPELINE_BUFFER: usize = 1 << 24;

/// Opens connections to one server.
pub(crate) struct Connector {
    server: Server,
    pub(crate) settings: Settings,
    /// Longest time to open a connection.
    pub(crate) timeout: Duration,
    pub(crate) monitor: Arc<Monitor>,
    pub(crate) grants: Arc<Grants>,
    pub(crate) clock: ServerClock,
}

#[derive(Clone)]
pub(crate) enum Server {
    At(ConnectionAddr),
    /// The primary that these sentinels name.
    Named(Box<Sentinels>),
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Server::At(at) => at.fmt(f),
            Server::Named(sentinels) => sentinels.fmt(f),
        }
    }
}

impl Connector {
    /// A connector for a server. Opening a connection takes at most `timeout`.
    pub(crate) fn new(
        server: Server,
        settings: Settings,
        timeout: Duration,
        monitor: &Arc<Monitor>,
        grants: &Arc<Grants>,
    ) -> Self {
        let monitor = Arc::clone(monitor);
        let grants = Arc::clone(grants);
        let clock = ServerClock::default();
        Self { server, settings, timeout, monitor, grants, clock }
    }

    /// A connector for the same server, with other waiters.
    pub(crate) fn apart(&self, grants: &Arc<Grants>) -> Self {
        let server = match &self.server {
            Server::At(at) => Server::At(at.clone()),
            Server::Named(sentinels) => Server::Named(Box::new(sentinels.apart())),
        };
        Self::new(server, self.settings.clone(), self.timeout, &self.monitor, grants)
    }

    /// The sentinels that name the server, if any do.
    fn sentinels(&self) -> Option<&Sentinels> {
        match &self.server {
            Server::At(_) => None,
            Server::Named(sentinels) => Some(sentinels),
        }
    }

    /// The address of the server; `None` where sentinels name the server.
    pub(crate) fn address(&self) -> Option<&ConnectionAddr> {
        match &self.server {
            Server::At(at) => Some(at),
            Server::Named(_) => None,
        }
    }

    /// The server's address for messages: host and port, or a path; without user, password and
    /// database.
    pub(crate) fn name(&self) -> String {
        let last = self.sentinels().and_then(Sentinels::last);
        last.map_or_else(|| self.server.to_string(), |at| at.to_string())
    }

    /// The health of the server. Servers that follow one another under one name share it.
    pub(crate) fn health(&self) -> Arc<Health> {
        self.monitor.health_of(&self.server.to_string())
    }

    /// Whether a connection leads to the server that the address leads to now.
    pub(crate) fn is_current(&self, connection: &Connection) -> bool {
        let sentinels = self.sentinels();
        sentinels.is_none_or(|sentinels| sentinels.generation() == connection.generation)
    }

    /// Whether most sentinels name another server than the one connected to.
    pub(crate) async fn is_replaced(&self) -> bool {
        let Some(sentinels) = self.sentinels() else { return false };
        let named = sentinels.primary().await;
        named.is_ok_and(|(at, by_most)| by_most && sentinels.last().is_some_and(|last| last != at))
    }

    /// Closes the connections to the sentinels, and keeps none from now on.
    pub(crate) fn close(&self) {
        if let Some(sentinels) = self.sentinels() {
            sentinels.close();
        }
    }

    /// Makes a refused login transient if the next credentials may be accepted.
    pub(crate) fn or_next_login(&self, error: RemoteError) -> RemoteError {
        self.settings.or_next_login(error)
    }

    pub(crate) async fn open(&self) -> Result<Connection, RemoteError> {
        let (at, limit) = match &self.server {
            Server::At(at) => (at.clone(), self.timeout),
            // A server that hangs is soon replaced, first at the sentinels and then here.
            Server::Named(sentinels) => (sentinels.primary().await?.0, self.timeout / 4),
        };
        let settings = self.settings.current().await?;
        let channels = Channels::new(&self.grants);
        let opened = async {
            let mut inner = self.open_checked(&settings, &at, &channels).await?;
            if self.sentinels().is_some()
                && !is_primary(inner.send_packed_command(&redis::cmd("ROLE")).await)
            {
                let why = "the sentinels still name a server that is no longer the primary";
                return Err(RemoteError::broken(UnavailableReason::ReadOnly, why, Applied::No));
            }
            Ok(inner)
        };
        let opened = timeout(limit, opened).await;
        match opened.unwrap_or_else(|_| Err(RemoteError::not_connected())) {
            Ok(inner) => {
                let opened = self.sentinels().map(|sentinels| sentinels.opened(&at));
                let (generation, moved) = opened.unwrap_or_default();
                // After the login: the locks that are confirmed because of this need a server that
                // answers.
                self.monitor.opened(moved);
                Ok(Connection::new(inner, channels, generation))
            }
            Err(error) => Err(explained(&settings, &at, self.or_next_login(error)).await),
        }
    }

    /// Opens a connection on which pushes arrive: among the replies, and never before the replies
    /// to earlier commands. Sends a PING, as a server that wants a password says so in its reply,
    /// and asks for the server's time.
    async fn open_checked(
        &self,
        settings: &Settings,
        at: &ConnectionAddr,
        channels: &Arc<Channels>,
    ) -> Result<MultiplexedConnection, RemoteError> {
        let channels = Arc::clone(channels);
        let push = move |push: PushInfo| -> Result<(), SendError> {
            channels.push(&push);
            Ok(())
        };
        let config = AsyncConnectionConfig::new()
            .set_push_sender(push)
            .set_connection_timeout(None)
            .set_response_timeout(None)
            .set_pipeline_buffer_size(PIPELINE_BUFFER);
        let login = settings.login.clone().set_protocol(ProtocolVersion::RESP3);
        let client = settings.with(login).client(at).map_err(RemoteError::Final)?;
        let connection = stream::connection(&client, &config).await;
        let mut connection = connection.map_err(RemoteError::unapplied)?;
        let greetings = redis::pipe().cmd("PING").cmd("TIME").clone();
        let asked = Instant::now();
        let replies = connection.send_packed_commands(&greetings, 0, greetings.len()).await;
        self.health().round_trip.note(asked);
        let mut replies = replies.map_err(RemoteError::unapplied)?.into_iter();
        let greeting = replies.next().unwrap_or(Value::Nil).extract_error();
        match greeting.map_err(RemoteError::unapplied) {
            Ok(_) | Err(RemoteError::Final(LockError::AccessDenied { .. })) => {}
            Err(error) => return Err(error),
        }
        // Without it the first requests have no end.
        if let Some((seconds, micros)) =
            replies.next().and_then(|time| redis::from_redis_value::<(u64, u64)>(time).ok())
        {
            self.clock.note(seconds.saturating_mul(1_000_000).saturating_add(micros));
        }
        Ok(connection)
    }
}
