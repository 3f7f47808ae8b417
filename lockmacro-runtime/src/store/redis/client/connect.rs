//! Opening a connection to a server.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use redis::aio::{MultiplexedConnection, SendError};
use redis::{AsyncConnectionConfig, Client, ConnectionAddr, ProtocolVersion, PushInfo, Value};
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
use crate::value::error::{LockError, Unavailability};
use crate::value::time::Instant;

/// Commands that fit into the buffer of a connection: more than are ever in flight.
///
/// A caller that waited for room in the buffer could be given the room while nobody polls that
/// caller, and would keep the room from the others.
const PIPELINE_BUFFER: usize = 1 << 24;

impl Connector {
    pub(crate) async fn open(&self) -> Result<Connection, CallError> {
        let at = match (&self.target, &self.sentinels) {
            (_, Some(sentinels)) => sentinels.primary().await?,
            (Target::At(at), None) => at.clone(),
            (Target::Named(_), None) => return Err(no_primary()),
        };
        let settings = self.settings.current().await?;
        let opened = if self.sentinels.is_some() {
            // A server that hangs is soon replaced, first at the sentinels and then here.
            timeout(self.timeout / 4, self.open_primary(&settings, &at))
                .await
                .unwrap_or_else(|_| Err(CallError::not_connected()))
        } else {
            self.open_and_ask(&settings, &at).await
        };
        match opened.map_err(|error| self.settings.or_next_login(error)) {
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
    ) -> Result<Connection, CallError> {
        let mut connection = self.open_and_ask(settings, at).await?;
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
    ) -> Result<Connection, CallError> {
        let channels = Subscriptions::new(&self.sink);
        let delivery = match self.open_with_pushes(settings, at, &channels).await {
            _ if self.was_closed_again() => Delivery::Failed(Instant::now()),
            Ok(inner) => return Ok(Connection::new(inner, Delivery::Pushed, channels)),
            Err(CallError::Final(LockError::Unavailable {
                reason: Unavailability::Protocol,
                ..
            })) => Delivery::Refused,
            Err(error) => return Err(error),
        };
        let plain = settings.client(at).map_err(CallError::Final)?;
        let inner = self.open_checked(&plain, AsyncConnectionConfig::new()).await?;
        Ok(Connection::new(inner, delivery, channels))
    }

    /// Opens a connection on which pushes arrive: among the replies, and never before the replies
    /// to earlier commands.
    async fn open_with_pushes(
        &self,
        settings: &Settings,
        at: &ConnectionAddr,
        channels: &Arc<Subscriptions>,
    ) -> Result<MultiplexedConnection, CallError> {
        let channels = Arc::clone(channels);
        let push = move |push: PushInfo| -> Result<(), SendError> {
            channels.push(&push);
            Ok(())
        };
        let config = AsyncConnectionConfig::new().set_push_sender(push);
        let login = settings.login.clone().set_protocol(ProtocolVersion::RESP3);
        let resp3 = Settings { login, ..settings.clone() }.client(at).map_err(CallError::Final)?;
        let opened = self.open_checked(&resp3, config).await;
        opened.inspect_err(|error| self.note_closed(error))
    }

    /// Counts a connection that was closed before grants could arrive on it: some proxies close a
    /// connection on a command that they do not know.
    pub(crate) fn note_closed(&self, error: &CallError) {
        let reason = Unavailability::Disconnected;
        if matches!(error, CallError::Transient(transient) if transient.reason == reason) {
            self.closed.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Whether two connections in a row were closed like that. The next one is the second again.
    fn was_closed_again(&self) -> bool {
        let counted_again = |closed| (closed > 1).then_some(1);
        self.closed.fetch_update(Ordering::Relaxed, Ordering::Relaxed, counted_again).is_ok()
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
