//! How a connection to a server is opened.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use redis::aio::{MultiplexedConnection, SendError};
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, ConnectionInfo, ProtocolVersion, PushInfo,
    RedisError, RedisResult, Value,
};
use tokio::time::{Instant, timeout};

use crate::store::redis::client::error::{CallError, Transient, full};
use crate::store::redis::client::failover::Failover;
use crate::store::redis::client::health::Health;
use crate::store::redis::client::pipeline::{Batcher, Command};
use crate::store::redis::client::rejection::greeting;
use crate::store::redis::client::replicas::ReplicaAcks;
use crate::store::redis::client::resp2::Resp2Subscription;
use crate::store::redis::client::sentinel::{Sentinels, is_primary, no_primary};
use crate::store::redis::client::settings::Settings;
use crate::store::redis::client::subscriptions::{PushSink, Subscriptions};
use crate::store::redis::client::url::{Address, Target};
use crate::value::error::LockError;
use crate::value::sync::{Mutex, MutexGuard};
use crate::value::unavailability::Unavailability;

/// So many calls may be under way at once: more than there ever are. Who had to wait for room could
/// be given it while nobody polls it, and keep it from the others.
const ROOM: usize = 1 << 24;

/// How long who waits goes without a connection to hear grants by that could not be had, and how
/// long the channel of a slot is kept without anybody waiting there.
pub(crate) const KEPT: Duration = Duration::from_secs(30);
/// So many are opened in that time.
const OPENED_MAX: u32 = 32;

/// Whether grants come by a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Delivery {
    /// Nobody has waited yet, or what they came by has ended.
    NotAsked,
    Yes,
    /// By a second connection: the server does not speak RESP3.
    Apart,
    /// The user may not use the channel.
    Refused,
    /// It could not be had at that time.
    Failed(Instant),
}

pub(crate) struct Connection {
    pub(crate) inner: MultiplexedConnection,
    batcher: Batcher,
    delivery: Delivery,
    /// Which place it leads to, see [`Failover`].
    moves: u64,
    pub(crate) channels: Arc<Subscriptions>,
    /// Is given up with the connection.
    resp2: Option<Arc<Resp2Subscription>>,
    /// Calls in a row that were not answered.
    silent: AtomicU32,
}

/// Opens connections to one server.
pub(crate) struct Connector {
    address: Address,
    /// Who names the server, if others do.
    sentinels: Option<Sentinels>,
    timeout: Duration,
    pub(crate) changes: Arc<Failover>,
    /// How the next connection is opened.
    delivery: Mutex<Delivery>,
    /// How many in a row were ended before grants came by them.
    ended: AtomicU32,
    /// Since when so many were opened that grants come by.
    opened: Mutex<(Instant, u32)>,
    pub(crate) sink: Arc<dyn PushSink>,
}

impl Connection {
    fn new(inner: MultiplexedConnection, delivery: Delivery, channels: Arc<Subscriptions>) -> Self {
        let (batcher, silent) =
            (Batcher::new(inner.clone(), channels.are_of_slots()), AtomicU32::new(0));
        Self { inner, batcher, delivery, moves: 0, channels, resp2: None, silent }
    }

    pub(crate) fn delivery(&self) -> Delivery {
        match &self.resp2 {
            Some(resp2) if !resp2.is_open() => Delivery::NotAsked,
            _ => self.delivery,
        }
    }

    /// Sends a command.
    pub(crate) fn send(&self, command: Command) -> impl Future<Output = RedisResult<Value>> + Send {
        self.batcher.send(command)
    }

    /// Sends a command after an ASKING, which is for the next command only.
    pub(crate) async fn asking(&self, command: Cmd) -> RedisResult<Value> {
        let mut both = redis::Pipeline::with_capacity(2);
        both.cmd("ASKING").add_command(command);
        let replies = self.inner.clone().send_packed_commands(&both, 1, 1).await?;
        Ok(replies.into_iter().next_back().unwrap_or(Value::Nil))
    }

    pub(crate) fn answered(&self) {
        // Mostly it is, and then no other thread is to be made to look again.
        if self.silent.load(Ordering::Relaxed) != 0 {
            self.silent.store(0, Ordering::Relaxed);
        }
    }

    /// Takes note of a call that was not answered; tells how many there were in a row.
    pub(crate) fn unanswered(&self) -> u32 {
        self.silent.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(crate) fn is(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
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
        let (delivery, ended) = (Mutex::new(Delivery::NotAsked), AtomicU32::new(0));
        let opened = Mutex::new((Instant::now(), 0));
        let sentinels = match &address.target {
            Target::Named(group) => Some(Sentinels::new((**group).clone())),
            Target::At(_) => None,
        };
        Self { address, sentinels, timeout, changes, delivery, ended, opened, sink }
    }

    /// One for another server of a cluster, that has the same users and settings.
    pub(crate) fn to(&self, (host, port): (&str, u16), sink: &Arc<dyn PushSink>) -> Self {
        let target = Target::At(ConnectionAddr::Tcp(host.to_owned(), port));
        let address = Address { target, ..self.address.clone() };
        Self::with(address, self.timeout, self.changes.elsewhere(), Arc::clone(sink))
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
    fn name(&self) -> String {
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
            *delivery = Delivery::Yes;
        }
    }

    /// Whether another server may stand behind the same name from one moment to the next.
    pub(crate) fn fails_over(&self) -> bool {
        matches!(self.address.target, Target::Named(_))
    }

    /// Whether a connection leads to the server that is the right one now.
    pub(crate) fn leads_there(&self, connection: &Connection) -> bool {
        self.changes.is_there(connection.moves)
    }

    /// Whether most sentinels name another server than we are connected to.
    pub(crate) async fn is_left(&self) -> bool {
        let Some(sentinels) = &self.sentinels else { return false };
        sentinels.agreed().await.is_some_and(|at| self.changes.led_elsewhere(&at))
    }

    /// Ends the connections to those who name the server.
    pub(crate) fn disconnect(&self) {
        if let Some(sentinels) = &self.sentinels {
            sentinels.disconnect();
        }
    }

    pub(crate) async fn open(&self) -> Result<Connection, CallError> {
        let delivery = *self.delivery();
        self.open_as(delivery).await
    }

    /// Opens a connection by which no grants come, whoever waits.
    pub(crate) async fn open_plain(&self) -> Result<Connection, CallError> {
        self.open_as(Delivery::NotAsked).await
    }

    async fn open_as(&self, delivery: Delivery) -> Result<Connection, CallError> {
        let at = match (&self.address.target, &self.sentinels) {
            (_, Some(sentinels)) => sentinels.primary().await?,
            (Target::At(at), None) => at.clone(),
            (Target::Named(_), None) => return Err(no_primary()),
        };
        let settings = self.address.settings.current().await?;
        let opened = if self.fails_over() {
            // One that stands still is soon replaced, by the sentinels and then here.
            let late = || Err(CallError::Transient(Transient::timeout("connecting", false)));
            timeout(self.timeout / 4, self.open_primary(&settings, &at, delivery))
                .await
                .unwrap_or_else(|_| late())
        } else {
            self.open_and_ask(&settings, &at, delivery).await
        };
        let mut opened = opened.map_err(|error| self.or_next_login(error));
        match &mut opened {
            Ok(connection) => connection.moves = self.changes.opened(&at),
            Err(CallError::Transient(transient))
                if transient.reason == Unavailability::Disconnected && !transient.is_login() =>
            {
                let words = greeting(&at).await;
                if let Some(full) = words.as_deref().and_then(full) {
                    return Err(full);
                }
            }
            Err(_) => {}
        }
        opened
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
        if matches!(delivery, Delivery::Yes | Delivery::Apart) && !self.may_subscribe() {
            delivery = Delivery::Failed(Instant::now());
        }
        if delivery == Delivery::Yes {
            match self.open_subscribed(settings, at).await? {
                Ok(connection) => return Ok(connection),
                Err(otherwise) => delivery = otherwise,
            }
        }
        let plain = settings.client(at, None).map_err(CallError::Final)?;
        let inner = self.opened(&plain, AsyncConnectionConfig::new()).await?;
        let channels = Subscriptions::new(&self.sink);
        if delivery == Delivery::Apart && self.sink.is_by_slot() {
            // A second connection for each node is not worth it.
            return Ok(Connection::new(inner, Delivery::Refused, channels));
        }
        let mut connection = Connection::new(inner, delivery, channels);
        if delivery != Delivery::Apart {
            return Ok(connection);
        }
        let resp2 =
            Resp2Subscription::open(&plain, &connection.channels, &self.sink.channel(0)).await;
        let subscribed = resp2.map(|resp2| connection.resp2 = Some(Arc::new(resp2)));
        let (inner, channels) = (connection.inner.clone(), Arc::clone(&connection.channels));
        let probed = subscribed.is_ok();
        match self.receiving(connection, subscribed).await {
            Ok(connection) => Ok(connection),
            // Commands can go on without: who waits asks for its turn meanwhile.
            Err(_) => {
                let inner = if probed {
                    // The knock may have ended it.
                    self.opened(&plain, AsyncConnectionConfig::new()).await?
                } else {
                    inner
                };
                Ok(Connection::new(inner, Delivery::Failed(Instant::now()), channels))
            }
        }
    }

    /// A connection by which grants come beside replies, or how to hear of them otherwise.
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
        // Messages come by the connection of the commands, and never before the replies to what
        // was sent earlier.
        let resp3 = settings.client(at, Some(ProtocolVersion::RESP3)).map_err(CallError::Final)?;
        let mut inner = match self.opened(&resp3, config).await {
            Ok(inner) => inner,
            Err(CallError::Final(LockError::Unavailable {
                reason: Unavailability::Protocol,
                ..
            })) => {
                // The server does not know HELLO, or not this version.
                *self.delivery() = Delivery::Apart;
                return Ok(Err(Delivery::Apart));
            }
            Err(error) if self.is_ended_again(&error) => return Ok(Err(Delivery::Apart)),
            Err(error) => return Err(error),
        };
        if self.sink.is_by_slot() {
            // The channels of slots are for who waits there to open.
            self.ended.store(0, Ordering::Relaxed);
            return Ok(Ok(Connection::new(inner, Delivery::Yes, channels)));
        }
        let subscribed = inner.subscribe(&self.sink.channel(0)).await;
        let connection = Connection::new(inner, Delivery::Yes, channels);
        match self.receiving(connection, subscribed).await {
            Ok(connection) => {
                self.ended.store(0, Ordering::Relaxed);
                Ok(Ok(connection))
            }
            Err(error) if self.is_ended_again(&error) => Ok(Err(Delivery::Failed(Instant::now()))),
            Err(error) => Err(error),
        }
    }

    /// Whether a connection was ended, and not for the first time: some proxies do so when they are
    /// told what they do not know.
    fn is_ended_again(&self, error: &CallError) -> bool {
        let reason = Unavailability::Disconnected;
        matches!(error, CallError::Transient(transient) if transient.reason == reason)
            && self.ended.fetch_add(1, Ordering::Relaxed) > 0
    }

    /// Whether one more connection may be opened to hear grants by. When they are ended again and
    /// again, who waits is better off asking.
    fn may_subscribe(&self) -> bool {
        let mut opened = self.opened.lock();
        if opened.0.elapsed() > KEPT {
            *opened = (Instant::now(), 0);
        }
        opened.1 += 1;
        opened.1 <= OPENED_MAX
    }

    /// Has grants come by this connection, if the user may listen to the channel and send to it:
    /// who hands a lock over is asked whether somebody heard it.
    async fn receiving(
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

    fn delivery(&self) -> MutexGuard<'_, Delivery> {
        self.delivery.lock()
    }

    /// Makes a connection and asks for a first answer: a server that wants a password says so then.
    async fn opened(
        &self,
        client: &Client,
        config: AsyncConnectionConfig,
    ) -> Result<MultiplexedConnection, CallError> {
        let config = config
            .set_connection_timeout(None)
            .set_response_timeout(None)
            .set_pipeline_buffer_size(ROOM);
        let connection = client.get_multiplexed_async_connection_with_config(&config).await;
        let mut connection = connection.map_err(CallError::unapplied)?;
        let asked = Instant::now();
        let greeting = connection.send_packed_command(&redis::cmd("PING")).await;
        self.changes.healths().round_trip(&self.name()).note(asked);
        match greeting.and_then(Value::extract_error).map_err(CallError::unapplied) {
            Ok(_) | Err(CallError::Final(LockError::AccessDenied { .. })) => Ok(connection),
            Err(error) => Err(error),
        }
    }
}
