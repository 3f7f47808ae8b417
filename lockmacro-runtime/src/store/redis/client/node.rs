//! One server and our connection to it: made when needed, shared by all calls, replaced when it
//! is of no more use. No call waits longer than its caller allows.

use crate::store::redis::client::budget::Patience;
use crate::store::redis::client::pipeline::Request;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::{ConnectionInfo, Pipeline, RedisResult, Value};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use crate::store::redis::client::blocking_pool::Reserve;
use crate::store::redis::client::budget::TRIES;
use crate::store::redis::client::connect::{Connection, Connector};
use crate::store::redis::client::error::{Passing, Trouble};
use crate::store::redis::client::failover::Changes;
use crate::store::redis::client::health;
use crate::store::redis::client::health::Health;
use crate::store::redis::client::replicas::Replicated;
use crate::store::redis::client::round_trip::RoundTrip;
use crate::store::redis::client::script::Script;
use crate::store::redis::client::sentinel::is_primary;
use crate::store::redis::client::singleflight::Errand;
use crate::store::redis::client::subscriptions::PushSink;
use crate::value::error::LockError;
use crate::value::key::LockKey;
use crate::value::unavailability::Unavailability;

/// Calls in a row without an answer after which a connection is given up.
const SILENT_CALLS: u32 = 2;
/// After a connection was given up for one silence, the pause before that is done again: at first,
/// and at most. It doubles until such a call is answered, so that nobody reconnects in a storm.
const DOUBTS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));

/// Clones are the same node.
#[derive(Clone)]
pub(crate) struct Node {
    pub(crate) inner: Arc<Inner>,
    /// Whether each command comes after an ASKING.
    asking: bool,
}

pub(crate) struct Inner {
    pub(crate) connector: Connector,
    live: Mutex<Option<Arc<Connection>>>,
    pub(crate) timeout: Duration,
    connecting: Errand<Result<Arc<Connection>, Trouble>>,
    loading: Errand<()>,
    pub(crate) reserve: Reserve,
    health: Arc<Health>,
    /// From when on one silence is enough again, and the pause after that.
    doubts: Mutex<Option<(Instant, Duration)>>,
    /// How often all was ended: what was begun before is not kept when it comes.
    ends: AtomicU64,
}

impl Node {
    /// A node that is not connected yet. Connecting takes no longer than `timeout`, and what the
    /// network has not taken by then is not sent any more.
    pub(crate) fn new(
        url: &str,
        timeout: Duration,
        sink: Arc<dyn PushSink>,
    ) -> Result<Self, LockError> {
        Ok(Self::with(Connector::new(url, timeout, sink)?, timeout))
    }

    /// The same for a server that the `redis` crate describes.
    pub(crate) fn of_server(
        server: ConnectionInfo,
        timeout: Duration,
        sink: Arc<dyn PushSink>,
    ) -> Self {
        Self::with(Connector::of_server(server, timeout, sink), timeout)
    }

    /// `None` once it is shared.
    pub(crate) fn connector_mut(&mut self) -> Option<&mut Connector> {
        Arc::get_mut(&mut self.inner).map(|inner| &mut inner.connector)
    }

    /// The same server through a connection of its own.
    pub(crate) fn apart(&self, sink: Arc<dyn PushSink>) -> Self {
        Self::with(self.inner.connector.apart(sink), self.inner.timeout)
    }

    pub(crate) fn with(connector: Connector, timeout: Duration) -> Self {
        let inner = Inner {
            health: connector.health(),
            connector,
            live: Mutex::new(None),
            timeout,
            connecting: Errand::new(timeout),
            loading: Errand::new(timeout),
            reserve: Reserve::default(),
            doubts: Mutex::default(),
            ends: AtomicU64::new(0),
        };
        Self::of(Arc::new(inner))
    }

    pub(crate) fn of(inner: Arc<Inner>) -> Self {
        Self { inner, asking: false }
    }

    /// The same node of a cluster for a slot that is only on its way there.
    pub(crate) fn asking(&self) -> Self {
        Self { inner: Arc::clone(&self.inner), asking: true }
    }

    pub(crate) fn is_asking(&self) -> bool {
        self.asking
    }

    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    pub(crate) fn endpoint(&self) -> Option<(&str, u16)> {
        self.inner.connector.endpoint()
    }

    /// Where its pushes go.
    pub(crate) fn sink(&self) -> &Arc<dyn PushSink> {
        &self.inner.connector.sink
    }

    /// Sends a command and waits for its reply.
    pub(crate) async fn call(
        &self,
        request: impl Into<Request>,
        patience: Patience,
    ) -> Result<Value, Trouble> {
        let live = self.connect(patience.until).await?;
        self.send(&live, request, patience).await
    }

    /// Sends a command by this connection.
    pub(crate) fn send<'a>(
        &'a self,
        live: &'a Connection,
        request: impl Into<Request>,
        patience: Patience,
    ) -> impl Future<Output = Result<Value, Trouble>> + Send + 'a {
        let asked = Instant::now();
        let until = patience.until.min(asked + patience.answer);
        // Not kept across the await, which would cost every caller its room.
        let sent = match self.asking {
            true => Err(Box::pin(live.asking(request.into().command))),
            false => Ok(live.send(request.into())),
        };
        async move {
            let reply = match sent {
                Ok(sent) => timeout_at(until, sent).await,
                Err(sent) => Box::pin(timeout_at(until, sent)).await,
            };
            if reply.is_ok() {
                self.round_trip().note(asked);
            }
            self.read(live, reply.ok(), patience.strict)
        }
    }

    /// Sends commands together; gives their replies, errors among them.
    pub(crate) async fn call_all(
        &self,
        commands: &Pipeline,
        count: usize,
        patience: Patience,
    ) -> Result<Vec<Value>, Trouble> {
        let live = self.connect(patience.until).await?;
        let until = patience.until.min(Instant::now() + patience.answer);
        let mut connection = live.inner.clone();
        let sent = connection.send_packed_commands(commands, 0, count);
        match timeout_at(until, sent).await {
            Ok(Ok(replies)) => Ok(replies),
            Ok(Err(error)) => self.read(&live, Some(Err(error)), false).map(|_| Vec::new()),
            Err(_) => self.read(&live, None, false).map(|_| Vec::new()),
        }
    }

    /// What a reply means, also for the connection; `None` for silence.
    fn read(
        &self,
        live: &Connection,
        reply: Option<RedisResult<Value>>,
        strict: bool,
    ) -> Result<Value, Trouble> {
        if live.channels.is_torn() {
            self.discard(live);
            return Err(torn().at(|| self.server()));
        }
        let Some(reply) = reply else {
            let silent = live.unanswered();
            if if strict { self.may_doubt() } else { silent >= SILENT_CALLS } {
                self.discard(live);
            }
            return Err(self.failed(unanswered()));
        };
        live.answered();
        if strict {
            *self.doubts() = None;
        }
        let trouble = match reply.and_then(Value::extract_error) {
            Ok(value) => {
                self.inner.health.answered(|| self.server());
                return Ok(value);
            }
            Err(error) => self.failed(self.inner.connector.or_next_login(Trouble::from(error))),
        };
        if matches!(&trouble, Trouble::Passing(passing) if passing.replace) {
            self.discard(live);
        }
        Err(trouble)
    }

    /// Whether a connection may be given up for one silence now.
    fn may_doubt(&self) -> bool {
        let now = Instant::now();
        let mut doubts = self.doubts();
        match *doubts {
            Some((from, _)) if now < from => false,
            last => {
                let pause = last.map_or(DOUBTS.0, |(_, pause)| (pause * 2).min(DOUBTS.1));
                *doubts = Some((now + pause, pause));
                true
            }
        }
    }

    fn doubts(&self) -> MutexGuard<'_, Option<(Instant, Duration)>> {
        // Nothing that runs under this mutex can panic.
        self.inner.doubts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls a script by its hash, and by its text where the server does not know it.
    pub(crate) async fn eval(
        &self,
        script: &'static Script,
        keys: &[LockKey],
        args: &[&str],
        patience: Patience,
    ) -> Result<Value, Trouble> {
        match self.call(Request::call_of(script, keys, args), patience).await {
            // Boxed, as is all that is rare: a future that waits for a lock must not carry it.
            Err(Trouble::NoScript) => Box::pin(self.teach(script, keys, args, patience)).await,
            reply => reply,
        }
    }

    /// Calls a script that the server does not know yet.
    async fn teach(
        &self,
        script: &'static Script,
        keys: &[LockKey],
        args: &[&str],
        patience: Patience,
    ) -> Result<Value, Trouble> {
        // Of a crowd that comes to a new server one sends the text.
        let (answer, mut answered) = oneshot::channel();
        let mut answer = Some(answer);
        let send = || {
            let (node, answer) = (self.clone(), answer.take());
            let text = script.by_text(keys, args);
            async move {
                let reply = node.call(text, patience).await;
                // Its caller may have gone meanwhile.
                answer.map(|answer| answer.send(reply));
            }
        };
        self.inner.loading.done(send, patience.until).await;
        if answer.is_none() {
            // Without a reply it may be under way.
            return answered.try_recv().unwrap_or_else(|_| Err(self.failed(unanswered())));
        }
        match self.call(script.by_hash(keys, args), patience).await {
            Err(Trouble::NoScript) => self.call(script.by_text(keys, args), patience).await,
            reply => reply,
        }
    }

    /// Calls a script that writes, and waits for replicas to acknowledge that; gives the script's
    /// reply, and how many have.
    ///
    /// A task does it, which ends with its caller: one that nobody polls must not keep a place, nor
    /// be given one, while others wait for it.
    pub(crate) async fn eval_acknowledged(
        &self,
        script: &'static Script,
        keys: &[LockKey],
        args: &[&str],
        replicated: Replicated,
        patience: Patience,
    ) -> Result<(Value, u32), Trouble> {
        let (node, keys) = (self.clone(), keys.to_vec());
        let args: Vec<_> = args.iter().map(|arg| (*arg).to_owned()).collect();
        let mut task = JoinSet::new();
        task.spawn(async move {
            let args: Vec<_> = args.iter().map(String::as_str).collect();
            let Inner { connector, reserve, .. } = &*node.inner;
            let answer = reserve.eval_acknowledged(
                (connector, node.asking),
                script,
                &keys,
                &args,
                replicated,
                patience,
            );
            answer.await.map_err(|trouble| node.failed(trouble))
        });
        let ended = || Err(Trouble::Passing(Passing::timeout("the runtime has ended", true)));
        task.join_next().await.and_then(Result::ok).unwrap_or_else(ended)
    }

    /// Makes sure that there is a connection.
    pub(crate) async fn ready(&self, until: Instant) -> Result<(), Trouble> {
        self.connect(until).await.map(drop)
    }

    /// The number of the connection, if there is one.
    pub(crate) fn connection(&self) -> Option<u64> {
        self.live().as_ref().map(|live| live.channels.number)
    }

    /// Passes on what an answer by this connection has for one who waits; tells whether it could.
    pub(crate) fn pass_on(&self, connection: u64, word: &[u8]) -> bool {
        let channels = self.live().as_ref().map(|live| Arc::clone(&live.channels));
        channels.filter(|channels| channels.number == connection).is_some_and(|channels| {
            channels.hear(word);
            true
        })
    }

    /// Ends the connection, also one that is being opened; the next call makes a new one.
    pub(crate) fn disconnect(&self) {
        {
            let mut live = self.live();
            self.inner.ends.fetch_add(1, Ordering::Relaxed);
            live.take();
        }
        self.inner.connecting.forget();
        self.inner.reserve.clear();
        self.inner.connector.disconnect();
    }

    /// What the connections to this server have in common.
    pub(crate) fn changes(&self) -> &Changes {
        &self.inner.connector.changes
    }

    /// How long the server takes to answer.
    pub(crate) fn round_trip(&self) -> &Arc<RoundTrip> {
        self.inner.health.round_trip()
    }

    /// What the URL says that replicas have to acknowledge.
    pub(crate) fn replicated(&self) -> Option<Replicated> {
        self.inner.connector.replicated()
    }

    /// Whether another server may stand behind the same name from one moment to the next.
    pub(crate) fn fails_over(&self) -> bool {
        self.inner.connector.fails_over()
    }

    /// Looks whether the server is there, takes writes, and is the one that sentinels name; else the connection is given up.
    pub(crate) async fn look(&self, patience: Patience) {
        let Ok(live) = self.connect(patience.until).await else { return };
        let role = timeout_at(patience.until, live.send(redis::cmd("ROLE").into())).await;
        // A primary of old that was cut off from its sentinels goes on to answer.
        if !role.is_ok_and(|role| is_primary(&role.and_then(Value::extract_error)))
            || matches!(timeout_at(patience.until, self.inner.connector.is_left()).await, Ok(true))
        {
            self.discard(&live);
        }
    }

    pub(crate) async fn connect(&self, until: Instant) -> Result<Arc<Connection>, Trouble> {
        if let Some(live) = self.in_use() {
            return Ok(live);
        }
        let open = || {
            let node = self.clone();
            async move { node.open().await }
        };
        let opened = self.inner.connecting.done(open, until);
        Box::pin(opened).await.unwrap_or_else(|| {
            Err(self.failed(Trouble::Passing(Passing::timeout("connecting", false))))
        })
    }

    /// Where the server is, for people.
    pub(crate) fn server(&self) -> String {
        self.inner.connector.server()
    }

    /// Whether the server is lost, which was logged.
    pub(crate) fn is_lost(&self) -> bool {
        self.inner.health.is_lost()
    }

    /// Takes note of what went wrong with a call; gives it with where that was.
    pub(crate) fn failed(&self, trouble: Trouble) -> Trouble {
        let health = &self.inner.health;
        match &trouble {
            // Only some of its keys are.
            Trouble::Passing(passing) if passing.is_split() => {}
            Trouble::Passing(passing) if health::is_lost(passing.reason) => {
                health.failed(passing.reason, self.inner.timeout / TRIES, || self.server());
            }
            _ => health.answered(|| self.server()),
        }
        trouble.at(|| self.server())
    }

    async fn open(&self) -> Result<Arc<Connection>, Trouble> {
        if let Some(live) = self.in_use() {
            return Ok(live);
        }
        let ends = self.inner.ends.load(Ordering::Relaxed);
        let opened = self.inner.connector.open().await.map_err(|trouble| self.failed(trouble))?;
        self.inner.health.opened();
        let opened = Arc::new(opened);
        // Another caller may have opened one, if this runtime was blocked meanwhile.
        if let Some(live) = self.in_use() {
            return Ok(live);
        }
        let mut live = self.live();
        // Looked at under the mutex, under which it is counted.
        if self.inner.ends.load(Ordering::Relaxed) == ends {
            *live = Some(Arc::clone(&opened));
            return Ok(opened);
        }
        drop(live);
        self.inner.connector.disconnect();
        Err(ended().at(|| self.server()))
    }

    /// The connection, while it leads to the right server.
    pub(crate) fn in_use(&self) -> Option<Arc<Connection>> {
        let live = self.live().as_ref().filter(|live| !live.channels.is_torn()).cloned()?;
        if self.inner.connector.leads_there(&live) {
            return Some(live);
        }
        self.give_up(&live);
        None
    }

    /// Gives a broken connection up, unless another caller has replaced it already.
    pub(crate) fn discard(&self, dead: &Connection) {
        self.end(dead, || self.changes().broke());
    }

    pub(crate) fn give_up(&self, dead: &Connection) {
        self.end(dead, || {});
    }

    fn end(&self, dead: &Connection, note: impl FnOnce()) {
        {
            let mut live = self.live();
            if live.take_if(|live| live.is(dead)).is_none() {
                return;
            }
            // Before another one can be opened, which has it told.
            note();
        }
        // Or it would stay open with the result.
        self.inner.connecting.forget();
        dead.channels.alarm();
    }

    /// Has `next` in the place of `last`, if that is still in use.
    pub(crate) fn replace(&self, last: &Connection, next: Arc<Connection>) -> bool {
        match &mut *self.live() {
            Some(live) if live.is(last) => {
                *live = next;
                // Or the last one would stay open with its result.
                self.inner.connecting.forget();
                true
            }
            _ => false,
        }
    }

    fn live(&self) -> MutexGuard<'_, Option<Arc<Connection>>> {
        // Nothing that runs under this mutex can panic.
        self.inner.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn unanswered() -> Trouble {
    Trouble::Passing(Passing::timeout("sent, and not answered", true))
}

/// Its manager was shut down while a connection was opened.
fn ended() -> Trouble {
    Trouble::Passing(Passing {
        reason: Unavailability::Disconnected,
        detail: "the connection was ended while it was opened".to_owned(),
        unknown: false,
        replace: false,
    })
}

/// A slot was given away, and after that replies are not told apart: see [`Subscriptions::is_torn`].
///
/// [`Subscriptions::is_torn`]: crate::store::redis::client::subscriptions::Subscriptions::is_torn
fn torn() -> Trouble {
    Trouble::Passing(Passing {
        reason: Unavailability::Disconnected,
        detail: "a slot of the cluster was moved away".to_owned(),
        unknown: true,
        replace: true,
    })
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the connector, which knows the password.
        f.debug_struct("Node").field("connected", &self.live().is_some()).finish_non_exhaustive()
    }
}
