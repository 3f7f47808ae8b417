//! The connections of one store. Each takes many calls at once, which the server answers in order:
//! a call that waits for a row delays those behind it, so there are some for the calls of locks,
//! chosen by the key, one for renewals, and one for pushes.

use std::future::poll_fn;
use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::{Either, join_all, select};
use tokio::sync::{OnceCell, Semaphore, oneshot, watch};
use tokio::time::{timeout, timeout_at};
use tokio_postgres::tls::{MakeTlsConnect, NoTls, TlsConnect};
use tokio_postgres::{AsyncMessage, Client, Row, Socket};

use super::batch::Batch;
use super::error::{of_connecting, of_statement};
use super::url::Deployment;
use super::values::{Values, values};
use crate::store::calls::budget::{Budget, CALLS_PER_TIMEOUT};
use crate::store::calls::error::{CallError, Transient};
use crate::store::calls::health::{Health, Monitor};
use crate::store::calls::singleflight::SingleFlight;
use crate::store::waiters::Waiters;
use crate::value::applied::Applied;
use crate::value::error::Unavailability as Why;
use crate::value::random::random_name;
use crate::value::sync::Mutex;
use crate::value::task::spawn;
use crate::value::time::Instant;

/// The connection that sends pushes, and listens to those for this store's waiters.
pub(super) const PUSHES: usize = 0;
/// Connections for the calls of locks.
const COMMANDS: usize = 4;
/// The one for renewals, which are for many keys at once, and in time.
pub(super) const RENEWALS: usize = COMMANDS + 1;
/// Most calls that are in flight on each.
const AT_ONCE: usize = 64;
/// The number of any connection, for the waiters: a push has the secret of the last request, and
/// comes from the server that has it.
pub(super) const CONNECTION: NonZeroU64 = NonZeroU64::MIN;
/// How long a connection that is not used any more waits between two calls that it cancels, and for
/// each cancellation.
const CANCEL_NEXT: Duration = Duration::from_millis(100);
const CANCEL_WITHIN: Duration = Duration::from_secs(1);
/// The push by which a listening connection finds out whether it gets any.
const HELLO: &str = "hello";
/// Far more than it takes. One that comes later counts as well.
const HELLO_WITHIN: Duration = Duration::from_millis(500);

pub(super) struct Pool {
    pub(super) servers: Deployment,
    timeout: Duration,
    pub(super) monitor: Arc<Monitor>,
    pub(super) health: Arc<Health>,
    pub(super) waiters: Arc<Waiters>,
    /// The channel of the pushes to this store.
    pub(super) channel: String,
    links: [Link; RENEWALS + 1],
    closed: AtomicBool,
    pushes: Arc<Batch<(String, String), ()>>,
    /// Each release in flight has a receiver. They are on several connections, so what has to come
    /// after them waits until there is none.
    pub(super) releases: watch::Sender<()>,
}

struct Link {
    live: Mutex<Option<Arc<Live>>>,
    /// For each further call that may be sent: the time of an answer is not spent behind others.
    room: Semaphore,
    connecting: SingleFlight<Result<Arc<Live>, CallError>>,
}

/// An open connection, for as long as somebody uses it.
struct Live {
    client: Client,
    _in_use: oneshot::Sender<()>,
    /// Whether it asks for pushes.
    listens: OnceCell<()>,
    /// Whether it has received its own first push.
    heard: Arc<watch::Sender<bool>>,
}

impl Pool {
    pub(super) fn new(
        servers: Deployment,
        timeout: Duration,
        monitor: &Arc<Monitor>,
        waiters: Arc<Waiters>,
    ) -> Arc<Self> {
        let (monitor, health) = (Arc::clone(monitor), monitor.health_of(&servers.name));
        let link = |_| Link {
            live: Mutex::default(),
            room: Semaphore::new(AT_ONCE),
            connecting: SingleFlight::new(timeout),
        };
        Arc::new(Self {
            servers,
            timeout,
            monitor,
            health,
            waiters,
            channel: format!("lm1_{:032x}", random_name()),
            links: std::array::from_fn(link),
            closed: AtomicBool::new(false),
            pushes: Batch::new(Duration::ZERO, timeout),
            releases: watch::Sender::new(()),
        })
    }

    /// The same for other callers.
    pub(super) fn apart(&self) -> Arc<Self> {
        let waiters = Arc::new(self.waiters.apart());
        Self::new(self.servers.clone(), self.timeout, &self.monitor, waiters)
    }

    /// The number of the connection for the calls of a key.
    pub(super) fn link_of(key: &str) -> usize {
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(key);
        1 + (hash % COMMANDS as u64) as usize
    }

    /// Calls a function of the schema.
    pub(super) async fn call(
        self: &Arc<Self>,
        nth: usize,
        function: &str,
        values: Values<'_>,
        budget: Budget,
    ) -> Result<Vec<Row>, CallError> {
        let places: Vec<_> = (1..=values.len()).map(|place| format!("${place}")).collect();
        let (schema, places) = (&self.servers.schema, places.join(", "));
        let statement = format!("SELECT * FROM {schema}.{function}({places})");
        self.query(nth, &statement, values, budget).await
    }

    pub(super) async fn query(
        self: &Arc<Self>,
        nth: usize,
        statement: &str,
        values: Values<'_>,
        budget: Budget,
    ) -> Result<Vec<Row>, CallError> {
        let live = self.connected(nth, budget.until).await?;
        let Ok(Ok(_room)) = timeout_at(budget.until, self.links[nth].room.acquire()).await else {
            return Err(CallError::timeout("behind other calls", Applied::No));
        };
        let sent = Instant::now();
        let asked = live.client.query_typed(statement, values);
        let error = match timeout_at(sent + budget.answer, asked).await {
            Ok(Ok(rows)) => {
                self.health.round_trip.note(sent);
                self.health.answered(|| self.name());
                return Ok(rows);
            }
            Ok(Err(error)) => of_statement(&error, &self.servers),
            // The connection may be cut.
            Err(_) => CallError::broken(Why::Timeout, "sent, and not answered", Applied::Unknown),
        };
        Err(self.failed(nth, &live, error))
    }

    /// Notes a failure, and leaves a connection that has to be replaced.
    fn failed(&self, nth: usize, failed: &Arc<Live>, error: CallError) -> CallError {
        if let CallError::Transient(Transient { replace: true, .. }) = &error {
            let mut live = self.links[nth].live.lock();
            if live.as_ref().is_some_and(|live| Arc::ptr_eq(live, failed)) {
                *live = None;
                self.monitor.broken();
            }
        }
        self.noted(error)
    }

    fn noted(&self, error: CallError) -> CallError {
        match &error {
            CallError::Transient(Transient { reason, .. }) => {
                self.health.failed(*reason, self.timeout / CALLS_PER_TIMEOUT, || self.name());
            }
            _ => self.health.answered(|| self.name()),
        }
        error.at(|| self.name())
    }

    pub(super) fn name(&self) -> String {
        self.servers.name.to_string()
    }

    async fn connected(
        self: &Arc<Self>,
        nth: usize,
        until: Instant,
    ) -> Result<Arc<Live>, CallError> {
        let link = &self.links[nth];
        if let Some(live) = &*link.live.lock()
            && !live.client.is_closed()
        {
            return Ok(Arc::clone(live));
        }
        let connecting = link.connecting.run(|| Arc::clone(self).connect(nth), until);
        match Box::pin(connecting).await.unwrap_or_else(|| Err(CallError::not_connected())) {
            Ok(live) => Ok(live),
            Err(error) => Err(self.noted(error)),
        }
    }

    async fn connect(self: Arc<Self>, nth: usize) -> Result<Arc<Live>, CallError> {
        #[cfg(feature = "postgres-tls")]
        if let Some(tls) = self.servers.tls.connector().map_err(CallError::Final)? {
            return self.connect_by(nth, tls).await;
        }
        self.connect_by(nth, NoTls).await
    }

    async fn connect_by<T>(&self, nth: usize, tls: T) -> Result<Arc<Live>, CallError>
    where
        T: MakeTlsConnect<
                Socket,
                Stream: Send + 'static,
                TlsConnect: TlsConnect<Socket, Future: Send> + Send,
            > + Clone
            + Send
            + 'static,
    {
        let connecting = self.servers.config(nth == PUSHES).connect(tls.clone());
        let connected = timeout(self.timeout, connecting).await;
        let connected = connected.map_err(|_| CallError::not_connected())?;
        let (client, mut connection) = connected.map_err(|error| of_connecting(&error))?;
        let (cancel, (in_use, ended)) = (client.cancel_token(), oneshot::channel());
        let heard = Arc::new(watch::Sender::new(false));
        let live = Arc::new(Live {
            client,
            _in_use: in_use,
            listens: OnceCell::new(),
            heard: Arc::clone(&heard),
        });
        let (waiters, monitor) = (Arc::clone(&self.waiters), Arc::clone(&self.monitor));
        let longest = self.timeout;
        let pushed = Arc::clone(&waiters);
        let mut reading = Box::pin(async move {
            while let Some(Ok(message)) = poll_fn(|cx| connection.poll_message(cx)).await {
                match message {
                    AsyncMessage::Notification(push) if push.payload() == HELLO => {
                        heard.send_replace(true);
                    }
                    AsyncMessage::Notification(push) => {
                        pushed.receive(push.payload().as_bytes(), CONNECTION.get());
                    }
                    _ => {}
                }
            }
        });
        spawn(async move {
            let closed = matches!(select(&mut reading, ended).await, Either::Left(_));
            if nth == PUSHES {
                waiters.alarm_where(|_| true);
            }
            if closed {
                return monitor.broken();
            }
            // No caller waits for its calls any more. A slow one is of use when it is repeated, and
            // those that hang are ended one after the other.
            let mut patience = longest;
            for _ in 0..=AT_ONCE {
                if timeout(patience, &mut reading).await.is_ok() {
                    return;
                }
                patience = CANCEL_NEXT;
                let _ = timeout(CANCEL_WITHIN, cancel.cancel_query(tls.clone())).await;
            }
        });
        if !self.closed.load(Ordering::SeqCst) {
            *self.links[nth].live.lock() = Some(Arc::clone(&live));
        }
        self.monitor.opened(false);
        Ok(live)
    }

    /// Listens to pushes, unless that is done, and returns whether they arrive: they do not where a
    /// pooler gives the connection's server to others. Nothing is sent for a caller here.
    pub(super) async fn listen(self: &Arc<Self>, until: Instant) -> Result<bool, CallError> {
        let live = self.connected(PUSHES, until).await?;
        let statement = format!("LISTEN {}", self.channel);
        let listen = || async {
            live.client.batch_execute(&statement).await.map_err(|error| of_connecting(&error))?;
            let (to, push, budget) =
                (vec![&*self.channel], vec![HELLO], Budget::brief(self.timeout));
            self.call(Self::link_of(""), "push", values![to, push], budget).await?;
            let mut heard = live.heard.subscribe();
            if timeout(HELLO_WITHIN, heard.wait_for(|heard| *heard)).await.is_err() {
                self.monitor.polls(|| self.name());
            }
            Ok(())
        };
        let until = until.min(Instant::now() + self.timeout);
        let error = match timeout_at(until, live.listens.get_or_try_init(listen)).await {
            Ok(Ok(())) => return Ok(*live.heard.borrow()),
            Ok(Err(error)) => error,
            Err(_) => CallError::broken(Why::Timeout, "listening", Applied::No),
        };
        Err(self.failed(PUSHES, &live, error))
    }

    /// Sends pushes, and waits until they are sent, for the time of a call at most: outside of the
    /// statement that has made the grants, as NOTIFY takes a lock of the whole database until its
    /// transaction ends; and one statement at a time. A waiter that gets none asks again.
    ///
    /// A push without a channel is for the idle workers of the function that it names.
    pub(super) fn push(
        self: &Arc<Self>,
        channels: Vec<String>,
        pushes: Vec<String>,
    ) -> impl Future<Output = ()> + use<> {
        let sent: Vec<_> = channels.into_iter().zip(pushes).map(|push| self.send(push)).collect();
        let longest = self.timeout / CALLS_PER_TIMEOUT;
        async move {
            if !sent.is_empty() {
                // Without an answer nothing more can be done.
                let _ = timeout(longest, join_all(sent)).await;
            }
        }
    }

    fn send(self: &Arc<Self>, push: (String, String)) -> oneshot::Receiver<()> {
        let pool = Arc::clone(self);
        self.pushes.send(push, move |pushes| {
            let pool = Arc::clone(&pool);
            async move {
                let (channels, texts): (Vec<_>, Vec<_>) = pushes.into_iter().unzip();
                let budget = Budget::brief(pool.timeout);
                let sent = pool.call(PUSHES, "push", values![channels, texts], budget).await;
                if let Err(error) = sent {
                    tracing::debug!(?error, "pushes not sent: their waiters ask again");
                }
                vec![(); texts.len()]
            }
        })
    }

    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        for link in &self.links {
            link.connecting.abort();
            *link.live.lock() = None;
        }
    }
}
