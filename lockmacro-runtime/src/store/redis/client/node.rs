//! One server and the connection to it. The connection is opened when it is needed, shared by all
//! calls, and replaced when it is broken. No call waits longer than its caller allows.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use redis::{ConnectionAddr, Value};
use tokio::time::timeout_at;

use crate::store::redis::client::blocking_pool::BlockingPool;
use crate::store::redis::client::budget::{Budget, CALLS_PER_TIMEOUT};
use crate::store::redis::client::connection::Connection;
use crate::store::redis::client::connector::Connector;
use crate::store::redis::client::error::{CallError, Transient};
use crate::store::redis::client::failover::Failover;
use crate::store::redis::client::health;
use crate::store::redis::client::health::Health;
use crate::store::redis::client::round_trip::RoundTrip;
use crate::store::redis::client::sentinel::is_primary;
use crate::store::redis::client::singleflight::SingleFlight;
use crate::store::redis::client::subscriptions::PushSink;
use crate::value::applied::Applied;
use crate::value::backoff::Backoff;
use crate::value::error::Unavailability;
use crate::value::random::HashMap;
use crate::value::sync::{Mutex, MutexGuard};
use crate::value::time::Instant;

/// One server; clones share it.
#[derive(Clone)]
pub(crate) struct Node {
    pub(crate) inner: Arc<Inner>,
    /// Whether each command is sent after an ASKING.
    pub(crate) asking: bool,
}

pub(crate) struct Inner {
    pub(crate) connector: Connector,
    live: Mutex<Option<Arc<Connection>>>,
    pub(crate) timeout: Duration,
    connecting: SingleFlight<Result<Arc<Connection>, CallError>>,
    /// When the text of a script was sent last, by the hash of the script.
    pub(crate) loads: Mutex<HashMap<&'static str, Instant>>,
    /// One caller asks for all whether a lost server is back, and not before this time.
    pub(crate) probing: SingleFlight<bool>,
    pub(crate) next_probe: Mutex<Option<Instant>>,
    pub(crate) blocking_pool: BlockingPool,
    pub(crate) health: Arc<Health>,
    /// The earliest time at which one unanswered call is enough to discard the connection, and the
    /// pauses after that.
    pub(crate) next_discard: Mutex<Option<(Instant, Backoff)>>,
    /// No connection is kept any more.
    closed: AtomicBool,
}

impl Node {
    /// The same server, through a connection of its own.
    pub(crate) fn apart(&self, sink: Arc<dyn PushSink>) -> Self {
        Self::with(self.inner.connector.apart(sink), self.inner.timeout)
    }

    /// A node that is not connected yet. Connecting takes at most `timeout`.
    pub(crate) fn with(connector: Connector, timeout: Duration) -> Self {
        let inner = Inner {
            health: connector.health(),
            connector,
            live: Mutex::new(None),
            timeout,
            connecting: SingleFlight::new(timeout),
            loads: Mutex::default(),
            probing: SingleFlight::new(timeout),
            next_probe: Mutex::default(),
            blocking_pool: BlockingPool::default(),
            next_discard: Mutex::default(),
            closed: AtomicBool::new(false),
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

    pub(crate) fn address(&self) -> Option<&ConnectionAddr> {
        self.inner.connector.address()
    }

    /// The receiver of its pushes.
    pub(crate) fn sink(&self) -> &Arc<dyn PushSink> {
        &self.inner.connector.sink
    }

    /// The number of the connection, if there is one.
    pub(crate) fn connection(&self) -> Option<u64> {
        self.live().as_ref().map(|live| live.channels.number)
    }

    /// Closes the connection for good, also one that is being opened. A later call opens one for
    /// itself only.
    pub(crate) fn close(&self) {
        let live = {
            let mut live = self.live();
            self.inner.closed.store(true, Ordering::Relaxed);
            live.take()
        };
        if let Some(live) = live {
            live.channels.abort();
        }
        self.inner.connecting.abort();
        self.inner.probing.abort();
        self.inner.blocking_pool.close();
        self.inner.connector.close();
    }

    fn is_closed(&self) -> bool {
        self.inner.closed.load(Ordering::Relaxed)
    }

    /// The state that all connections to this server share.
    pub(crate) fn changes(&self) -> &Failover {
        &self.inner.connector.changes
    }

    /// The measured round trip of the server.
    pub(crate) fn round_trip(&self) -> &Arc<RoundTrip> {
        self.inner.health.round_trip()
    }

    /// Checks that the server answers, accepts writes, and is the one that the sentinels name;
    /// otherwise discards the connection.
    pub(crate) async fn check(&self, budget: Budget) {
        let Ok(live) = self.connect(budget.until).await else { return };
        let role = timeout_at(budget.until, live.send(redis::cmd("ROLE").into())).await;
        // An old primary that was cut off from its sentinels still answers.
        if !role.is_ok_and(|role| is_primary(&role.and_then(Value::extract_error)))
            || matches!(
                timeout_at(budget.until, self.inner.connector.is_replaced()).await,
                Ok(true)
            )
        {
            self.discard(&live);
        }
    }

    /// The connection in use, or a new one.
    pub(crate) async fn connect(&self, until: Instant) -> Result<Arc<Connection>, CallError> {
        if let Some(live) = self.in_use() {
            return Ok(live);
        }
        if self.is_closed() {
            let opened = Box::pin(timeout_at(until, self.open_unshared())).await;
            return opened.unwrap_or_else(|_| Err(self.connecting_timed_out()));
        }
        let open = || {
            let node = self.clone();
            async move { node.open().await }
        };
        let opened = Box::pin(self.inner.connecting.run(open, until)).await;
        opened.unwrap_or_else(|| match self.is_closed() {
            true => Err(ended().at(|| self.server())),
            false => Err(self.connecting_timed_out()),
        })
    }

    fn connecting_timed_out(&self) -> CallError {
        self.failed(CallError::not_connected())
    }

    /// Opens a connection that nobody keeps but the caller.
    async fn open_unshared(&self) -> Result<Arc<Connection>, CallError> {
        self.inner.connector.open().await.map(Arc::new).map_err(|error| self.failed(error))
    }

    /// The server's address for messages.
    pub(crate) fn server(&self) -> String {
        self.inner.connector.server()
    }

    /// Whether the server is lost, which was logged.
    pub(crate) fn is_lost(&self) -> bool {
        self.inner.health.is_lost()
    }

    /// Notes the failure of a call; returns the error with the server's address.
    pub(crate) fn failed(&self, error: CallError) -> CallError {
        let health = &self.inner.health;
        match &error {
            // The server answers, but has only some of the keys.
            CallError::Split(_) => {}
            CallError::Transient(transient) if health::is_lost(transient.reason) => {
                health.failed(transient.reason, self.inner.timeout / CALLS_PER_TIMEOUT, || {
                    self.server()
                });
            }
            _ => health.answered(|| self.server()),
        }
        error.at(|| self.server())
    }

    async fn open(&self) -> Result<Arc<Connection>, CallError> {
        if let Some(live) = self.in_use() {
            return Ok(live);
        }
        if self.is_closed() {
            return Err(ended().at(|| self.server()));
        }
        let opened = self.open_unshared().await?;
        // Another caller may have opened one, if this runtime was blocked meanwhile.
        if let Some(live) = self.in_use() {
            return Ok(live);
        }
        let mut live = self.live();
        // Read under the mutex under which it is set.
        if self.is_closed() {
            return Err(ended().at(|| self.server()));
        }
        *live = Some(Arc::clone(&opened));
        Ok(opened)
    }

    /// The connection, while it leads to the right server.
    pub(crate) fn in_use(&self) -> Option<Arc<Connection>> {
        let live =
            self.live().as_ref().filter(|live| !live.channels.is_desynchronized()).cloned()?;
        if self.inner.connector.is_current(&live) {
            return Some(live);
        }
        self.retire(&live);
        None
    }

    /// Removes a broken connection, unless another caller has replaced it already.
    pub(crate) fn discard(&self, dead: &Connection) {
        self.take_out(dead, || self.changes().broken());
    }

    pub(crate) fn retire(&self, dead: &Connection) {
        self.take_out(dead, || {});
    }

    fn take_out(&self, dead: &Connection, note: impl FnOnce()) {
        {
            let mut live = self.live();
            if live.take_if(|live| live.is(dead)).is_none() {
                return;
            }
            // Noted before another connection can be opened: its opening reports the failure.
            note();
        }
        dead.channels.alarm();
    }

    fn live(&self) -> MutexGuard<'_, Option<Arc<Connection>>> {
        self.inner.live.lock()
    }
}

/// The manager was shut down while a connection was opened.
fn ended() -> CallError {
    let detail = "the connection was closed while it was being opened";
    CallError::Transient(Transient::new(Unavailability::Disconnected, detail, Applied::No))
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the connector, which has the password.
        f.debug_struct("Node").field("connected", &self.live().is_some()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::redis::client::subscriptions::NoPushes;
    use crate::store::redis::client::url::{Addresses, Deployment};
    use crate::value::url::Url;

    #[tokio::test]
    async fn a_closed_node_whose_server_hangs_reports_a_timeout() {
        // It accepts connections, and answers none of them.
        let hanging = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("redis://{}", hanging.local_addr().unwrap());
        let timeout = Duration::from_secs(1);
        let servers = Deployment::of(&Url::parse(&url).unwrap(), timeout).unwrap();
        let Deployment { at: Addresses::One(target), settings, .. } = servers else {
            panic!("one server")
        };
        let sink = NoPushes::sink();
        let node =
            Node::with(Connector::new(target, settings, timeout, Arc::default(), sink), timeout);
        for closed in [false, true] {
            if closed {
                node.close();
            }
            let ready = node.connect(Instant::now() + Duration::from_millis(50)).await;
            let Err(CallError::Transient(error)) = ready else { panic!("{closed}: another end") };
            assert_eq!((error.reason, &*error.detail), (Unavailability::Timeout, "connecting"));
        }
    }
}
