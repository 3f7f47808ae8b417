//! One server, and the calls of a command or a script to it.
//!
//! The connection is opened when it is needed, shared by all calls, and replaced when it is broken.
//! No call waits longer than its caller allows.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use std::{fmt, ptr};

use futures_util::TryFutureExt;
use futures_util::future::Either;
use redis::{RedisResult, Value, cmd};
use tokio::sync::Semaphore;
use tokio::time::{sleep_until, timeout_at};

use crate::store::backend::CALLS_PER_TIMEOUT;
use crate::store::redis::client::connection::{Command, Connection};
use crate::store::redis::client::connector::Connector;
use crate::store::redis::client::error::late;
use crate::store::redis::client::script::{Script, ScriptCall};
use crate::store::redis::client::sentinel::is_primary;
use crate::store::remote::budget::Budget;
use crate::store::remote::error::{RemoteError, Transient};
use crate::store::remote::health::Health;
use crate::store::remote::singleflight::SingleFlight;
use crate::sys::backoff::Backoff;
use crate::sys::random::HashMap;
use crate::sys::sync::{Mutex, MutexGuard};
use crate::sys::time::Instant;
use crate::value::applied::Applied;
use crate::value::error::UnavailableReason;

mod acknowledged;

/// Calls in a row without an answer after which a connection is discarded.
const UNANSWERED_MAX: u32 = 2;
/// First and longest pause between two connections that are discarded for a single unanswered call.
///
/// It doubles until such a call is answered, so that no storm of connections arises.
const DISCARD_PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));
/// Shortest time between two probes of a server that is down, for several callers at once or one
/// after the other.
const PROBE_PAUSE: Duration = Duration::from_millis(20);
/// Most calls in flight that block their connections; others wait.
const BLOCKING_MAX: usize = 16;

/// One server; clones share it.
#[derive(Clone)]
pub(crate) struct Node {
    inner: Arc<NodeParts>,
    /// Whether each command is sent after an ASKING.
    pub(crate) asking: bool,
}

struct NodeParts {
    connector: Connector,
    live: Mutex<Option<Arc<Connection>>>,
    connecting: SingleFlight<Result<Arc<Connection>, RemoteError>>,
    /// When the text of a script was sent last, by the hash of the script.
    loads: Mutex<HashMap<&'static str, Instant>>,
    /// One caller asks for all whether a server that is down is back, and not before this time.
    probing: SingleFlight<bool>,
    next_probe: Mutex<Option<Instant>>,
    /// Idle connections for calls that block theirs.
    blocking: Mutex<Vec<Connection>>,
    blocking_permits: Semaphore,
    health: Arc<Health>,
    /// The earliest time at which one unanswered call is enough to discard the connection, and the
    /// pauses after that.
    next_discard: Mutex<Option<(Instant, Backoff)>>,
    /// No connection is kept any more.
    closed: AtomicBool,
}

impl Node {
    /// A node that is not connected yet.
    pub(crate) fn new(connector: Connector) -> Self {
        let inner = NodeParts {
            live: Default::default(),
            connecting: SingleFlight::new(connector.timeout),
            loads: Default::default(),
            probing: SingleFlight::new(connector.timeout),
            next_probe: Default::default(),
            blocking: Default::default(),
            blocking_permits: Semaphore::new(BLOCKING_MAX),
            health: connector.health(),
            next_discard: Default::default(),
            closed: Default::default(),
            connector,
        };
        Self { inner: Arc::new(inner), asking: false }
    }

    /// The same node, for a slot that is still being moved to it.
    pub(crate) fn asking(&self) -> Self {
        Self { inner: Arc::clone(&self.inner), asking: true }
    }

    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    pub(crate) fn connector(&self) -> &Connector {
        &self.inner.connector
    }

    /// The server's address for messages.
    pub(crate) fn server(&self) -> String {
        self.connector().name()
    }

    pub(crate) fn health(&self) -> &Health {
        &self.inner.health
    }

    /// The number of the connection, if there is one.
    pub(crate) fn connection(&self) -> Option<u64> {
        self.live().as_ref().map(|live| live.channels.number)
    }

    /// Closes the connection for good, also one that is being opened. A later call opens one that
    /// is not kept.
    pub(crate) fn close(&self) {
        let live = {
            let mut live = self.live();
            // Under the mutex: a connection that is just being opened is kept before this and taken
            // here, or is not kept.
            self.inner.closed.store(true, Ordering::Relaxed);
            live.take()
        };
        if let Some(live) = live {
            live.channels.abort();
        }
        self.inner.connecting.abort();
        self.inner.probing.abort();
        self.inner.blocking.lock().clear();
        self.connector().close();
    }

    /// Checks that the server answers, accepts writes, and is the one that the sentinels name;
    /// otherwise discards the connection.
    pub(crate) async fn check(&self, budget: Budget) {
        let Ok(live) = self.connect(budget.until).await else { return };
        let role = timeout_at(budget.until, live.send(cmd("ROLE").into())).await;
        // An old primary that was cut off from its sentinels still answers.
        if !role.is_ok_and(is_primary)
            || matches!(timeout_at(budget.until, self.connector().is_replaced()).await, Ok(true))
        {
            self.discard(&live);
        }
    }

    /// The connection in use, or a new one.
    pub(crate) async fn connect(&self, until: Instant) -> Result<Arc<Connection>, RemoteError> {
        if let Some(live) = self.in_use() {
            return Ok(live);
        }
        let opened = Box::pin(self.inner.connecting.run(|| self.clone().open(), until)).await;
        opened.unwrap_or_else(|| Err(self.failed(RemoteError::not_connected())))
    }

    async fn open(self) -> Result<Arc<Connection>, RemoteError> {
        if let Some(live) = self.in_use() {
            return Ok(live);
        }
        let opened = self.connector().open().await.map_err(|error| self.failed(error))?;
        // Another caller may have opened one, if this runtime was blocked meanwhile.
        if let Some(live) = self.in_use() {
            return Ok(live);
        }
        let opened = Arc::new(opened);
        let mut live = self.live();
        // Read under the mutex under which it is set.
        if !self.is_closed() {
            *live = Some(Arc::clone(&opened));
        }
        Ok(opened)
    }

    fn is_closed(&self) -> bool {
        self.inner.closed.load(Ordering::Relaxed)
    }

    /// The connection, while it leads to the right server.
    fn in_use(&self) -> Option<Arc<Connection>> {
        let live =
            self.live().as_ref().filter(|live| !live.channels.is_desynchronized()).cloned()?;
        if self.connector().is_current(&live) {
            return Some(live);
        }
        self.discard(&live);
        None
    }

    /// Removes a connection that is broken or leads to another server, unless another caller has
    /// replaced it already.
    pub(crate) fn discard(&self, dead: &Connection) {
        {
            let mut live = self.live();
            if live.take_if(|live| ptr::eq(&**live, dead)).is_none() {
                return;
            }
            // Noted before another connection can be opened: its opening reports the failure.
            self.connector().monitor.broken();
        }
        // Its waiters ask again, as no push will arrive on it. Without the mutex, as they may ask
        // at once.
        dead.channels.alarm();
    }

    fn live(&self) -> MutexGuard<'_, Option<Arc<Connection>>> {
        self.inner.live.lock()
    }

    /// Notes the failure of a call; returns the error with the server's address.
    fn failed(&self, error: RemoteError) -> RemoteError {
        match &error {
            // The server answers, but has only some of the keys.
            RemoteError::Split(_) => {}
            RemoteError::Transient(Transient { reason, cause, .. }) => {
                self.health().failed(*reason, cause.as_ref(), self.answer(), || self.server());
            }
            _ => self.health().answered(|| self.server()),
        }
        error.at(|| self.server())
    }

    /// Whether a server that is down answers before `until`. The probe goes on without its callers.
    pub(crate) async fn is_back(&self, until: Instant) -> bool {
        self.inner.probing.run(|| self.clone().probe(), until).await == Some(true)
    }

    async fn probe(self) -> bool {
        let now = Instant::now();
        let next = &self.inner.next_probe;
        let from = next.lock().filter(|from| *from > now).unwrap_or(now);
        sleep_until(from).await;
        let answer = self.answer();
        // Its health notes the answer.
        let answered = self.call(cmd("PING"), Budget::new(answer, answer)).await;
        *next.lock() = Some(Instant::now() + PROBE_PAUSE);
        answered.is_ok()
    }

    /// Longest time for one answer.
    fn answer(&self) -> Duration {
        self.connector().timeout / CALLS_PER_TIMEOUT
    }

    /// Sends a command and waits for its reply.
    pub(crate) async fn call(
        &self,
        command: impl Into<Command>,
        budget: Budget,
    ) -> Result<Value, RemoteError> {
        let live = self.connect(budget.until).await?;
        self.send(&live, command, budget).await
    }

    /// Sends a command on this connection.
    pub(crate) fn send<'a>(
        &'a self,
        live: &'a Connection,
        command: impl Into<Command>,
        budget: Budget,
    ) -> impl Future<Output = Result<Value, RemoteError>> + Send + 'a {
        let asked = Instant::now();
        let until = budget.until.min(asked + budget.answer);
        // Made before the await: a future that held the command would be larger for every caller.
        let sent = if self.asking {
            let both = live.send_pair(true, command.into(), None);
            Either::Left(Box::pin(both.map_ok(|[reply, _]| reply)))
        } else {
            Either::Right(live.send(command.into()))
        };
        async move {
            let reply = timeout_at(until, sent).await;
            if reply.is_ok() {
                self.health().round_trip.note(asked);
            }
            self.read(live, reply.ok(), budget.strict)
        }
    }

    /// Reads a reply and updates the state of the connection; `None` is a call without an answer.
    fn read(
        &self,
        live: &Connection,
        reply: Option<RedisResult<Value>>,
        strict: bool,
    ) -> Result<Value, RemoteError> {
        if live.channels.is_desynchronized() {
            self.discard(live);
            let detail = "a slot of the cluster was moved to another node";
            let error =
                RemoteError::broken(UnavailableReason::Disconnected, detail, Applied::Unknown);
            return Err(error.at(|| self.server()));
        }
        let Some(reply) = reply else {
            let unanswered_calls = live.count_unanswered();
            // That runtime may be blocked, and then no call would ever be answered.
            let is_elsewhere = live.is_driven_elsewhere();
            let discards = if strict || is_elsewhere {
                self.may_discard()
            } else {
                unanswered_calls >= UNANSWERED_MAX
            };
            if discards {
                self.discard(live);
            }
            return Err(self.failed(if is_elsewhere {
                RemoteError::unanswered_elsewhere(discards)
            } else {
                RemoteError::unanswered()
            }));
        };
        live.answered();
        if strict {
            *self.inner.next_discard.lock() = None;
        }
        let error = match reply.and_then(Value::extract_error) {
            Ok(value) => {
                self.health().answered(|| self.server());
                return Ok(value);
            }
            Err(error) => {
                if let Some(now) = late(&error) {
                    self.connector().clock.note(now);
                }
                self.failed(self.connector().or_next_login(RemoteError::from(error)))
            }
        };
        if matches!(&error, RemoteError::Transient(transient) if transient.replace) {
            self.discard(live);
        }
        Err(error)
    }

    /// Whether a connection may be discarded now for a single unanswered call.
    fn may_discard(&self) -> bool {
        let now = Instant::now();
        let mut next_discard = self.inner.next_discard.lock();
        match *next_discard {
            Some((from, _)) if now < from => false,
            last => {
                let first = || Backoff::new(DISCARD_PAUSE.0, DISCARD_PAUSE.1);
                let mut backoff = last.map_or_else(first, |(_, backoff)| backoff);
                *next_discard = Some((now + backoff.step(), backoff));
                true
            }
        }
    }

    /// Calls a script by its hash, or by its text where the server does not know the hash.
    pub(crate) async fn eval(
        &self,
        mut call: ScriptCall<'_>,
        budget: Budget,
    ) -> Result<Value, RemoteError> {
        if call.script.ends.is_some() {
            // Not before it is connected, which may take longer than an answer.
            self.connect(budget.until).await?;
            call.not_after = self.connector().clock.end_of(budget.answer);
        }
        match self.call(call, budget).await {
            // Boxed, as every rare step is: the future of a waiter stays small.
            Err(RemoteError::NoScript) => Box::pin(self.load_and_eval(call, budget)).await,
            reply => reply,
        }
    }

    /// Calls a script that the server does not know yet. Of many callers one sends the text; the
    /// others call by hash once more, which the server reads after the text.
    async fn load_and_eval(
        &self,
        call: ScriptCall<'_>,
        budget: Budget,
    ) -> Result<Value, RemoteError> {
        if !self.is_first_to_load(call.script, budget.answer) {
            match self.call(call.by_hash(), budget).await {
                Err(RemoteError::NoScript) => {}
                reply => return reply,
            }
        }
        self.call(call.by_text(), budget).await
    }

    /// Whether no caller has sent the text of a script within this time. Then this one does.
    fn is_first_to_load(&self, script: &'static Script, within: Duration) -> bool {
        let now = Instant::now();
        let mut loads = self.inner.loads.lock();
        let is_first = loads.get(script.hash()).is_none_or(|last| *last + within <= now);
        if is_first {
            loads.insert(script.hash(), now);
        }
        is_first
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the connector, which has the password.
        let mut node = f.debug_struct("Node");
        node.field("server", &self.server()).field("connected", &self.live().is_some());
        node.finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::redis::client::channels::Grants;
    use crate::store::redis::client::url::{Addresses, Deployment};
    use crate::value::url::Url;

    #[tokio::test]
    async fn a_closed_node_whose_server_hangs_reports_a_timeout() {
        // It accepts connections, and answers none of them.
        let hanging = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("redis://{}", hanging.local_addr().unwrap());
        let timeout = Duration::from_secs(1);
        let servers = Deployment::of(&Url::parse(&url).unwrap(), timeout).unwrap();
        let Deployment { at: Addresses::One(server), settings, .. } = servers else {
            panic!("one server")
        };
        let grants = Grants::new(false, "");
        let node = Node::new(Connector::new(server, settings, timeout, &Arc::default(), &grants));
        for closed in [false, true] {
            if closed {
                node.close();
            }
            let ready = node.connect(Instant::now() + Duration::from_millis(50)).await;
            let Err(RemoteError::Transient(error)) = ready else { panic!("{closed}: another end") };
            assert_eq!((error.reason, &*error.detail), (UnavailableReason::Timeout, "connecting"));
        }
    }
}
