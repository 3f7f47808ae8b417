//! What a builder sets for Redis servers and no other store, and the managers that it makes of them.

use std::error::Error;
use std::time::Duration;

use crate::manager::builder::LockManagerBuilder;
use crate::manager::lock_manager::LockManager;
#[cfg(feature = "redis-1")]
use crate::manager::redis::server::RedisServer;
use crate::store::handle::Store;
use crate::store::redis::client::settings::Credentials;
use crate::store::redis::client::url::{Deployment, ReplicaAcks};
use crate::store::redis::store::Redis;
use crate::store::redlock::store::Redlock;
use crate::store::redlock::url;
use crate::value::error::LockError;
use crate::value::limits::{TTL_MAX, TTL_MIN};
use crate::value::setting;
use crate::value::url::Url;

const NODE_TIMEOUT_MIN: Duration = Duration::from_millis(1);

/// Settings for locks on Redis, with the feature `redis`, which is on by default.
impl LockManagerBuilder {
    /// Requires `acks` replicas of the lock's server to acknowledge each lock within `timeout`:
    /// before its body starts, and with every renewal.
    ///
    /// With fewer acknowledgements the lock is released, and acquiring fails at once with
    /// [`LockError::Unavailable`], also for a waiter. A URL sets the same with
    /// `?replicated=1&replicated_timeout=100ms` (500 ms without a timeout), and takes precedence
    /// over this method.
    ///
    /// A replica that has acknowledged the lock still knows it when it is promoted. The
    /// acknowledgement costs a round trip to the server and one from there to its replicas, and up
    /// to 2 × 16 more connections. It is awaited for no longer than `timeout`, which is from 1 ms
    /// to an hour, and no longer than a quarter of the ttl. It is for Redis servers with replicas:
    /// connecting to anything else with it fails with [`LockError::InvalidSetting`].
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use lockmacro_runtime::{LockError, LockManager};
    /// # async fn connect() -> Result<LockManager, LockError> {
    /// let builder = LockManager::builder().replicated(1, Duration::from_millis(100));
    /// builder.connect("redis-sentinel://one,two,three/main").await
    /// # }
    /// ```
    pub fn replicated(mut self, acks: u32, timeout: Duration) -> Self {
        self.extra.asked("replicated");
        self.redis.replicated = Some((acks, timeout));
        self
    }

    /// Sets a provider of the user and the password, for passwords that are rotated and for tokens
    /// that expire. It is called whenever a connection is opened, and again when the server refuses
    /// a login or ends one.
    ///
    /// The provider takes precedence over the user and password of a URL. It is used for every
    /// server of a cluster or a Redlock, but not for sentinels. An empty user is the default user.
    /// It is for Redis servers: connecting to anything else with it fails with
    /// [`LockError::InvalidSetting`].
    ///
    /// A refused login is repeated with new credentials until the manager's
    /// [timeout](LockManagerBuilder::timeout) is over, and then fails with
    /// [`LockError::Authentication`]. An error of the provider fails in the same way, and its text
    /// is shown. The provider runs on the runtime that connects, which may be that of the
    /// background thread, and for no longer than the timeout. Cache credentials that are slow to
    /// get.
    ///
    /// ```no_run
    /// # use lockmacro_runtime::{LockError, LockManager};
    /// # async fn connect() -> Result<LockManager, LockError> {
    /// let builder = LockManager::builder().credentials(|| async {
    ///     let password = std::fs::read_to_string("/run/secrets/redis")?;
    ///     Ok::<_, std::io::Error>(("shop".to_owned(), password.trim().to_owned()))
    /// });
    /// builder.connect("redis://localhost").await
    /// # }
    /// ```
    pub fn credentials<F, W, E>(mut self, provider: F) -> Self
    where
        F: Fn() -> W + Send + Sync + 'static,
        W: Future<Output = Result<(String, String), E>> + Send + 'static,
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        self.extra.asked("credentials");
        self.redis.credentials = Some(Credentials::new(provider));
        self
    }

    /// For Redlock: sets the longest ttl of any lock of any process on these nodes, by default 10
    /// minutes and from 50 ms to a day. Use the same value in every process.
    ///
    /// A node that was started less than this time ago does not vote, because it may have forgotten
    /// a lock that is still held. So after a restart a node does not vote for this time, and
    /// servers that were all just started grant no lock until then. Acquiring with a longer ttl
    /// fails with [`LockError::InvalidSetting`]. A URL sets the same with `?longest_ttl=10m`, and
    /// takes precedence over this method.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use lockmacro_runtime::LockManager;
    /// let builder = LockManager::builder().longest_ttl(Duration::from_secs(30));
    /// ```
    pub fn longest_ttl(mut self, longest_ttl: Duration) -> Self {
        self.extra.asked("longest_ttl");
        if (TTL_MIN..=TTL_MAX).contains(&longest_ttl) {
            self.redis.rules.longest_ttl = longest_ttl
        } else {
            self.defaults.refuse("longest_ttl", "set a time from 50ms to 24h")
        }
        self
    }

    /// For Redlock: sets how long a node may take to answer, by default 50 ms and from 1 ms to
    /// a day.
    ///
    /// A node is never given longer than a tenth of the ttl, nor longer than a single command has
    /// by [`timeout`](LockManagerBuilder::timeout). The timeout has to be several times as long as
    /// a round trip to the nodes of a majority. A slower node counts as not answering, which costs
    /// nothing while the others are a majority. A URL sets the same with `?node_timeout=50ms`, and
    /// takes precedence over this method.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use lockmacro_runtime::LockManager;
    /// let builder = LockManager::builder().node_timeout(Duration::from_millis(20));
    /// ```
    pub fn node_timeout(mut self, node_timeout: Duration) -> Self {
        self.extra.asked("node_timeout");
        if (NODE_TIMEOUT_MIN..=TTL_MAX).contains(&node_timeout) {
            self.redis.rules.node = node_timeout
        } else {
            self.defaults.refuse("node_timeout", "set a time from 1ms to 24h")
        }
        self
    }

    /// For Redlock: declares that the nodes write every change to disk before they answer
    /// (`appendonly yes`, `appendfsync always`).
    ///
    /// Such a node forgets no lock at a restart, so it votes at once. If the nodes do not write to
    /// disk, a lock may be granted twice after a restart. A URL sets the same with `?durable`.
    ///
    /// ```
    /// # use lockmacro_runtime::LockManager;
    /// let builder = LockManager::builder().durable();
    /// ```
    pub fn durable(mut self) -> Self {
        self.extra.asked("durable");
        self.redis.rules.durable = true;
        self
    }

    /// Connects to three, five, seven … independent servers. A lock is held when a majority of them
    /// holds it, so that it survives the failure of a minority.
    /// [The guide](crate::guide::redis#redlock) explains when that is worth its price.
    ///
    /// ```no_run
    /// # use lockmacro_runtime::{LockError, LockManager};
    /// # async fn connect() -> Result<LockManager, LockError> {
    /// LockManager::builder().redlock(["redis://a", "redis://b", "redis://c"]).await
    /// # }
    /// ```
    ///
    /// - All nodes are asked at once, each for at most 50 ms or a tenth of the ttl, and the first
    ///   majority decides.
    /// - The lease counts from before the first request, less 1 % of the ttl and 2 ms.
    /// - A lock that no majority grants is released on all nodes.
    /// - A [waiter](crate::Lock::wait) repeats its request at random intervals of up to 150 ms.
    ///   There is no queue over several nodes, and so no order among the waiters.
    /// - A node that was started less than the [longest ttl](LockManagerBuilder::longest_ttl) ago
    ///   does not vote, because it may have forgotten a lock that is still held.
    ///
    /// The algorithm is the one of "Distributed Locks with Redis" in the Redis documentation.
    ///
    /// # Errors
    /// [`LockError::InvalidSetting`] for fewer than three nodes, for an even number of nodes, and
    /// for two names of one server; [`LockError::Unavailable`] when no majority can be reached. A
    /// node that cannot be reached joins when it comes back.
    pub async fn redlock(
        self,
        urls: impl IntoIterator<Item: Into<String>>,
    ) -> Result<LockManager, LockError> {
        let urls: Vec<String> = urls.into_iter().map(Into::into).collect();
        let extra = self.extra.clone();
        let node = |url| Url::parse(url).map(|url| extra.added_to(url));
        let nodes = urls.iter().map(|url| node(url)).collect::<Result<Vec<_>, _>>()?;
        let encrypted = nodes.iter().all(|node| setting::is_encrypted(node.scheme));
        extra.check(if encrypted { "redlocks" } else { "redlock" })?;
        let store = self.nodes(&nodes)?;
        self.asked(store).await
    }

    /// For `redis-sentinel://`: sets the user and the password of the sentinels themselves. An
    /// empty user is the default user. A URL sets the same with
    /// `?sentinel_user=watcher&sentinel_password=secret`.
    pub fn sentinel_login(mut self, user: impl Into<String>, password: impl Into<String>) -> Self {
        let user = user.into();
        if !user.is_empty() {
            self.extra.set("sentinel_user", user);
        }
        self.extra.set("sentinel_password", password.into());
        self
    }

    /// Connects to the server that a [`redis::Client`] or a [`redis::ConnectionInfo`] describes:
    /// its address, database, user and password. The manager opens connections of its own.
    /// (Feature `redis-1`, for version 1 of that crate.)
    ///
    /// ```no_run
    /// # use lockmacro_runtime::{LockError, LockManager};
    /// # async fn connect() -> Result<LockManager, Box<dyn std::error::Error>> {
    /// let client = redis::Client::open("redis://localhost")?;
    /// # Ok(
    /// LockManager::builder().from_redis(&client).await?
    /// # ) }
    /// ```
    ///
    /// # Errors
    /// The failure of the server, as [`connect`](LockManager::connect). Certificates are set on the
    /// [`redis::Client`]: with [`ca_cert`](LockManagerBuilder::ca_cert) or
    /// [`client_cert`](LockManagerBuilder::client_cert) this is [`LockError::InvalidSetting`].
    #[cfg(feature = "redis-1")]
    pub async fn from_redis(
        self,
        server: impl Into<RedisServer>,
    ) -> Result<LockManager, LockError> {
        self.extra.check_without_url("set it on the `redis::Client`")?;
        self.extra.check("redis")?;
        let store = self.one(Deployment::of_server(&server.into().0, self.timeout))?;
        self.asked(store).await
    }

    /// The store that a URL of Redis servers names, not connected yet.
    pub(crate) fn on_redis(&mut self, url: &Url<'_>) -> Result<Store, LockError> {
        if let Some(nodes) = url::nodes(url, &mut self.redis.rules) {
            return self.nodes(&nodes?);
        }
        self.one(Deployment::of(url, self.timeout)?)
    }

    fn one(&self, servers: Deployment) -> Result<Store, LockError> {
        self.defaults.usable()?;
        let mut servers = self.completed(servers);
        if let Some((acks, timeout)) = self.redis.replicated {
            servers.replicated.get_or_insert(ReplicaAcks::new(acks, timeout)?);
        }
        let mut redis = Redis::new(&servers, self.timeout, &self.defaults.prefix);
        redis.fails_fast = !self.defaults.asks_down;
        Ok(Store::of(redis))
    }

    fn nodes(&self, nodes: &[Url<'_>]) -> Result<Store, LockError> {
        self.defaults.usable_up_to(self.redis.rules.longest_ttl)?;
        let servers = |node| Ok(self.completed(Deployment::of(node, self.timeout)?));
        let nodes = nodes.iter().map(servers).collect::<Result<Vec<_>, LockError>>()?;
        Ok(Store::of(Redlock::new(&nodes, self.timeout, self.redis.rules)?))
    }

    /// The servers with what the builder sets and their URL does not.
    fn completed(&self, mut servers: Deployment) -> Deployment {
        servers.fence_retention.get_or_insert(self.fence_retention);
        servers.settings.credentials.clone_from(&self.redis.credentials);
        servers
    }
}
