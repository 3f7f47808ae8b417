//! How a connection to a server is opened.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::aio::{MultiplexedConnection, SendError};
use redis::io::tcp::TcpSettings;
use redis::io::tcp::socket2::TcpKeepalive;
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, IntoConnectionInfo, ProtocolVersion,
    PushInfo, RedisError, RedisResult, Value,
};

use super::ear::Ear;
use super::grants::{Channels, Grants};
use super::greeting::greeting;
use super::trouble::{Passing, Trouble, full};
use crate::error::{LockError, Unavailability};

/// How long a connection is idle before the system looks whether it is still there.
const IDLE: Duration = Duration::from_secs(30);
/// So many calls may be under way at once: more than there ever are. Who had to wait for room could
/// be given it while nobody polls it, and keep it from the others.
const ROOM: usize = 1 << 24;

/// Whether grants come by a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hearing {
    /// Nobody has waited yet, or what they came by has ended.
    NotAsked,
    Yes,
    /// By a second connection: the server does not speak RESP3.
    Apart,
    /// The user may not use the channel.
    Refused,
}

#[derive(Clone)]
pub(super) struct Connection {
    pub(super) inner: MultiplexedConnection,
    hearing: Hearing,
    pub(super) channels: Arc<Channels>,
    /// Is given up with the connection.
    ear: Option<Arc<Ear>>,
    /// Calls in a row that were not answered.
    silent: Arc<AtomicU32>,
}

/// Opens connections to one server.
pub(super) struct Connector {
    plain: Client,
    /// The same server by RESP3: messages come by the connection of the commands, and never before
    /// the replies to what was sent earlier.
    resp3: Client,
    /// How the next connection is opened.
    hearing: Mutex<Hearing>,
    pub(super) grants: Arc<Grants>,
}

impl Connection {
    fn new(inner: MultiplexedConnection, hearing: Hearing, channels: Arc<Channels>) -> Self {
        Self { inner, hearing, channels, ear: None, silent: Arc::default() }
    }

    pub(super) fn hearing(&self) -> Hearing {
        match &self.ear {
            Some(ear) if !ear.is_open() => Hearing::NotAsked,
            _ => self.hearing,
        }
    }

    /// Sends a command after an ASKING, which is for the next command only.
    pub(super) async fn asking(&mut self, command: &Cmd) -> RedisResult<Value> {
        let mut both = redis::Pipeline::with_capacity(2);
        both.cmd("ASKING").add_command(command.clone());
        let replies = self.inner.send_packed_commands(&both, 1, 1).await?;
        Ok(replies.into_iter().next_back().unwrap_or(Value::Nil))
    }

    pub(super) fn answered(&self) {
        // Mostly it is, and then no other thread is to be made to look again.
        if self.silent.load(Ordering::Relaxed) != 0 {
            self.silent.store(0, Ordering::Relaxed);
        }
    }

    /// Takes note of a call that was not answered; tells how many there were in a row.
    pub(super) fn unanswered(&self) -> u32 {
        self.silent.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(super) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.silent, &other.silent)
    }
}

impl Connector {
    /// What the network does not take within `unsent` is not sent any more, where the system can
    /// be told so.
    pub(super) fn new(url: &str, unsent: Duration) -> Result<Self, LockError> {
        // The library's message could quote the URL, and with it the password.
        let invalid = |_: RedisError| LockError::InvalidUrl {
            detail: "it is not of the form `redis://user:password@host:port/db`".to_owned(),
        };
        let info = url.into_connection_info().map_err(invalid)?;
        // Another crate of the program may have switched the library's TLS on.
        if matches!(info.addr(), ConnectionAddr::TcpTls { .. }) {
            let detail = "there is no TLS: give a `redis://` URL".to_owned();
            return Err(LockError::InvalidUrl { detail });
        }
        let settings = info.redis_settings().clone().set_skip_set_lib_name();
        // A connection that is silently cut while nobody uses it is noticed before it is needed.
        let keepalive = TcpKeepalive::new().with_time(IDLE).with_interval(IDLE / 6);
        let tcp = TcpSettings::default()
            .set_nodelay(true)
            .set_keepalive(keepalive)
            // What was not sent when a connection is given up must not be sent later.
            .set_linger_time(Duration::ZERO);
        #[cfg(any(target_os = "android", target_os = "linux"))]
        let tcp = tcp.set_user_timeout(unsent);
        let info = info.set_tcp_settings(tcp);
        let resp3 = settings.clone().set_protocol(ProtocolVersion::RESP3);
        let plain = Client::open(info.clone().set_redis_settings(settings)).map_err(invalid)?;
        let resp3 = Client::open(info.set_redis_settings(resp3)).map_err(invalid)?;
        Ok(Self::with(plain, resp3, Grants::new(false)))
    }

    /// One for the same server, with waiters of its own.
    pub(super) fn apart(&self) -> Self {
        Self::with(self.plain.clone(), self.resp3.clone(), Grants::new(self.grants.by_slot))
    }

    fn with(plain: Client, resp3: Client, grants: Arc<Grants>) -> Self {
        Self { plain, resp3, hearing: Mutex::new(Hearing::NotAsked), grants }
    }

    /// One for another server that has the same users and settings.
    pub(super) fn to(
        &self,
        host: &str,
        port: u16,
        grants: &Arc<Grants>,
    ) -> Result<Self, LockError> {
        let to = |client: &Client| {
            let info = client.get_connection_info().clone();
            let address = match info.addr().clone() {
                ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
                    ConnectionAddr::TcpTls { host: host.to_owned(), port, insecure, tls_params }
                }
                _ => ConnectionAddr::Tcp(host.to_owned(), port),
            };
            Client::open(info.set_addr(address)).map_err(|_| LockError::InvalidUrl {
                detail: "a node of the cluster has an address that cannot be used".to_owned(),
            })
        };
        Ok(Self::with(to(&self.plain)?, to(&self.resp3)?, Arc::clone(grants)))
    }

    /// The host and port of the server; `None` for a socket.
    pub(super) fn address(&self) -> Option<(&str, u16)> {
        match self.plain.get_connection_info().addr() {
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
                Some((host, *port))
            }
            _ => None,
        }
    }

    /// From now on connections are opened so that grants are heard, if that can be.
    pub(super) fn hear(&self) {
        let mut hearing = self.hearing();
        if *hearing == Hearing::NotAsked {
            *hearing = Hearing::Yes;
        }
    }

    pub(super) async fn open(&self) -> Result<Connection, Trouble> {
        let opened = self.open_and_ask().await;
        if let Err(Trouble::Passing(Passing { reason: Unavailability::Disconnected, .. })) = opened
        {
            let words = greeting(self.plain.get_connection_info().addr()).await;
            if let Some(full) = words.as_deref().and_then(full) {
                return Err(full);
            }
        }
        opened
    }

    async fn open_and_ask(&self) -> Result<Connection, Trouble> {
        let mut hearing = *self.hearing();
        if hearing == Hearing::Yes {
            let channels = Channels::new(&self.grants);
            let pushed = Arc::clone(&channels);
            let pushes = move |push: PushInfo| -> Result<(), SendError> {
                pushed.push(&push);
                Ok(())
            };
            let config = AsyncConnectionConfig::new().set_push_sender(pushes);
            match opened(&self.resp3, config).await {
                // The channels of slots are for who waits there to open.
                Ok(inner) if self.grants.by_slot => {
                    return Ok(Connection::new(inner, hearing, channels));
                }
                Ok(mut inner) => {
                    let subscribed = inner.subscribe(&self.grants.channel(0)).await;
                    let connection = Connection::new(inner, hearing, channels);
                    return self.heard_by(connection, subscribed).await;
                }
                Err(Trouble::Final(LockError::Unavailable {
                    reason: Unavailability::Protocol,
                    ..
                })) => {
                    // The server does not know HELLO, or not this version.
                    hearing = Hearing::Apart;
                    *self.hearing() = hearing;
                }
                Err(trouble) => return Err(trouble),
            }
        }
        let inner = opened(&self.plain, AsyncConnectionConfig::new()).await?;
        let channels = Channels::new(&self.grants);
        if hearing == Hearing::Apart && self.grants.by_slot {
            // A second connection for each node is not worth it.
            return Ok(Connection::new(inner, Hearing::Refused, channels));
        }
        let mut connection = Connection::new(inner, hearing, channels);
        if hearing != Hearing::Apart {
            return Ok(connection);
        }
        let ear = Ear::open(&self.plain, &self.grants).await;
        let subscribed = ear.map(|ear| connection.ear = Some(Arc::new(ear)));
        self.heard_by(connection, subscribed).await
    }

    /// Has grants come by this connection, if the user may listen to the channel and send to it:
    /// who hands a lock over is asked whether somebody heard it.
    async fn heard_by(
        &self,
        mut connection: Connection,
        subscribed: Result<(), RedisError>,
    ) -> Result<Connection, Trouble> {
        let mut knock = redis::cmd("PUBLISH");
        knock.arg(self.grants.channel(0)).arg("");
        let heard = match subscribed {
            Ok(()) => connection.inner.send_packed_command(&knock).await,
            Err(error) => Err(error),
        };
        match heard.and_then(Value::extract_error).map_err(unapplied) {
            Ok(_) => Ok(connection),
            Err(Trouble::Final(LockError::AccessDenied { .. } | LockError::Unavailable { .. })) => {
                let Connection { inner, channels, .. } = connection;
                Ok(Connection::new(inner, Hearing::Refused, channels))
            }
            Err(trouble) => Err(trouble),
        }
    }

    fn hearing(&self) -> MutexGuard<'_, Hearing> {
        // Nothing that runs under this mutex can panic.
        self.hearing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes a connection and asks for a first answer: a server that wants a password says so then.
async fn opened(
    client: &Client,
    config: AsyncConnectionConfig,
) -> Result<MultiplexedConnection, Trouble> {
    let config = config
        .set_connection_timeout(None)
        .set_response_timeout(None)
        .set_pipeline_buffer_size(ROOM);
    let connection = client.get_multiplexed_async_connection_with_config(&config).await;
    let mut connection = connection.map_err(unapplied)?;
    let greeting = connection.send_packed_command(&redis::cmd("PING")).await;
    match greeting.and_then(Value::extract_error).map_err(unapplied) {
        Ok(_) | Err(Trouble::Final(LockError::AccessDenied { .. })) => Ok(connection),
        Err(trouble) => Err(trouble),
    }
}

/// Trouble while connecting: the caller's own command was not sent yet.
fn unapplied(error: RedisError) -> Trouble {
    let mut trouble = Trouble::from(error);
    if let Trouble::Passing(passing) = &mut trouble {
        passing.unknown = false;
    }
    trouble
}
