//! How a manager is made: what is set before it is connected.

use std::sync::Arc;
use std::time::Duration;

use crate::LockManager;
use crate::backend::{Backend, Memory, OneUrl, Redis, Redlock, Replicated, Rules, not_replicated};
use crate::defaults::Defaults;
#[cfg(feature = "defer")]
use crate::defer::Deferrer;
use crate::error::LockError;
use crate::lease::{TTL_MAX, TTL_MIN};
use crate::manager::inside_runtime;

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
    pub(crate) defaults: Defaults,
    #[cfg(feature = "defer")]
    deferrer: Option<Arc<dyn Deferrer>>,
}

impl LockManagerBuilder {
    pub(crate) fn new() -> Self {
        let rules = Rules { longest_ttl: LONGEST_TTL, durable: false, node: NODE_TIMEOUT };
        Self {
            label: None,
            timeout: TIMEOUT,
            rules,
            replicated: None,
            defaults: Defaults::default(),
            #[cfg(feature = "defer")]
            deferrer: None,
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
        self.defaults.usable_up_to(self.rules.longest_ttl)?;
        let urls: Vec<_> = urls.into_iter().map(Into::into).collect();
        let redlock = Redlock::new(&urls, self.timeout, self.rules)?;
        inside_runtime()?;
        redlock.ready().await?;
        Ok(self.with(Backend::Redlock(Box::new(redlock))))
    }

    /// Where deferred calls are kept, instead of in the locks' own store.
    #[cfg(feature = "defer")]
    pub fn deferrer(mut self, deferrer: Arc<dyn Deferrer>) -> Self {
        self.deferrer = Some(deferrer);
        self
    }

    /// Connects, as [`LockManager::connect`] does.
    ///
    /// # Errors
    /// As [`LockManager::connect`].
    pub async fn connect(mut self, url: &str) -> Result<LockManager, LockError> {
        let url = &*self.defaults.take_from(url)?;
        self.defaults.usable()?;
        if url == "memory://" {
            if self.replicated.is_some() {
                return Err(not_replicated("`memory://` is not copied anywhere"));
            }
            return Ok(self.with(Backend::Memory(Memory::shared())));
        }
        if let Some(all) = OneUrl::read(url) {
            let all = all?;
            self.rules = all.rules(self.rules);
            return self.redlock(all.urls).await;
        }
        let mut redis = Redis::new(url, self.timeout)?;
        if let Some((acks, timeout)) = self.replicated {
            redis.replicate(Replicated::new(acks, timeout)?);
        }
        inside_runtime()?;
        redis.ready().await?;
        Ok(self.with(Backend::Redis(Arc::new(redis))))
    }

    /// Makes a manager of locks of its own, as [`LockManager::memory`] does. There is nothing that
    /// [`replicated`](LockManagerBuilder::replicated) could wait for.
    pub fn memory(self) -> LockManager {
        self.with(Backend::Memory(Memory::new()))
    }

    pub(crate) fn with(self, backend: Backend) -> LockManager {
        #[cfg(feature = "defer")]
        return LockManager::over(backend, self.label, self.defaults, self.deferrer);
        #[cfg(not(feature = "defer"))]
        LockManager::over(backend, self.label, self.defaults)
    }
}
