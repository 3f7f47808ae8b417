//! How a connection to a server is opened, and what comes by it without having been asked for.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::aio::{AsyncPushSender, MultiplexedConnection, SendError};
use redis::io::tcp::TcpSettings;
use redis::io::tcp::socket2::TcpKeepalive;
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, IntoConnectionInfo, ProtocolVersion, PushInfo,
    PushKind, RedisError, Value,
};

use super::greeting::greeting;
use super::trouble::{Passing, Trouble, full};
use crate::clock::Moment;
use crate::error::{LockError, Unavailability};
use crate::fence::Fence;
use crate::waiting::{Handover, Waiters};

/// How long a connection is idle before the system looks whether it is still there.
const IDLE: Duration = Duration::from_secs(30);
/// So many calls may be under way at once: more than there ever are. Who had to wait for room could
/// be given it while nobody polls it, and keep it from the others.
const ROOM: usize = 1 << 24;

/// Whether grants come by a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hearing {
    /// Nobody has waited yet.
    NotAsked,
    Yes,
    /// The server does not speak RESP3, or the user may not use the channel.
    Refused,
}

#[derive(Clone)]
pub(super) struct Connection {
    pub(super) inner: MultiplexedConnection,
    pub(super) hearing: Hearing,
    /// Of no other connection of this process.
    pub(super) number: u64,
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
    /// Who waits for grants, which come by a channel of this connector's own.
    pub(super) waiters: Arc<Waiters>,
    pub(super) channel: String,
}

impl Connection {
    fn new(inner: MultiplexedConnection, hearing: Hearing) -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        let number = LAST.fetch_add(1, Ordering::Relaxed) + 1;
        Self { inner, hearing, number, silent: Arc::default() }
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
        Ok(Self::with(plain, resp3))
    }

    /// One for the same server, with waiters of its own.
    pub(super) fn apart(&self) -> Self {
        Self::with(self.plain.clone(), self.resp3.clone())
    }

    fn with(plain: Client, resp3: Client) -> Self {
        Self {
            plain,
            resp3,
            hearing: Mutex::new(Hearing::NotAsked),
            waiters: Arc::default(),
            channel: format!("lm1:{:032x}", fastrand::u128(..)),
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
            let pushes = pushes(Arc::clone(&self.waiters));
            let config = AsyncConnectionConfig::new().set_push_sender(pushes);
            match opened(&self.resp3, config).await {
                Ok(inner) => return self.subscribe(inner).await,
                Err(Trouble::Final(LockError::Unavailable {
                    reason: Unavailability::Protocol,
                    ..
                })) => {
                    // The server does not know HELLO, or not this version.
                    hearing = Hearing::Refused;
                    *self.hearing() = hearing;
                }
                Err(trouble) => return Err(trouble),
            }
        }
        let inner = opened(&self.plain, AsyncConnectionConfig::new()).await?;
        Ok(Connection::new(inner, hearing))
    }

    /// Has grants come by this connection, if the user may listen to the channel and send to it:
    /// who hands a lock over is asked whether somebody heard it.
    async fn subscribe(&self, mut inner: MultiplexedConnection) -> Result<Connection, Trouble> {
        let mut knock = redis::cmd("PUBLISH");
        knock.arg(&self.channel).arg("");
        let heard = match inner.subscribe(&self.channel).await {
            Ok(()) => inner.send_packed_command(&knock).await.and_then(Value::extract_error),
            Err(error) => Err(error),
        };
        match heard.map_err(unapplied) {
            Ok(_) => Ok(Connection::new(inner, Hearing::Yes)),
            Err(Trouble::Passing(passing)) => Err(Trouble::Passing(passing)),
            Err(_) => Ok(Connection::new(inner, Hearing::Refused)),
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

/// Passes on what comes by a connection without having been asked for.
fn pushes(waiters: Arc<Waiters>) -> impl AsyncPushSender {
    move |push: PushInfo| -> Result<(), SendError> {
        match (push.kind, push.data.as_slice()) {
            (PushKind::Message, [_, Value::BulkString(grant)]) => {
                if let Some((number, handover)) = handover(grant) {
                    waiters.grant(number, handover);
                }
            }
            (PushKind::Disconnection, _) => waiters.alarm_all(),
            _ => {}
        }
        Ok(())
    }
}

/// Reads `number|fence|time in microseconds|ttl in milliseconds`, as queue.lua writes.
fn handover(grant: &[u8]) -> Option<(u64, Handover)> {
    let mut fields = std::str::from_utf8(grant).ok()?.splitn(4, '|').map(str::parse::<u64>);
    let mut field = || fields.next()?.ok();
    let (number, fence, at, ttl) = (field()?, field()?, field()?, field()?);
    let fence = Fence::try_from(fence).ok().filter(|_| fence > 0);
    let (heard, ttl) = (Moment::now(), Duration::from_millis(ttl));
    Some((number, Handover { heard, at, ttl, fence }))
}
