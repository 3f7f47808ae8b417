//! One server and our connection to it: made when needed, shared by all calls, replaced when it
//! is of no more use. No call waits longer than its caller allows.

use std::fmt;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::aio::{AsyncPushSender, MultiplexedConnection, SendError};
use redis::io::tcp::TcpSettings;
use redis::io::tcp::socket2::TcpKeepalive;
use redis::{
    AsyncConnectionConfig, Client, Cmd, IntoConnectionInfo, ProtocolVersion, PushInfo, PushKind,
    RedisError, Value,
};
use tokio::sync::OnceCell;
use tokio::time::{Instant, timeout_at};

use super::greeting::greeting;
use super::trouble::{Passing, Trouble, full};
use crate::clock::Moment;
use crate::error::{LockError, Unavailability};
use crate::fence::Fence;
use crate::waiting::{Handover, Waiters};

/// Calls in a row without an answer after which a connection is given up.
const SILENT_CALLS: u32 = 2;
/// How long a connection is idle before the system looks whether it is still there.
const IDLE: Duration = Duration::from_secs(30);

/// How a connection talks: without messages, with them, or without them for good.
const PLAIN: u8 = 0;
const HEARING: u8 = 1;
const DEAF: u8 = 2;

pub(super) struct Node {
    client: Client,
    /// The same server by RESP3: messages come by the connection of the commands, and never before
    /// the replies to what was sent earlier.
    hearing: Client,
    /// Which of the two new connections are made with. The second one from the first waiter on, if
    /// the server speaks it.
    dialect: AtomicU8,
    /// Who waits for grants, which come by a channel of this node's own.
    waiters: Arc<Waiters>,
    channel: String,
    live: Mutex<Option<Live>>,
    /// Held while connecting, so that many callers make one connection.
    connecting: tokio::sync::Mutex<()>,
}

#[derive(Clone)]
struct Live {
    connection: MultiplexedConnection,
    silent: Arc<AtomicU32>,
    /// Whether grants can be heard; asked when somebody waits for the first time.
    hears: Arc<OnceCell<bool>>,
}

/// How long a call may take: the command by itself, and all that it needs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    pub(super) answer: Duration,
    pub(super) until: Instant,
    /// Whether a single silence is enough to give the connection up.
    pub(super) strict: bool,
}

impl Patience {
    /// That of somebody who has other things to do: one answer's time for all.
    pub(super) fn brief(self) -> Self {
        Self { until: Instant::now() + self.answer, ..self }
    }
}

impl Node {
    /// A node that is not connected yet. What the network does not take within `unsent` is not sent
    /// any more, where the system can be told so.
    pub(super) fn new(url: &str, unsent: Duration) -> Result<Self, LockError> {
        // The library's message could quote the URL, and with it the password.
        let invalid = |_: RedisError| LockError::InvalidUrl {
            detail: "it is not of the form `redis://user:password@host:port/db`".to_owned(),
        };
        let info = url.into_connection_info().map_err(invalid)?;
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
        let hearing = settings.clone().set_protocol(ProtocolVersion::RESP3);
        let client = Client::open(info.clone().set_redis_settings(settings)).map_err(invalid)?;
        let hearing = Client::open(info.set_redis_settings(hearing)).map_err(invalid)?;
        Ok(Self::with(client, hearing))
    }

    /// The same server through a connection of its own.
    pub(super) fn apart(&self) -> Self {
        Self::with(self.client.clone(), self.hearing.clone())
    }

    fn with(client: Client, hearing: Client) -> Self {
        Self {
            client,
            hearing,
            dialect: AtomicU8::new(PLAIN),
            waiters: Arc::default(),
            channel: format!("lm1:{:032x}", fastrand::u128(..)),
            live: Mutex::new(None),
            connecting: tokio::sync::Mutex::new(()),
        }
    }

    /// Who waits for grants on [`channel`](Self::channel).
    pub(super) fn waiters(&self) -> &Arc<Waiters> {
        &self.waiters
    }

    pub(super) fn channel(&self) -> &str {
        &self.channel
    }

    /// Sees to it that grants can be heard; tells whether they can.
    pub(super) async fn listen(&self, patience: Patience) -> Result<bool, Trouble> {
        let until = patience.until.min(Instant::now() + patience.answer);
        if self
            .dialect
            .compare_exchange(PLAIN, HEARING, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
        {
            // Whoever has sent something by the old connection still gets the answer by it.
            self.disconnect();
        }
        let live = self.connect(patience.until).await?;
        let mut connection = live.connection.clone();
        let subscribe = live.hears.get_or_try_init(|| async {
            match connection.subscribe(&self.channel).await.map_err(Trouble::from) {
                Ok(()) => Ok(true),
                Err(Trouble::Passing(passing)) => Err(Trouble::Passing(passing)),
                // It is not allowed: then one has to ask more often.
                Err(_) => Ok(false),
            }
        });
        match timeout_at(until, subscribe).await {
            Ok(heard) => heard.copied(),
            Err(_) => Err(Trouble::Passing(Passing::timeout("subscribing", false))),
        }
    }

    /// Sends a command and waits for its reply.
    pub(super) async fn call(&self, command: &Cmd, patience: Patience) -> Result<Value, Trouble> {
        let mut live = self.connect(patience.until).await?;
        let until = patience.until.min(Instant::now() + patience.answer);
        match timeout_at(until, live.connection.send_packed_command(command)).await {
            Ok(reply) => {
                live.silent.store(0, Ordering::Relaxed);
                let trouble = match reply.and_then(Value::extract_error) {
                    Ok(value) => return Ok(value),
                    Err(error) => Trouble::from(error),
                };
                if matches!(&trouble, Trouble::Passing(passing) if passing.replace) {
                    self.discard(&live);
                }
                Err(trouble)
            }
            Err(_) => {
                let silent = live.silent.fetch_add(1, Ordering::Relaxed) + 1;
                if patience.strict || silent >= SILENT_CALLS {
                    self.discard(&live);
                }
                Err(Trouble::Passing(Passing::timeout("sent, and not answered", true)))
            }
        }
    }

    /// Makes sure that there is a connection.
    pub(super) async fn ready(&self, until: Instant) -> Result<(), Trouble> {
        self.connect(until).await.map(drop)
    }

    /// Ends the connection; the next call makes a new one.
    pub(super) fn disconnect(&self) {
        self.live().take();
    }

    async fn connect(&self, until: Instant) -> Result<Live, Trouble> {
        if let Some(live) = &*self.live() {
            return Ok(live.clone());
        }
        let connecting = async {
            let _one_at_a_time = self.connecting.lock().await;
            if let Some(live) = &*self.live() {
                return Ok(live.clone());
            }
            let live = self.open().await?;
            *self.live() = Some(live.clone());
            Ok(live)
        };
        timeout_at(until, connecting)
            .await
            .unwrap_or_else(|_| Err(Trouble::Passing(Passing::timeout("connecting", false))))
    }

    async fn open(&self) -> Result<Live, Trouble> {
        let opened = self.open_and_ask().await;
        if let Err(Trouble::Passing(Passing { reason: Unavailability::Disconnected, .. })) = opened
        {
            let words = greeting(self.client.get_connection_info().addr()).await;
            if let Some(full) = words.as_deref().and_then(full) {
                return Err(full);
            }
        }
        opened
    }

    async fn open_and_ask(&self) -> Result<Live, Trouble> {
        if self.dialect.load(Ordering::Relaxed) == HEARING {
            let pushes = pushes(Arc::clone(&self.waiters));
            let config = AsyncConnectionConfig::new().set_push_sender(pushes);
            match opened(&self.hearing, config, OnceCell::new()).await {
                // The server does not speak it, or this user may not: grants are not heard then.
                Err(Trouble::Final(_)) => self.dialect.store(DEAF, Ordering::Relaxed),
                opened => return opened,
            }
        }
        opened(&self.client, AsyncConnectionConfig::new(), OnceCell::new_with(Some(false))).await
    }

    /// Gives a connection up, unless another caller has replaced it already.
    fn discard(&self, dead: &Live) {
        if self.live().take_if(|live| Arc::ptr_eq(&live.silent, &dead.silent)).is_some() {
            self.waiters.alarm();
        }
    }

    fn live(&self) -> MutexGuard<'_, Option<Live>> {
        // Nothing that runs under this mutex can panic.
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes a connection and asks for a first answer: a server that wants a password says so then.
async fn opened(
    client: &Client,
    config: AsyncConnectionConfig,
    hears: OnceCell<bool>,
) -> Result<Live, Trouble> {
    let config = config.set_connection_timeout(None).set_response_timeout(None);
    let connection = client.get_multiplexed_async_connection_with_config(&config).await;
    let mut connection = connection.map_err(unapplied)?;
    let greeting = connection.send_packed_command(&redis::cmd("PING")).await;
    match greeting.and_then(Value::extract_error).map_err(unapplied) {
        Ok(_) | Err(Trouble::Final(LockError::AccessDenied { .. })) => {
            Ok(Live { connection, silent: Arc::default(), hears: Arc::new(hears) })
        }
        Err(trouble) => Err(trouble),
    }
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
            (PushKind::Disconnection, _) => waiters.alarm(),
            _ => {}
        }
        Ok(())
    }
}

/// Reads `number|fence|time in microseconds|ttl in milliseconds`, as `promote` in queue.lua writes.
fn handover(grant: &[u8]) -> Option<(u64, Handover)> {
    let mut fields = std::str::from_utf8(grant).ok()?.splitn(4, '|').map(str::parse::<u64>);
    let mut field = || fields.next()?.ok();
    let (number, fence, at, ttl) = (field()?, field()?, field()?, field()?);
    let fence = Fence::try_from(fence).ok().filter(|_| fence > 0);
    let (heard, ttl) = (Moment::now(), Duration::from_millis(ttl));
    Some((number, Handover { heard, at, ttl, fence }))
}

/// Trouble while connecting: the caller's own command was not sent yet.
fn unapplied(error: RedisError) -> Trouble {
    let mut trouble = Trouble::from(error);
    if let Trouble::Passing(passing) = &mut trouble {
        passing.unknown = false;
    }
    trouble
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the client, which knows the password.
        f.debug_struct("Node").field("connected", &self.live().is_some()).finish_non_exhaustive()
    }
}
