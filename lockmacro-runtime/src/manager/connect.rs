//! The constructors of a manager.

use crate::manager::builder::LockManagerBuilder;
use crate::manager::lock_manager::LockManager;
use crate::value::error::LockError;

impl LockManager {
    /// Connects to the server at `url`:
    ///
    /// - `redis://[user:password@]host[:port][/db]`, or `redis+unix:///path/to/socket` except on
    ///   Windows: a Redis server, 6.2 or later;
    /// - `redis-cluster://[user:password@]host[:port],host[:port]…`: a Redis Cluster, of which one
    ///   of the hosts has to answer;
    /// - `rediss://…` or `rediss-cluster://…`, with the feature `tls`: the same, encrypted.
    ///   `?cacert=` names the file of the authority to trust instead of the public ones; `cert=`
    ///   and `key=` name the files of a client certificate. The crypto provider of rustls is
    ///   `ring`, unless the program has installed another one;
    /// - `redis-sentinel://[user:password@]host[:port],…/name[/db]`: the primary that these
    ///   sentinels monitor under that name, also after a failover. `?sentinel_user=` and
    ///   `sentinel_password=` log in to the sentinels themselves. `rediss-sentinel://` encrypts
    ///   both;
    /// - `redlock://[user:password@]host:port,host:port,host:port[/db]`: a majority of these
    ///   servers, a [Redlock](crate::guide::redis#redlock). `?durable`, `longest_ttl=10m` and
    ///   `node_timeout=50ms` set the same as the builder's methods. `redlocks://` is encrypted;
    /// - `postgres://user[:password]@host[:port],…[/database]`, with the feature `postgres`: see
    ///   [PostgreSQL](crate::guide::postgres);
    /// - `memory://`: the locks of this process, with the same meaning and without a server.
    ///   Managers connected to `memory://` exclude each other, as managers of one server do.
    ///
    /// Redis servers need the feature `redis`, which is on by default.
    ///
    /// A URL can carry more settings, as `redis://localhost?default_ttl=1m&key_prefix=shop:`. The
    /// [table of settings](crate::guide::settings#in-a-url) has all of them, and says which URLs
    /// each is for. A setting that the store does not have is refused by its name.
    ///
    /// ```
    /// use lockmacro_runtime::{LockError, LockManager};
    ///
    /// #[tokio::main]
    /// async fn main() -> Result<(), LockError> {
    ///     let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "memory://".to_owned());
    ///     let locks = LockManager::connect(&url).await?;
    ///     locks.install()
    /// }
    /// ```
    ///
    /// # Errors
    /// [`LockError::InvalidSetting`], or the failure of the server. The
    /// server is asked once, so that a wrong password is found when the program starts. A replica
    /// is [`LockError::Unavailable`], and the error names its primary. A database that the server
    /// does not have is [`LockError::InvalidSetting`].
    pub async fn connect(url: &str) -> Result<Self, LockError> {
        Self::builder().connect(url).await
    }

    /// Connects as [`connect`](LockManager::connect) does, in a program that is not async. The
    /// background thread connects, and the caller's thread blocks for up to the manager's timeout.
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
    /// As [`connect`](LockManager::connect), and [`LockError::NoRuntime`] on the thread of a
    /// current-thread runtime.
    pub fn connect_blocking(url: &str) -> Result<Self, LockError> {
        Self::builder().connect_blocking(url)
    }

    /// Makes a manager with locks of its own in memory, for tests: see
    /// [`scope`](LockManager::scope).
    ///
    /// ```
    /// # use lockmacro_runtime::{Lock, LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// let (one, other) = (LockManager::isolated_memory(), LockManager::isolated_memory());
    /// let _guard = Lock::new("order:42").manager(&one).acquire().await?;
    /// assert!(Lock::new("order:42").manager(&other).acquire().await.is_ok());
    /// # Ok(()) }
    /// ```
    pub fn isolated_memory() -> Self {
        Self::builder().isolated_memory()
    }

    /// Returns a builder for a manager with other settings than the default ones.
    ///
    /// ```
    /// # use lockmacro_runtime::LockManager;
    /// let locks = LockManager::builder().label("web-3").isolated_memory();
    /// ```
    pub fn builder() -> LockManagerBuilder {
        LockManagerBuilder::new()
    }
}
