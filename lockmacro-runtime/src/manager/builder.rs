//! How a manager is made: what is set before it is connected.

use crate::engine::core::Core;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use crate::engine::core::inside_runtime;
#[cfg(feature = "defer")]
use crate::jobs::deferrer::Deferrer;
#[cfg(feature = "defer")]
use crate::jobs::limits::SIZE_MAX;
use crate::manager::lock_manager::LockManager;
use crate::manager::redis_server::RedisServer;
use crate::store::dispatch::Store;
use crate::store::memory::Memory;
use crate::store::redis::client::credentials::Credentials;
use crate::store::redis::client::replicas::{ReplicaAcks, not_replicated};
use crate::store::redis::store::Redis;
use crate::store::redlock::rules::Rules;
use crate::store::redlock::store::Redlock;
use crate::store::redlock::url::RedlockUrl;
use crate::value::defaults::Defaults;
use crate::value::error::LockError;
use crate::value::fence::{RETENTION, RETENTION_MAX, RETENTION_MIN};
use crate::value::limits::{TTL_MAX, TTL_MIN};

/// How long a caller waits for a server in trouble.
const TIMEOUT: Duration = Duration::from_secs(2);

const TIMEOUT_MIN: Duration = Duration::from_millis(20);
const TIMEOUT_MAX: Duration = Duration::from_secs(60 * 60);

/// Longest ttl of the locks of a Redlock manager that is told no other.
const LONGEST_TTL: Duration = Duration::from_secs(10 * 60);
/// How long a node of a Redlock is waited for at most.
const NODE_TIMEOUT: Duration = Duration::from_millis(50);

/// Settings of a [`LockManager`], see [`LockManager::builder`].
#[derive(Debug, Clone)]
#[must_use = "a builder does nothing until it is connected"]
pub struct LockManagerBuilder {
    label: Option<String>,
    timeout: Duration,
    rules: Rules,
    replicated: Option<(u32, Duration)>,
    credentials: Option<Credentials>,
    lazy: bool,
    pub(crate) defaults: Defaults,
    #[cfg(feature = "defer")]
    deferrer: Option<Arc<dyn Deferrer>>,
    #[cfg(feature = "defer")]
    max_deferred_size: usize,
}

impl LockManagerBuilder {
    pub(crate) fn new() -> Self {
        let rules = Rules {
            longest_ttl: LONGEST_TTL,
            durable: false,
            node: NODE_TIMEOUT,
            fence_retention: RETENTION,
        };
        Self {
            label: None,
            timeout: TIMEOUT,
            rules,
            replicated: None,
            credentials: None,
            lazy: false,
            defaults: Defaults::default(),
            #[cfg(feature = "defer")]
            deferrer: None,
            #[cfg(feature = "defer")]
            max_deferred_size: SIZE_MAX,
        }
    }

    /// How holders show themselves to others, in [`LockError::Busy`] and in the value of the key.
    /// The default is `host:pid`. Control characters and blanks become `-`.
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = Some(label.into()).filter(|label| !label.is_empty());
        self
    }

    /// How long a caller waits at most for a server in trouble, 2 s by default; one that waits for
    /// its lock anyway, as long as that. One command that is
    /// not answered is given a quarter of it. Of a Redlock this is how long a majority is tried for;
    /// see [`node_timeout`](LockManagerBuilder::node_timeout). At least 20 ms, at most an hour.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout.clamp(TIMEOUT_MIN, TIMEOUT_MAX);
        self
    }

    /// A lock counts only when so many replicas of its server have acknowledged it, each time within
    /// `timeout`: before its body starts, and with every renewal. Too few are
    /// [`LockError::InsufficientReplicas`], at once also for who waits, and the lock is given back.
    /// The same is said by a URL,
    /// which goes before this: `?replicated=1&replicated_timeout=100ms`, without a timeout 500 ms.
    ///
    /// A replica that is promoted then knows the lock, if it is one of those that acknowledged it. It
    /// costs a round trip to the server and one from there to its replicas, and up to twice 16
    /// connections more. No more than a quarter of the ttl is waited. `memory://` and Redlock have no replicas to
    /// wait for, and are refused.
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
        self.replicated = Some((acks, timeout));
        self
    }

    /// How long the last [fence](crate::value::fence) of a key is kept on the server after the key's last
    /// grant with a fence, a week by default; at least a day, at most ten years. Every process is
    /// to be told the same.
    ///
    /// Each key that was locked with a fence takes about 145 bytes for so long, and one more for
    /// each byte of the key beyond ten: a million different keys in that time are 145 MB. A key
    /// whose last fence is forgotten goes on by the server's clock, so the fences still grow unless
    /// that clock was set back meanwhile. `memory://` keeps one number for all keys as long as the
    /// process lives. A URL says it by `?fence_retention=30d`, and goes before this.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use lockmacro_runtime::LockManager;
    /// const DAY: Duration = Duration::from_secs(24 * 60 * 60);
    /// let locks = LockManager::builder().fence_retention(30 * DAY).memory();
    /// # let _ = locks;
    /// ```
    pub fn fence_retention(mut self, retention: Duration) -> Self {
        self.rules.fence_retention = retention.clamp(RETENTION_MIN, RETENTION_MAX);
        self
    }

    /// Asks `provider` for the user and the password whenever a connection is opened, and again
    /// when the server refuses a login or ends one: for passwords that are rotated and for tokens
    /// that expire. It goes before what the URL says, and is for every server of a cluster or a
    /// Redlock, but not for sentinels. An empty user is the default user.
    ///
    /// A refused login is tried again with the next answer until the manager's
    /// [timeout](LockManagerBuilder::timeout) is over, and is [`LockError::Authentication`] then,
    /// as is an error of the provider, whose text is shown. The provider is asked on the runtime
    /// that connects, the background thread's included, and is given no longer than the timeout:
    /// keep what it costs something to get.
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
        self.credentials = Some(Credentials::new(provider));
        self
    }

    /// Lets the manager start while the server is down: it connects when it is first needed, and
    /// until the server is there locks are [`LockError::Unavailable`]. What a connect would have
    /// told, such as a wrong password, is told by the first lock, or by [`LockManager::ready`]. A
    /// URL that cannot be used is still told at once.
    pub fn lazy(mut self) -> Self {
        self.lazy = true;
        self
    }

    /// For Redlock: the longest ttl of any lock of any process on these nodes, 10 minutes by default.
    /// A node that was started less than that ago does not vote, because it may have forgotten a lock
    /// that is still held; so after a restart a node is missing that long, and servers that are all
    /// new give no lock until then. A longer ttl is [`LockError::InvalidTtl`] with this manager: tell
    /// all processes the same. A URL says it by `?longest_ttl=10m`, and goes before this.
    pub fn longest_ttl(mut self, longest_ttl: Duration) -> Self {
        self.rules.longest_ttl = longest_ttl.clamp(TTL_MIN, TTL_MAX);
        self
    }

    /// For Redlock: how long a node is waited for at most, 50 ms by default, and no longer than a tenth of
    /// the ttl, nor than one command is by [`timeout`](LockManagerBuilder::timeout). It has to be several
    /// times as long as a round trip to the nodes of a majority. A node that is slower counts as silent,
    /// which costs nothing while the others are a majority. At least 1 ms. A URL says it by
    /// `?node_timeout=50ms`, and goes before this.
    pub fn node_timeout(mut self, node_timeout: Duration) -> Self {
        self.rules.node = node_timeout.max(Duration::from_millis(1));
        self
    }

    /// For Redlock: the nodes write every change to disk before they answer (`appendonly yes`,
    /// `appendfsync always`), so that no restart makes one forget a lock and each votes at once. Said
    /// of nodes that do not, a lock may be given twice after a restart. A URL says it by `?durable`.
    pub fn durable(mut self) -> Self {
        self.rules.durable = true;
        self
    }

    /// Connects to several servers, as [`LockManager::redlock`] does.
    ///
    /// # Errors
    /// As [`LockManager::redlock`].
    pub async fn redlock(
        self,
        urls: impl IntoIterator<Item: Into<String>>,
    ) -> Result<LockManager, LockError> {
        if self.replicated.is_some() {
            return Err(not_replicated("the nodes of a Redlock stand for each other"));
        }
        let store = self.nodes(urls.into_iter().map(Into::into).collect())?;
        self.asked(store).await
    }

    fn nodes(&self, urls: Vec<String>) -> Result<Store, LockError> {
        self.defaults.usable_up_to(self.rules.longest_ttl)?;
        let mut redlock = Redlock::new(&urls, self.timeout, self.rules)?;
        if let Some(credentials) = &self.credentials {
            redlock.log_in_by(credentials)?;
        }
        Ok(Store::Redlock(Box::new(redlock)))
    }

    /// Where deferred calls are kept, instead of in the locks' own store.
    #[cfg(feature = "defer")]
    pub fn deferrer(mut self, deferrer: Arc<dyn Deferrer>) -> Self {
        self.deferrer = Some(deferrer);
        self
    }

    /// How many bytes the arguments of one deferred call may have as JSON, 1 MiB by default. A call
    /// with more is refused with [`LockError::TooLarge`]. A worker gives the server that much
    /// longer to send calls, a second for 4 MiB, so set the same for the workers.
    #[cfg(feature = "defer")]
    pub fn max_deferred_size(mut self, bytes: usize) -> Self {
        self.max_deferred_size = bytes;
        self
    }

    /// Connects, as [`LockManager::connect`] does.
    ///
    /// # Errors
    /// As [`LockManager::connect`].
    pub async fn connect(mut self, url: &str) -> Result<LockManager, LockError> {
        let store = self.at(url)?;
        self.asked(store).await
    }

    /// Connects, as [`LockManager::connect_blocking`] does.
    ///
    /// # Errors
    /// As [`LockManager::connect_blocking`].
    pub fn connect_blocking(mut self, url: &str) -> Result<LockManager, LockError> {
        let store = self.at(url)?;
        let lazy = self.lazy || matches!(store, Store::Memory(_));
        let manager = self.with(store);
        if !lazy {
            manager.core().ready_blocking()?;
        }
        Ok(manager)
    }

    /// Connects, as [`LockManager::from_redis`] does.
    ///
    /// # Errors
    /// As [`LockManager::from_redis`].
    pub async fn from_redis(
        self,
        server: impl Into<RedisServer>,
    ) -> Result<LockManager, LockError> {
        let store = self.one(Redis::of(server.into().0, self.timeout))?;
        self.asked(store).await
    }

    /// What a URL names, which was not asked yet.
    fn at(&mut self, url: &str) -> Result<Store, LockError> {
        let url = &*self.defaults.take_from(url)?;
        self.defaults.usable()?;
        if url == "memory://" {
            if self.replicated.is_some() {
                return Err(not_replicated("`memory://` is not copied anywhere"));
            }
            return Ok(Store::Memory(Memory::shared()));
        }
        if let Some(all) = RedlockUrl::read(url) {
            let all = all?;
            self.rules = all.rules(self.rules);
            if self.replicated.is_some() {
                return Err(not_replicated("the nodes of a Redlock stand for each other"));
            }
            return self.nodes(all.urls);
        }
        self.one(Redis::new(url, self.timeout)?)
    }

    fn one(&self, mut redis: Redis) -> Result<Store, LockError> {
        self.defaults.usable()?;
        redis.keep_fences(self.rules.fence_retention);
        if let Some((acks, timeout)) = self.replicated {
            redis.replicate(ReplicaAcks::new(acks, timeout)?);
        }
        if let Some(credentials) = &self.credentials {
            redis.log_in_by(credentials)?;
        }
        Ok(Store::Redis(Arc::new(redis)))
    }

    async fn asked(self, store: Store) -> Result<LockManager, LockError> {
        if !self.lazy && !matches!(store, Store::Memory(_)) {
            inside_runtime()?;
            store.ready().await?;
        }
        Ok(self.with(store))
    }

    /// Makes a manager of locks of its own, as [`LockManager::memory`] does. There is nothing that
    /// [`replicated`](LockManagerBuilder::replicated) could wait for.
    pub fn memory(self) -> LockManager {
        self.with(Store::Memory(Memory::new()))
    }

    pub(crate) fn with(self, store: Store) -> LockManager {
        #[cfg(feature = "defer")]
        let core =
            Core::over(store, self.label, self.defaults, self.deferrer, self.max_deferred_size);
        #[cfg(not(feature = "defer"))]
        let core = Core::over(store, self.label, self.defaults);
        LockManager(core)
    }
}
