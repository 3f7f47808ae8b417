//! The settings that hold for every lock of a manager.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::manager::builder::LockManagerBuilder;

impl LockManagerBuilder {
    /// Sets the lease of a lock without a [`ttl`](crate::Lock::ttl), by default 30 s. The lease is
    /// renewed while the lock is held, so this is how long a lock outlives a process that was
    /// killed.
    ///
    /// 50 ms to 24 h, in whole milliseconds, and at most the `longest_ttl` of a
    /// [Redlock](crate::guide::redis#redlock). With any other value
    /// connecting fails with [`LockError::InvalidSetting`](crate::LockError::InvalidSetting). A URL
    /// sets the same with `?default_ttl=1m`, and takes precedence over this method. The attribute
    /// does not know this setting: it checks a `max_hold` or `min_hold` without a `ttl` against 30
    /// s.
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

    /// Sets how long a lock without a [`wait`](crate::Lock::wait) waits, by default not at all. At
    /// most 24 h; with a longer wait connecting fails with
    /// [`LockError::InvalidSetting`](crate::LockError::InvalidSetting). A URL sets the same with
    /// `?default_wait=2s`, and takes precedence over this method.
    ///
    /// `wait = never` or `.wait(Duration::ZERO)` makes a single lock not wait. The default does not
    /// apply to `on_busy = skip`: a scheduled job that another machine runs right now should be
    /// skipped, and not run once more after it.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use lockmacro_runtime::{Lock, LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// let builder = LockManager::builder().default_wait(Duration::from_millis(20));
    /// let locks = builder.isolated_memory();
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

    /// Sets the turn: for how long a lock is passed on between the tasks and threads of this
    /// process, without a command, before other processes have it.
    ///
    /// By default a turn lasts for ten round trips to the server, at least 20 ms and at most
    /// 100 ms. Zero hands every release to the store. At most 1 s; with a longer turn connecting
    /// fails with [`LockError::InvalidSetting`](crate::LockError::InvalidSetting). A URL sets the
    /// same with `?turn=20ms`, and takes precedence over this method.
    ///
    /// A turn begins with a grant of the store. The first holder may hold the lock for as long as
    /// its lease lasts; after the turn's time the lock is not passed on any more. So a longer turn
    /// makes a hot key faster, and callers of other processes wait longer.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use lockmacro_runtime::{LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// let builder = LockManager::builder().turn(Duration::from_millis(20));
    /// let locks = builder.connect("memory://").await?;
    /// let refused = LockManager::connect("memory://?turn=2s").await;
    /// assert!(matches!(refused, Err(LockError::InvalidSetting { setting: "turn", .. })));
    /// # drop(locks); Ok(()) }
    /// ```
    pub fn turn(mut self, turn: Duration) -> Self {
        self.defaults.set_turn(Some(turn));
        self
    }

    /// Sets a prefix such as `shop:` of every key that this manager locks, so that several services
    /// can share a server.
    ///
    /// - The prefix is part of the key on the server, in errors, in logs, in the template of
    ///   metrics, in [`LockGuard::key`](crate::LockGuard::key), and in the names of deferred
    ///   functions.
    /// - Code names keys without the prefix, also in [`guard_of`](crate::LockManager::guard_of).
    ///   Inspection (the tool `lockmacro`, `LockManager::inspector`) takes the whole key.
    /// - It has at most 256 bytes, which count for the key's limit of 1,024 bytes. It contains no
    ///   `{` and `}`, which would move every key to one slot of a cluster, and does not begin with
    ///   `lm1:`. With any other prefix connecting fails with
    ///   [`LockError::InvalidSetting`](crate::LockError::InvalidSetting).
    ///
    /// A URL sets the same with `?key_prefix=shop:`, and takes precedence over this method.
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

    /// Sets the bounds of [`LockError::retry_after`](crate::LockError::retry_after), by default 1 s
    /// to 30 s.
    ///
    /// With a range that ends before it begins, connecting fails with
    /// [`LockError::InvalidSetting`](crate::LockError::InvalidSetting).
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use lockmacro_runtime::{Lock, LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// let at_most = Duration::from_secs(2);
    /// let locks = LockManager::builder().retry_after(Duration::ZERO..=at_most).isolated_memory();
    /// let lock = Lock::new("report").manager(&locks);
    /// let held = lock.acquire().await?;
    /// let busy = lock.acquire().await.expect_err("it is held");
    /// assert_eq!(busy.retry_after(), Some(at_most));
    /// # held.release().await }
    /// ```
    pub fn retry_after(mut self, bounds: RangeInclusive<Duration>) -> Self {
        let (least, most) = bounds.into_inner();
        self.defaults.set_retry_after(least, most);
        self
    }
}
