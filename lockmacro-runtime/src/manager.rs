//! Where locks come from: a server, and how this process shows itself there.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;
use std::{fmt, process};

use tokio::runtime::Handle;
use tokio::task::try_id;
use tokio::time::timeout;

use crate::backend::Backend;
use crate::blocking::may_block;
use crate::builder::LockManagerBuilder;
use crate::census::{Census, Member};
use crate::closing::Closing;
use crate::current::Current;
use crate::defaults::Defaults;
#[cfg(feature = "defer")]
use crate::defer::{self, Deferrer};
use crate::error::LockError;
use crate::holds::Holds;
use crate::janitor::Janitor;
use crate::key::LockKey;
use crate::server::RedisServer;
use crate::token::{default_label, label};

/// The manager of every lock that is given none.
static INSTALLED: OnceLock<LockManager> = OnceLock::new();

/// A connection to where locks are kept. Clones are the same manager and cost next to nothing.
///
/// A program connects one when it starts, and installs it for all annotated functions:
///
/// ```
/// use std::time::Duration;
/// use lockmacro_runtime::{LockError, LockManager};
///
/// #[tokio::main]
/// async fn main() -> Result<(), LockError> {
///     let locks = LockManager::connect("memory://").await?; // or "redis://…"
///     locks.install()?;
///     // … the program …
///     locks.shutdown(Duration::from_secs(5)).await
/// }
/// ```
///
/// A manager needs at most two connections to a server: one shared by all callers, made on the
/// runtime that first asks, and one of its background thread. Where the server refuses HELLO, each
/// has another one beside it from the first waiter on. In a cluster it is so for each node. With
/// [`replicated`](LockManagerBuilder::replicated) each has up to 16 more.
#[derive(Clone)]
pub struct LockManager(Arc<Inner>);

struct Inner {
    own: Own,
    janitor: Janitor,
    label: String,
    /// Whether the label names the process.
    names_process: bool,
    defaults: Defaults,
    /// How long its locks were held.
    holds: Holds,
    census: Census,
    closing: Closing,
    /// Where deferred calls are kept, and whether that was said by the builder.
    #[cfg(feature = "defer")]
    jobs: (Arc<dyn Deferrer>, bool),
    #[cfg(feature = "defer")]
    max_deferred_size: usize,
}

/// What a process asks for locks by: one that was forked has connections of its own.
struct Own {
    process: u32,
    backend: Backend,
    /// Those of the process that this one was forked to be.
    forked: OnceLock<Box<Own>>,
}

impl Own {
    fn new(backend: Backend) -> Self {
        Self { process: process::id(), backend, forked: OnceLock::new() }
    }

    fn here(&self) -> &Self {
        let mut own = self;
        while let Some(forked) = own.forked.get() {
            own = forked;
        }
        own
    }

    /// Takes note of a fork. The other process goes on to use its connections, which are not to be
    /// ended here.
    fn notice(&self) -> &Self {
        let own = self.here();
        if own.process != process::id() {
            own.forked.get_or_init(|| Box::new(Self::new(own.backend.apart())));
        }
        self.here()
    }
}

impl LockManager {
    /// Connects to the server at `url`:
    ///
    /// - `redis://[user:password@]host[:port][/db]`, or `redis+unix:///path/to/socket`: a Redis
    ///   server, 6.2 or later;
    /// - `redis-cluster://[user:password@]host[:port],host[:port]…`: a Redis Cluster, of which one
    ///   of the hosts has to answer;
    /// - `rediss://…` or `rediss-cluster://…`, with the feature `tls`: the same, encrypted.
    ///   `?cacert=` names the file of the authority to trust instead of the public ones, `cert=` and
    ///   `key=` those of a client certificate. Unless the program has installed a crypto provider of
    ///   rustls, `ring` is;
    /// - `redis-sentinel://[user:password@]host[:port],…/name[/db]`: the primary that these
    ///   sentinels call by that name, also after a failover. `?sentinel_user=` and
    ///   `sentinel_password=` log in to the sentinels themselves. `rediss-sentinel://` encrypts both;
    /// - `redlock://[user:password@]host:port,host:port,host:port[/db]`: a majority of that many
    ///   servers, as [`redlock`](LockManager::redlock). `?durable`, `longest_ttl=10m` and
    ///   `node_timeout=50ms` are what the builder's methods are. `redlocks://` is encrypted;
    /// - `memory://`: the locks of this process, with the same meaning and nothing to install.
    ///   Managers connected to `memory://` exclude each other, as those of one server do.
    ///
    /// `?fence_retention=30d` behind any but the last is
    /// [`fence_retention`](LockManagerBuilder::fence_retention);
    /// `?default_ttl=1m&default_wait=2s&key_prefix=shop:` behind any of these is what the builder's
    /// methods of the same names are.
    ///
    /// `?replicated=1&replicated_timeout=100ms` behind one of the first four has locks count only when
    /// replicas know them, see [`LockManagerBuilder::replicated`].
    ///
    /// # Errors
    /// [`LockError::InvalidUrl`], [`LockError::InvalidSetting`], or what is wrong with the server:
    /// it is asked once, so that a wrong password is known when the program starts and not when the
    /// first order comes in.
    pub async fn connect(url: &str) -> Result<Self, LockError> {
        Self::builder().connect(url).await
    }

    /// Connects to three, five, seven … independent servers. A lock is held when a majority of them
    /// holds it, so that it survives the failure of the others; see the README for when that is worth
    /// it.
    ///
    /// ```no_run
    /// # use lockmacro_runtime::{LockError, LockManager};
    /// # async fn connect() -> Result<LockManager, LockError> {
    /// LockManager::redlock(["redis://a", "redis://b", "redis://c"]).await
    /// # }
    /// ```
    ///
    /// All nodes are asked at once, each for at most 50 ms or a tenth of the ttl, and the first
    /// majority decides. The lease is counted from before the first request, less 1 % and 2 ms. A lock
    /// that no majority grants is given back everywhere. Who [waits](crate::Lock::wait) asks again at
    /// random intervals of up to 150 ms: there is no order, nor a line, over several nodes.
    ///
    /// A node that was started less than the [longest ttl](LockManagerBuilder::longest_ttl) ago does
    /// not vote, because it may have forgotten a lock that is still held.
    ///
    /// The algorithm is the one of "Distributed Locks with Redis" in the Redis documentation.
    ///
    /// # Errors
    /// [`LockError::InvalidUrl`] for fewer than three nodes, an even number of them, and two names of
    /// one server; [`LockError::NoQuorum`] when no majority can be reached. The others are taken in
    /// when they come back.
    pub async fn redlock(urls: impl IntoIterator<Item: Into<String>>) -> Result<Self, LockError> {
        Self::builder().redlock(urls).await
    }

    /// [`connect`](LockManager::connect) for a program that is not async. The background thread
    /// connects, and the caller's thread blocks for up to the manager's timeout.
    ///
    /// ```
    /// use lockmacro_runtime::{Lock, LockError, LockManager};
    ///
    /// fn main() -> Result<(), LockError> {
    ///     let locks = LockManager::connect_blocking("memory://")?; // or "redis://…"
    ///     Lock::new("report").manager(&locks).run_blocking(|| Ok(()))
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`connect`](LockManager::connect), and [`LockError::BlockingInAsync`] on the thread of a
    /// current-thread runtime.
    pub fn connect_blocking(url: &str) -> Result<Self, LockError> {
        Self::builder().connect_blocking(url)
    }

    /// Connects to the server that a [`redis::Client`] or a [`redis::ConnectionInfo`] describes:
    /// its address, database, user and password. The manager opens connections of its own.
    ///
    /// ```no_run
    /// # use lockmacro_runtime::{LockError, LockManager};
    /// # async fn connect() -> Result<LockManager, Box<dyn std::error::Error>> {
    /// let client = redis::Client::open("redis://localhost")?;
    /// # Ok(
    /// LockManager::from_redis(&client).await?
    /// # ) }
    /// ```
    ///
    /// # Errors
    /// What is wrong with the server, as [`connect`](LockManager::connect).
    pub async fn from_redis(server: impl Into<RedisServer>) -> Result<Self, LockError> {
        Self::builder().from_redis(server).await
    }

    /// Asks the servers whether they are there and let this manager do what locks need: for a
    /// readiness probe, and after a [`lazy`](LockManagerBuilder::lazy) start. One round trip; of a
    /// Redlock a majority has to answer. A server in trouble is given the manager's
    /// [timeout](LockManagerBuilder::timeout).
    ///
    /// ```
    /// # use lockmacro_runtime::LockManager;
    /// async fn readiness(locks: LockManager) -> u16 {
    ///     if locks.ready().await.is_ok() { 200 } else { 503 }
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`connect`](LockManager::connect); [`LockError::ShutDown`]; [`LockError::NoRuntime`]
    /// outside of tokio.
    ///
    /// # Cancellation
    /// Nothing is lost by dropping the future.
    pub async fn ready(&self) -> Result<(), LockError> {
        if self.0.closing.is_closed() {
            return Err(LockError::ShutDown);
        }
        inside_runtime()?;
        let backend = &self.0.own.notice().backend;
        let ready = backend.ready().await;
        if self.0.closing.is_closed() {
            // What it has opened since then is of no more use.
            backend.disconnect();
            return Err(LockError::ShutDown);
        }
        ready
    }

    /// The same by the background thread, for callers that block.
    pub(crate) fn ready_blocking(&self) -> Result<(), LockError> {
        may_block()?;
        self.0.janitor.block_on(|backend| async move { backend.ready().await })?
    }

    /// A manager of locks of its own, in memory: for tests, see [`scope`](LockManager::scope).
    pub fn memory() -> Self {
        Self::builder().memory()
    }

    /// A manager with other settings than the default ones.
    pub fn builder() -> LockManagerBuilder {
        LockManagerBuilder::new()
    }

    /// Makes this the manager of every lock that is given none, for the rest of the process.
    ///
    /// # Errors
    /// [`LockError::AlreadyInstalled`] when another manager is: the first one stays, because the
    /// locks of two managers may not exclude each other. Installing the same one again is fine.
    pub fn install(&self) -> Result<(), LockError> {
        let installed = INSTALLED.get_or_init(|| self.clone());
        if self.is(installed) { Ok(()) } else { Err(LockError::AlreadyInstalled) }
    }

    /// The manager of a lock that names none: that of the innermost [scope](LockManager::scope)
    /// around the call, or else the installed one.
    ///
    /// # Errors
    /// [`LockError::NotInstalled`] when there is none.
    pub fn installed() -> Result<Self, LockError> {
        let installed = || INSTALLED.get().cloned().ok_or(LockError::NotInstalled);
        Current::here().manager().map_or_else(installed, Ok)
    }

    /// Ends the manager: no lock is given any more, and those that are out are waited for, up to
    /// `timeout`. Call it last thing in `main`, so that what was dropped is released before the
    /// process ends. Where a request was given up that may still arrive, the background thread
    /// stays to look once more, for up to 6 s.
    ///
    /// # Errors
    /// [`LockError::ShutdownTimeout`] when locks are still held then. They end with their bodies,
    /// or by their leases. [`LockError::NoRuntime`] outside of tokio, and then nothing is done.
    ///
    /// # Cancellation
    /// Dropping the future leaves the manager closed, and what it would have waited for goes on.
    pub async fn shutdown(&self, timeout: Duration) -> Result<(), LockError> {
        inside_runtime()?;
        self.0.closing.close();
        // Who stands in line looks when it is woken.
        self.backend().alarm();
        self.0.janitor.alarm();
        let empty = self::timeout(timeout, self.0.census.empty()).await;
        let held = self.0.census.count();
        if empty.is_err() && held > 0 {
            return Err(LockError::ShutdownTimeout { held });
        }
        self.backend().disconnect();
        self.0.janitor.stop();
        Ok(())
    }

    /// A manager of the locks of `backend`.
    pub(crate) fn over(
        backend: Backend,
        its_label: Option<String>,
        defaults: Defaults,
        #[cfg(feature = "defer")] deferrer: Option<Arc<dyn Deferrer>>,
        #[cfg(feature = "defer")] max_deferred_size: usize,
    ) -> Self {
        #[cfg(feature = "defer")]
        let jobs = match deferrer {
            Some(deferrer) => (deferrer, true),
            None => (defer::of(&backend, max_deferred_size), false),
        };
        Self(Arc::new_cyclic(|inner: &Weak<Inner>| {
            let inner = Weak::clone(inner);
            backend.on_change(move || {
                if let Some(inner) = inner.upgrade() {
                    inner.janitor.confirm_all();
                }
            });
            Inner {
                #[cfg(feature = "defer")]
                jobs,
                #[cfg(feature = "defer")]
                max_deferred_size,
                janitor: Janitor::new(&backend),
                own: Own::new(backend),
                names_process: its_label.is_none(),
                label: label(&its_label.unwrap_or_else(default_label)),
                defaults,
                holds: Holds::default(),
                census: Census::default(),
                closing: Closing::default(),
            }
        }))
    }

    /// Tells when the manager is shut down.
    pub(crate) fn closing(&self) -> &Closing {
        &self.0.closing
    }

    /// Where deferred calls are kept: to store some, to look at them, and to have dead letters tried
    /// again.
    #[cfg(feature = "defer")]
    pub fn deferrer(&self) -> Arc<dyn Deferrer> {
        let own = self.0.own.notice();
        match self.has_another_queue() || std::ptr::eq(own, &self.0.own) {
            true => Arc::clone(&self.0.jobs.0),
            // In a process that was forked.
            false => defer::of(&own.backend, self.0.max_deferred_size),
        }
    }

    /// Whether they are kept in another store than the locks.
    #[cfg(feature = "defer")]
    pub(crate) fn has_another_queue(&self) -> bool {
        self.0.jobs.1
    }

    /// The same for the background thread, by its own connection.
    #[cfg(feature = "defer")]
    pub(crate) fn deferrer_of(&self, backend: &Backend) -> Arc<dyn Deferrer> {
        match self.has_another_queue() {
            true => self.deferrer(),
            false => defer::of(backend, self.0.max_deferred_size),
        }
    }

    /// How many bytes the arguments of a deferred call may have.
    #[cfg(feature = "defer")]
    pub(crate) fn max_deferred_size(&self) -> usize {
        self.0.max_deferred_size
    }

    /// Whether this and the other are one manager.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    pub(crate) fn backend(&self) -> &Backend {
        &self.0.own.here().backend
    }

    pub(crate) fn janitor(&self) -> &Janitor {
        &self.0.janitor
    }

    /// What this process shows itself as. Each token has it, so that a fork is noticed here.
    pub(crate) fn label(&self) -> Cow<'_, str> {
        let is_forked = !std::ptr::eq(self.0.own.notice(), &self.0.own);
        match is_forked && self.0.names_process {
            true => Cow::Owned(label(&default_label())),
            false => Cow::Borrowed(&self.0.label),
        }
    }

    /// Takes note of how long a key was held.
    pub(crate) fn note_held(&self, key: &LockKey, held: Duration) {
        self.0.holds.note(key, held);
    }

    /// When a caller may ask again that was refused `key`, with so many before it in line.
    pub(crate) fn retry_after(
        &self,
        key: &LockKey,
        before: u32,
        left: Option<Duration>,
    ) -> Duration {
        let (least, most) = self.0.defaults.retry_after();
        self.0.holds.retry_after(key, before, left).clamp(least, most)
    }

    /// What holds for locks that say nothing else.
    pub(crate) fn defaults(&self) -> &Defaults {
        &self.0.defaults
    }

    /// Counts one lock more, unless the manager was shut down.
    pub(crate) fn enter(&self) -> Result<Member, LockError> {
        // Counted before the look, so that a shutdown either sees this lock or is seen by it.
        let member = self.0.census.join();
        if self.0.closing.is_closed() { Err(LockError::ShutDown) } else { Ok(member) }
    }
}

impl fmt::Debug for LockManager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockManager")
            .field("label", &self.0.label)
            .field("backend", self.backend())
            .field("defaults", &self.0.defaults)
            .field("locks", &self.0.census.count())
            .finish_non_exhaustive()
    }
}

/// Whether there is a tokio runtime to wait on.
pub(crate) fn inside_runtime() -> Result<(), LockError> {
    // A task is inside of one, and that is known without touching what all threads share.
    if try_id().is_some() || Handle::try_current().is_ok() {
        Ok(())
    } else {
        Err(LockError::NoRuntime)
    }
}
