//! The ways to connect a manager.

use crate::manager::builder::LockManagerBuilder;
use crate::manager::lock_manager::LockManager;
use crate::manager::redis_server::RedisServer;
use crate::value::error::LockError;

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

    /// A manager of locks of its own, in memory: for tests, see [`scope`](LockManager::scope).
    pub fn memory() -> Self {
        Self::builder().memory()
    }

    /// A manager with other settings than the default ones.
    pub fn builder() -> LockManagerBuilder {
        LockManagerBuilder::new()
    }
}
