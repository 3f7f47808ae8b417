//! The settings that hold for every lock of a manager.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::manager::builder::LockManagerBuilder;

impl LockManagerBuilder {
    /// Sets the lease of a lock that names no [`ttl`](crate::Lock::ttl), 30 s by default. It is
    /// renewed while the lock is held, so it is how long a lock outlives a process that was killed.
    ///
    /// 50 ms to 24 h in whole milliseconds, and at most the
    /// [`longest_ttl`](LockManagerBuilder::longest_ttl) of a Redlock; any other is
    /// [`LockError::InvalidSetting`] when the manager is connected. A URL says it by
    /// `?default_ttl=1m`, and goes before this. The attribute does not know this setting: it checks
    /// a `max_hold` or `min_hold` that stands without a `ttl` against 30 s.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use lockmacro_runtime::{Lock, LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// let builder = LockManager::builder().default_ttl(Duration::from_secs(60));
    /// let locks = builder.connect("memory://").await?;
    /// let guard = Lock::new("report").manager(&locks).acquire().await?;
    /// assert!(guard.remaining() > Duration::from_secs(50));
    /// # guard.release().await }
    /// ```
    pub fn default_ttl(mut self, ttl: Duration) -> Self {
        self.defaults.set_ttl(Some(ttl));
        self
    }

    /// Sets how long a lock that names no [`wait`](crate::Lock::wait) waits in line, not at all by
    /// default. At most 24 h; a longer one is [`LockError::InvalidSetting`] when the manager is
    /// connected. A URL says it by `?default_wait=2s`, and goes before this.
    ///
    /// A lock that is to be asked for once all the same says so: `wait = never`, or
    /// `.wait(Duration::ZERO)`. Under `on_busy = skip` this default does not apply: a scheduled job
    /// that another machine does right now is to be left out, and not to be done once more after
    /// it.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use lockmacro_runtime::{Lock, LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// let builder = LockManager::builder().default_wait(Duration::from_millis(20));
    /// let locks = builder.memory();
    /// let held = Lock::new("report").manager(&locks).acquire().await?;
    /// let waited = Lock::new("report").manager(&locks).acquire().await;
    /// assert!(matches!(waited, Err(LockError::TimedOut { .. })));
    /// let asked = Lock::new("report").wait(Duration::ZERO).manager(&locks).acquire().await;
    /// assert!(matches!(asked, Err(LockError::Busy { .. })));
    /// # held.release().await }
    /// ```
    pub fn default_wait(mut self, wait: Duration) -> Self {
        self.defaults.set_wait(Some(wait));
        self
    }

    /// Puts a prefix such as `shop:` before every key that this manager locks, so that several
    /// services share a server.
    ///
    /// It is part of the key everywhere: on the server, in errors, logs and the template of
    /// metrics, in [`LockGuard::key`](crate::LockGuard::key), and before the names of deferred
    /// functions. Code names keys without it, also in [`LockGuard::of`](crate::LockGuard::of);
    /// whoever looks from outside (the tool `lockmacro`, `LockManager::held`) names the whole key.
    /// At most 256 bytes, without `{` and `}`, which would move every key to one slot of a cluster,
    /// and not beginning with `lm1:`; any other is [`LockError::InvalidSetting`] when the manager
    /// is connected. The key's limit of 1,024 bytes counts it. A URL says it by
    /// `?key_prefix=shop:`, and goes before this.
    ///
    /// ```
    /// # use lockmacro_runtime::{Lock, LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// let locks = LockManager::builder().key_prefix("shop:").connect("memory://").await?;
    /// let guard = Lock::new("order:42").manager(&locks).acquire().await?;
    /// assert_eq!(guard.key().as_str(), "shop:order:42");
    /// # guard.release().await }
    /// ```
    pub fn key_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.defaults.set_prefix(prefix.into());
        self
    }
}

impl LockManagerBuilder {
    /// Sets the bounds of [`LockError::retry_after`], 1 s to 30 s by default: no caller is told to
    /// ask again sooner or later than that.
    ///
    /// A range that ends before it begins is [`LockError::InvalidSetting`] when the manager is
    /// connected.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use lockmacro_runtime::{Lock, LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// let at_most = Duration::from_secs(2);
    /// let locks = LockManager::builder().retry_after(Duration::ZERO..=at_most).memory();
    /// let lock = Lock::new("report").manager(&locks);
    /// let held = lock.clone().acquire().await?;
    /// let busy = lock.acquire().await.expect_err("it is held");
    /// assert_eq!(busy.retry_after(), Some(at_most));
    /// # held.release().await }
    /// ```
    pub fn retry_after(mut self, bounds: RangeInclusive<Duration>) -> Self {
        let (least, most) = bounds.into_inner();
        if least <= most {
            self.defaults.retry_after = Some((least, most));
        } else {
            self.defaults.refuse("retry_after", "write the shorter time first");
        }
        self
    }
}
