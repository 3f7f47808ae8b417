//! The connections of one store. Each takes many calls at once, which the server answers in order:
//! a call that waits for a row delays those behind it, so there are some for the calls of locks,
//! chosen by the key, one for renewals, and one for pushes.

use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::{Semaphore, SemaphorePermit, oneshot, watch};
use tokio::time::{timeout, timeout_at};
use tokio_postgres::tls::{MakeTlsConnect, NoTls, TlsConnect, TlsStream};
use tokio_postgres::{Row, Socket};

use super::batch::{Batch, Unwanted};
use super::error::{of_connecting, of_statement};
use super::hosts::is_limit;
use super::limit::{Limit, Shrink};
use super::live::{HELLO, Live};
use super::url::Database;
use super::values::{Values, column, values};
use crate::store::backend::CALLS_PER_TIMEOUT;
use crate::store::remote::budget::Budget;
use crate::store::remote::clock::ServerClock;
use crate::store::remote::error::{RemoteError, Transient};
use crate::store::remote::health::{Health, Monitor};
use crate::store::remote::singleflight::SingleFlight;
use crate::store::subscriptions::Subscriptions;
use crate::sys::random::random_name;
use crate::sys::sync::Mutex;
use crate::sys::time::Instant;
use crate::value::applied::Applied;
use crate::value::error::UnavailableReason as Why;

/// The connection that sends pushes, and listens to those for this store's waiters.
pub(crate) const PUSHES: usize = 0;
/// Connections for the calls of locks.
const COMMANDS: usize = 4;
/// The one for renewals, which are for many keys at once, and in time.
pub(crate) const RENEWALS: usize = COMMANDS + 1;
/// Most calls that are in flight on each.
const AT_ONCE: usize = 64;
/// Far more than it takes. One that comes later counts as well.
const HELLO_WITHIN: Duration = Duration::from_millis(500);

/// The error of an answer to another request.
const MIXED_UP: &str = "a pooler has mixed up the answers to its clients, as pgbouncer before 1.22.1 \
    does: use a later one, or give the locks a user of their own";

pub(crate) struct Pool {
    pub(crate) servers: Database,
    pub(crate) timeout: Duration,
    pub(crate) monitor: Arc<Monitor>,
    pub(crate) health: Arc<Health>,
    pub(crate) subscriptions: Arc<Subscriptions>,
    pub(crate) clock: ServerClock,
    /// The channel of the pushes to this store.
    pub(crate) channel: String,
    /// The number of the next request, unlike those of other pools.
    requests: AtomicI64,
    links: [Link; RENEWALS + 1],
    limit: Arc<Limit>,
    closed: AtomicBool,
    pushes: Arc<Batch<(String, String), ()>>,
    /// Each release in flight has a receiver. They are on several connections, so what has to come
    /// after them waits until there is none.
    pub(crate) releases: watch::Sender<()>,
}

struct Link {
    live: Mutex<Option<Arc<Live>>>,
    /// For each further call that may be sent: the time of an answer is not spent behind others.
    room: Semaphore,
    connecting: SingleFlight<Result<Arc<Live>, RemoteError>>,
}

impl Link {
    fn open(&self) -> Option<Arc<Live>> {
        self.live.lock().as_ref().filter(|live| live.is_open()).cloned()
    }
}

impl Pool {
    pub(crate) fn new(
        servers: Database,
        timeout: Duration,
        monitor: &Arc<Monitor>,
        subscriptions: Arc<Subscriptions>,
        limit: Arc<Limit>,
    ) -> Arc<Self> {
        let health = monitor.health_of(&servers.name);
        let monitor = Arc::clone(monitor);
        let link = |_| Link {
            live: Mutex::default(),
            room: Semaphore::new(AT_ONCE),
            connecting: SingleFlight::new(timeout),
        };
        let pool = Arc::new(Self {
            servers,
            timeout,
            monitor,
            health,
            subscriptions,
            clock: ServerClock::default(),
            channel: format!("lm1_{:032x}", random_name()),
            requests: AtomicI64::new(random_name() as i64),
            links: std::array::from_fn(link),
            limit,
            closed: AtomicBool::new(false),
            pushes: Batch::new(Duration::ZERO, timeout, 1, Unwanted::IsSent),
            releases: watch::Sender::new(()),
        });
        pool.limit.add(Arc::downgrade(&pool) as _);
        pool
    }

    /// The same for other callers.
    pub(crate) fn apart(&self) -> Arc<Self> {
        let subscriptions = Arc::new(self.subscriptions.apart());
        let limit = Arc::clone(&self.limit);
        let apart =
            Self::new(self.servers.clone(), self.timeout, &self.monitor, subscriptions, limit);
        // What is known of the clock by now.
        if let Some(now) = self.clock.end_of(Duration::ZERO) {
            apart.clock.note(now);
        }
        apart
    }

    /// The number of the connection for the calls of a key.
    pub(crate) fn link_of(key: &str) -> usize {
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(key);
        1 + (hash % COMMANDS as u64) as usize
    }

    /// Calls a function of the schema that returns one row.
    pub(crate) async fn call(
        self: &Arc<Self>,
        nth: usize,
        function: &str,
        values: Values<'_>,
        budget: Budget,
    ) -> Result<Row, RemoteError> {
        let (live, _room) = self.room(nth, budget.until).await?;
        self.row_on(&live, &self.calling(function, values.len()), values, budget).await
    }

    /// The call of a function of the schema with so many values.
    pub(crate) fn calling(&self, function: &str, values: usize) -> String {
        let places: Vec<_> = (1..=values).map(|place| format!("${place}")).collect();
        format!("{}.{function}({})", self.servers.schema, places.join(", "))
    }

    /// Calls a function that returns one row, and whose last argument, after these, is the end of
    /// the time in which it may be served.
    pub(crate) async fn call_in_time(
        self: &Arc<Self>,
        nth: usize,
        function: &str,
        values: Values<'_>,
        budget: Budget,
    ) -> Result<Row, RemoteError> {
        let (live, _room) = self.room(nth, budget.until).await?;
        // Only now: it may have waited behind others.
        let not_after = self.clock.end_of(budget.answer).map(u64::cast_signed);
        let values = [values, values![not_after]].concat();
        self.row_on(&live, &self.calling(function, values.len()), &values, budget).await
    }

    /// Asks for the only row of a statement without parameters.
    pub(crate) async fn query_one(
        self: &Arc<Self>,
        nth: usize,
        statement: &str,
        budget: Budget,
    ) -> Result<Row, RemoteError> {
        let (live, _room) = self.room(nth, budget.until).await?;
        self.row_on(&live, &format!("({statement}) answer"), &[], budget).await
    }

    /// Carries out a statement that has no rows.
    pub(crate) async fn execute(
        self: &Arc<Self>,
        nth: usize,
        statement: &str,
        budget: Budget,
    ) -> Result<(), RemoteError> {
        let (live, _room) = self.room(nth, budget.until).await?;
        self.answer_on(&live, statement, &[], budget).await.map(drop)
    }

    /// Asks for the only row of `source`. Behind its columns it has the number of this request:
    /// some poolers mix up the answers to their clients.
    async fn row_on(
        &self,
        live: &Arc<Live>,
        source: &str,
        values: Values<'_>,
        budget: Budget,
    ) -> Result<Row, RemoteError> {
        let statement = format!("SELECT *, ${} FROM {source}", values.len() + 1);
        let mut rows = self.own_rows(live, &statement, values, budget).await?;
        // There is one at least.
        Ok(rows.swap_remove(0))
    }

    /// Asks for the rows of `source`. Where there is none, the answer has one of NULLs, so that it
    /// has the number of this request, too.
    #[cfg(any(feature = "defer", feature = "inspect"))]
    pub(crate) async fn rows(
        self: &Arc<Self>,
        nth: usize,
        source: &str,
        values: Values<'_>,
        budget: Budget,
    ) -> Result<Vec<Row>, RemoteError> {
        let (live, _room) = self.room(nth, budget.until).await?;
        let statement = format!(
            "SELECT rows.*, request.number FROM (SELECT ${}) request (number)
                LEFT JOIN LATERAL (SELECT *, true FROM {source}) rows ON true",
            values.len() + 1
        );
        let mut rows = self.own_rows(&live, &statement, values, budget).await?;
        let is_row =
            |row: &Row| column::<Option<bool>>(row, row.len() - 2).is_ok_and(|is| is.is_some());
        rows.retain(is_row);
        Ok(rows)
    }

    /// Carries out a statement with a further value, the number of the request, which the last
    /// column of each row has to be. Returns at least one row.
    async fn own_rows(
        &self,
        live: &Arc<Live>,
        statement: &str,
        values: Values<'_>,
        budget: Budget,
    ) -> Result<Vec<Row>, RemoteError> {
        let request = self.requests.fetch_add(1, Ordering::Relaxed);
        let values = [values, values![request]].concat();
        let rows = self.answer_on(live, statement, &values, budget).await?;
        let is_ours = |row: &Row| column(row, row.len().saturating_sub(1)).ok() == Some(request);
        if !rows.is_empty() && rows.iter().all(is_ours) {
            return Ok(rows);
        }
        let error = RemoteError::broken(Why::Protocol, MIXED_UP, Applied::Unknown);
        Err(self.failed(live, error))
    }

    async fn answer_on(
        &self,
        live: &Arc<Live>,
        statement: &str,
        values: Values<'_>,
        budget: Budget,
    ) -> Result<Vec<Row>, RemoteError> {
        let sent = Instant::now();
        let error = match live.query(statement, values, sent + budget.answer).await {
            Some(Ok(rows)) => {
                self.health.round_trip.note(sent);
                self.health.answered(|| self.name());
                return Ok(rows);
            }
            Some(Err(error)) => of_statement(error, || self.servers.rights()),
            // The connection may be cut.
            None if live.is_driven_elsewhere() => RemoteError::unanswered_elsewhere(true),
            None => RemoteError::broken(Why::Timeout, "sent, and not answered", Applied::Unknown),
        };
        Err(self.failed(live, error))
    }

    /// Whether the runtime that drives this connection is another one than the caller's. It may be
    /// blocked.
    pub(crate) fn is_driven_elsewhere(&self, nth: usize) -> bool {
        self.links[nth].open().is_some_and(|live| live.is_driven_elsewhere())
    }

    /// A connection on which one more call may be sent.
    async fn room(
        self: &Arc<Self>,
        nth: usize,
        until: Instant,
    ) -> Result<(Arc<Live>, SemaphorePermit<'_>), RemoteError> {
        loop {
            let live = self.connected(nth, until).await?;
            let Ok(Ok(room)) = timeout_at(until, self.links[live.link].room.acquire()).await else {
                return Err(RemoteError::timeout("behind other calls", Applied::No));
            };
            // It may have been left meanwhile.
            if live.is_open() {
                return Ok((live, room));
            }
        }
    }

    /// Notes a failure, and leaves a connection that has to be replaced.
    fn failed(&self, failed: &Arc<Live>, error: RemoteError) -> RemoteError {
        if let RemoteError::Transient(Transient { replace: true, .. }) = &error {
            failed.leave();
            let mut live = self.links[failed.link].live.lock();
            // Others may have found the same connection broken, and have replaced it.
            if live.as_ref().is_some_and(|live| Arc::ptr_eq(live, failed)) {
                *live = None;
                self.monitor.broken();
            }
        }
        self.noted(error)
    }

    fn noted(&self, error: RemoteError) -> RemoteError {
        match &error {
            RemoteError::Transient(Transient { reason, cause, .. }) => {
                let least = self.timeout / CALLS_PER_TIMEOUT;
                self.health.failed(*reason, cause.as_ref(), least, || self.name());
            }
            _ => self.health.answered(|| self.name()),
        }
        error.at(|| self.name())
    }

    pub(crate) fn name(&self) -> String {
        self.servers.name.to_string()
    }

    async fn connected(
        self: &Arc<Self>,
        nth: usize,
        until: Instant,
    ) -> Result<Arc<Live>, RemoteError> {
        loop {
            // Looked at again after each try, which may have found the limit.
            let nth = if self.limit.is_reached() { self.kept() } else { nth };
            let link = &self.links[nth];
            if let Some(live) = link.open() {
                return Ok(live);
            }
            let connecting = link.connecting.run(|| Arc::clone(self).connect(nth), until);
            let connected = Box::pin(connecting).await;
            let error = match connected.unwrap_or_else(|| Err(RemoteError::not_connected())) {
                Ok(live) => return Ok(live),
                Err(error) => error,
            };
            if is_limit(&error) {
                self.limit.note_reached(|| self.name());
                // Any connection that is open serves all keys.
                if self.links[self.kept()].open().is_some() {
                    continue;
                }
            }
            return Err(self.noted(error));
        }
    }

    /// The number of the only connection while there is no room for more: one that is open.
    fn kept(&self) -> usize {
        let first = if self.servers.listens_elsewhere() { PUSHES + 1 } else { PUSHES };
        (first..self.links.len()).find(|nth| self.links[*nth].open().is_some()).unwrap_or(first)
    }

    async fn connect(self: Arc<Self>, nth: usize) -> Result<Arc<Live>, RemoteError> {
        #[cfg(feature = "postgres-tls")]
        if let Some(tls) = self.servers.tls.connector().map_err(RemoteError::Final)? {
            return self.connect_by(nth, tls).await;
        }
        self.connect_by(nth, NoTls).await
    }

    async fn connect_by<T>(&self, nth: usize, tls: T) -> Result<Arc<Live>, RemoteError>
    where
        T: MakeTlsConnect<
                Socket,
                Stream: TlsStream + Send + 'static,
                TlsConnect: TlsConnect<Socket, Future: Send> + Send,
            > + Clone
            + Send
            + 'static,
    {
        let hosts = self.servers.hosts(nth == PUSHES);
        let connected = hosts.connect(&tls, self.timeout).await?;
        let subscriptions = Arc::clone(&self.subscriptions);
        let monitor = Arc::clone(&self.monitor);
        let live = Live::new(nth, subscriptions, monitor, self.timeout, tls, connected);
        // After a shutdown a late release has a connection that ends with it.
        if !self.is_closed() {
            *self.links[nth].live.lock() = Some(Arc::clone(&live));
        }
        if self.limit.is_reached() {
            self.shrink();
        }
        // Last, as the locks that are confirmed because of this need the new connection.
        self.monitor.opened(false);
        Ok(live)
    }

    /// Listens to pushes, unless that is done, and returns whether they arrive: they do not where a
    /// pooler gives the connection's server to others. Nothing is sent for a caller here.
    pub(crate) async fn listen(self: &Arc<Self>, until: Instant) -> Result<bool, RemoteError> {
        if self.limit.is_reached() && self.servers.listens_elsewhere() {
            return Ok(false);
        }
        let live = self.connected(PUSHES, until).await?;
        let statement = format!("LISTEN {}", self.channel);
        let listen = || async {
            live.client.batch_execute(&statement).await.map_err(of_connecting)?;
            let to = vec![&*self.channel];
            let push = vec![HELLO];
            let budget = Budget::brief(self.timeout);
            self.call(Self::link_of(""), "push", values![to, push], budget).await?;
            let mut heard = live.heard.subscribe();
            if timeout(HELLO_WITHIN, heard.wait_for(|heard| *heard)).await.is_err() {
                self.monitor.note_polling(|| self.name());
            }
            Ok(())
        };
        let until = until.min(Instant::now() + self.timeout);
        let error = match timeout_at(until, live.listens.get_or_try_init(listen)).await {
            Ok(Ok(())) => return Ok(*live.heard.borrow()),
            Ok(Err(error)) => error,
            Err(_) => RemoteError::broken(Why::Timeout, "listening", Applied::No),
        };
        Err(self.failed(&live, error))
    }

    /// Sends pushes, and waits until they are sent, for the time of a call at most: outside of the
    /// statement that has made the grants, as NOTIFY takes a lock of the whole database until its
    /// transaction ends; and one statement at a time. A waiter that gets none asks again.
    ///
    /// A push without a channel is for the idle workers of the function that it names.
    pub(crate) fn push(
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
        self.pushes.send(push, Instant::now(), move |pushes, _| {
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

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        for link in &self.links {
            link.connecting.abort();
            *link.live.lock() = None;
        }
    }
}

impl Shrink for Pool {
    /// Gives all connections but one up. Each ends when its calls are answered.
    fn shrink(&self) {
        let kept = self.kept();
        for (nth, link) in self.links.iter().enumerate() {
            if nth != kept {
                link.live.lock().take();
            }
        }
    }
}
