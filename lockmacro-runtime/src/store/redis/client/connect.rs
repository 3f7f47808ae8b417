//! Opening a connection to a server.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use redis::aio::{MultiplexedConnection, SendError};
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ProtocolVersion, PushInfo, RedisError, Value,
};
use tokio::time::timeout;

use crate::store::redis::client::connection::{Connection, Delivery};
use crate::store::redis::client::connector::Connector;
use crate::store::redis::client::database::not_there;
use crate::store::redis::client::error::{CallError, DB};
use crate::store::redis::client::rejection::explained;
use crate::store::redis::client::sentinel::{is_primary, no_primary};
use crate::store::redis::client::settings::Settings;
use crate::store::redis::client::stream;
use crate::store::redis::client::subscriptions::Subscriptions;
use crate::store::redis::client::url::Target;
use crate::value::error::LockError;
use crate::value::time::Instant;
use crate::value::unavailability::Unavailability;

/// Commands that fit into the buffer of a connection: more than are ever in flight.
///
/// A caller that waited for room in the buffer could be given the room while nobody polls that
/// caller, and would keep the room from the others.
const PIPELINE_BUFFER: usize = 1 << 24;

impl Connector {
    pub(crate) async fn open(&self) -> Result<Connection, CallError> {
        let delivery = *self.delivery();
        self.open_as(delivery).await
    }

    /// Opens a connection that receives no grants.
    pub(crate) async fn open_plain(&self) -> Result<Connection, CallError> {
        self.open_as(Delivery::NotAsked).await
    }

    async fn open_as(&self, delivery: Delivery) -> Result<Connection, CallError> {
        let at = match (&self.target, &self.sentinels) {
            (_, Some(sentinels)) => sentinels.primary().await?,
            (Target::At(at), None) => at.clone(),
            (Target::Named(_), None) => return Err(no_primary()),
        };
        let settings = self.settings.current().await?;
        let opened = if self.sentinels.is_some() {
            // A server that hangs is soon replaced, first at the sentinels and then here.
            timeout(self.timeout / 4, self.open_primary(&settings, &at, delivery))
                .await
                .unwrap_or_else(|_| Err(CallError::not_connected()))
        } else {
            self.open_and_ask(&settings, &at, delivery).await
        };
        match opened.map_err(|error| self.or_next_login(error)) {
            Ok(mut connection) => {
                connection.generation = self.changes.opened(&at);
                Ok(connection)
            }
            Err(CallError::Transient(error)) if !error.login => Err(explained(&at, error).await),
            Err(CallError::Final(LockError::InvalidSetting { setting: DB, detail })) => {
                Err(not_there(&settings, &at, detail).await)
            }
            Err(error) => Err(error),
        }
    }

    async fn open_primary(
        &self,
        settings: &Settings,
        at: &ConnectionAddr,
        delivery: Delivery,
    ) -> Result<Connection, CallError> {
        let mut connection = self.open_and_ask(settings, at, delivery).await?;
        let role = connection.inner.send_packed_command(&redis::cmd("ROLE")).await;
        if is_primary(&role.and_then(Value::extract_error)) {
            Ok(connection)
        } else {
            Err(no_primary())
        }
    }

    async fn open_and_ask(
        &self,
        settings: &Settings,
        at: &ConnectionAddr,
        mut delivery: Delivery,
    ) -> Result<Connection, CallError> {
        if delivery == Delivery::Pushed {
            match self.open_subscribed(settings, at).await? {
                Ok(connection) => return Ok(connection),
                Err(otherwise) => delivery = otherwise,
            }
        }
        let plain = settings.client(at).map_err(CallError::Final)?;
        let inner = self.open_checked(&plain, AsyncConnectionConfig::new()).await?;
        Ok(Connection::new(inner, delivery, Subscriptions::new(&self.sink)))
    }

    /// Opens a connection that receives grants as pushes, or returns why there is none.
    async fn open_subscribed(
        &self,
        settings: &Settings,
        at: &ConnectionAddr,
    ) -> Result<Result<Connection, Delivery>, CallError> {
        let channels = Subscriptions::new(&self.sink);
        let pushed = Arc::clone(&channels);
        let pushes = move |push: PushInfo| -> Result<(), SendError> {
            pushed.push(&push);
            Ok(())
        };
        let config = AsyncConnectionConfig::new().set_push_sender(pushes);
        // Pushes arrive on the connection of the commands, and never before the replies to earlier
        // commands.
        let login = settings.login.clone().set_protocol(ProtocolVersion::RESP3);
        let resp3 = Settings { login, ..settings.clone() }.client(at).map_err(CallError::Final)?;
        let mut inner = match self.open_checked(&resp3, config).await {
            Ok(inner) => inner,
            Err(CallError::Final(LockError::Unavailable {
                reason: Unavailability::Protocol,
                ..
            })) => return Ok(Err(Delivery::Refused)),
            Err(error) if self.is_closed_again(&error) => {
                return Ok(Err(Delivery::Failed(Instant::now())));
            }
            Err(error) => return Err(error),
        };
        if self.sink.is_by_slot() {
            // In a cluster the waiters subscribe to the channel of their slot.
            self.closed.store(0, Ordering::Relaxed);
            return Ok(Ok(Connection::new(inner, Delivery::Pushed, channels)));
        }
        let subscribed = inner.subscribe(&self.sink.channel(0)).await;
        let connection = Connection::new(inner, Delivery::Pushed, channels);
        match self.checked_subscription(connection, subscribed).await {
            Ok(connection) => {
                self.closed.store(0, Ordering::Relaxed);
                Ok(Ok(connection))
            }
            Err(error) if self.is_closed_again(&error) => Ok(Err(Delivery::Failed(Instant::now()))),
            Err(error) => Err(error),
        }
    }

    /// Counts a connection that was closed, and returns whether it was not the first in a row: some
    /// proxies close a connection on a command that they do not know.
    fn is_closed_again(&self, error: &CallError) -> bool {
        let reason = Unavailability::Disconnected;
        matches!(error, CallError::Transient(transient) if transient.reason == reason)
            && self.closed.fetch_add(1, Ordering::Relaxed) > 0
    }

    /// Checks that the user may use the channel, to subscribe and to publish: a release looks for
    /// subscribers before it hands the lock off.
    async fn checked_subscription(
        &self,
        mut connection: Connection,
        subscribed: Result<(), RedisError>,
    ) -> Result<Connection, CallError> {
        let mut probe = redis::cmd("PUBLISH");
        probe.arg(self.sink.channel(0)).arg("");
        let received = match subscribed {
            Ok(()) => connection.inner.send_packed_command(&probe).await,
            Err(error) => Err(error),
        };
        match received.and_then(Value::extract_error).map_err(CallError::unapplied) {
            Ok(_) => Ok(connection),
            Err(CallError::Final(
                LockError::AccessDenied { .. } | LockError::Unavailable { .. },
            )) => {
                let Connection { inner, channels, .. } = connection;
                Ok(Connection::new(inner, Delivery::Refused, channels))
            }
            Err(error) => Err(error),
        }
    }

    /// Opens a connection and sends a PING: a server that wants a password says so in its reply.
    async fn open_checked(
        &self,
        client: &Client,
        config: AsyncConnectionConfig,
    ) -> Result<MultiplexedConnection, CallError> {
        let config = config
            .set_connection_timeout(None)
            .set_response_timeout(None)
            .set_pipeline_buffer_size(PIPELINE_BUFFER);
        let connection = stream::connection(client, &config).await;
        let mut connection = connection.map_err(CallError::unapplied)?;
        let asked = Instant::now();
        let greeting = connection.send_packed_command(&redis::cmd("PING")).await;
        self.health().round_trip().note(asked);
        match greeting.and_then(Value::extract_error).map_err(CallError::unapplied) {
            Ok(_) | Err(CallError::Final(LockError::AccessDenied { .. })) => Ok(connection),
            Err(error) => Err(error),
        }
    }
}
