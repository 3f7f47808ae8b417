//! Accessors of a busy error: the holder, and when to ask again.

use std::time::{Duration, SystemTime};

use crate::value::busy_text::whole_seconds;
use crate::value::error::LockError;
use crate::value::holder::Holder;

impl LockError {
    /// Suggests when to ask again, for a `Retry-After` header.
    ///
    /// The suggestion is an estimate:
    ///
    /// - It starts from the usual hold time of the key's template: the third quartile of the latest
    ///   eight holds of this process, or 5 s while there was none.
    /// - That time counts once for the holder, and once for every waiter ahead of the caller.
    /// - Where no other waiter is known, it is at most the rest of the holder's lease.
    /// - It is always between 1 s and 30 s, or between the
    ///   [bounds of the manager](crate::LockManagerBuilder::retry_after).
    ///
    /// It is a second for [`Unavailable`](LockError::Unavailable) where the call failed at once, as
    /// its server was lost: see [`fail_fast`](crate::LockManagerBuilder::fail_fast). `None` for
    /// every other error that is not [busy](LockError::is_busy).
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use lockmacro_runtime::{Lock, LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// let locks = LockManager::memory();
    /// let lock = Lock::new("order:42").ttl(Duration::from_secs(300)).manager(&locks);
    /// let guard = lock.clone().acquire().await?;
    /// let busy = lock.clone().acquire().await.expect_err("it is held");
    /// assert_eq!(busy.retry_after_secs(), Some(5));
    /// assert!(busy.free_within() > Some(Duration::from_secs(290)));
    /// guard.release().await?;
    ///
    /// // The first hold was shorter than a second, so the estimate is the lower bound.
    /// let guard = lock.clone().acquire().await?;
    /// let busy = lock.acquire().await.expect_err("it is held");
    /// assert_eq!(busy.retry_after(), Some(Duration::from_secs(1)));
    /// # guard.release().await }
    /// ```
    pub fn retry_after(&self) -> Option<Duration> {
        use LockError::{Busy, QueueFull, TimedOut};
        match self {
            Busy { retry_after, .. }
            | TimedOut { retry_after, .. }
            | QueueFull { retry_after, .. } => Some(*retry_after),
            LockError::Unavailable { retry_after, .. } => *retry_after,
            _ => None,
        }
    }

    /// Returns [`retry_after`](LockError::retry_after) in whole seconds, rounded up, as the header
    /// `Retry-After` needs it.
    ///
    /// ```
    /// # use lockmacro_runtime::{Lock, LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// # let locks = LockManager::memory();
    /// let order = Lock::new("order:42").manager(&locks);
    /// let _guard = order.clone().acquire().await?;
    /// let busy = order.acquire().await.expect_err("it is held");
    /// let header = busy.retry_after_secs().map(|secs| ("Retry-After", secs.to_string()));
    /// assert_eq!(header, Some(("Retry-After", "5".to_owned())));
    /// # Ok(()) }
    /// ```
    pub fn retry_after_secs(&self) -> Option<u64> {
        self.retry_after().map(whole_seconds)
    }

    /// Returns the rest of the holder's lease. Unless the holder renews it, the lock is free by
    /// then. For an answer to a client use [`retry_after`](LockError::retry_after).
    ///
    /// `None` for every error but [`Busy`](LockError::Busy) and [`TimedOut`](LockError::TimedOut),
    /// for a foreign lock without an expiry, and where nobody can have a majority of a Redlock.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use lockmacro_runtime::{Lock, LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// # let locks = LockManager::memory();
    /// let order = Lock::new("order:42").ttl(Duration::from_secs(300)).manager(&locks);
    /// let _guard = order.clone().acquire().await?;
    /// let busy = order.acquire().await.expect_err("it is held");
    /// assert!(busy.free_within() > Some(Duration::from_secs(290)));
    /// # Ok(()) }
    /// ```
    pub fn free_within(&self) -> Option<Duration> {
        self.holder()?.free_within
    }

    /// Returns the holder: the label of its manager, by default `host:pid`, and the name of its
    /// function, as in `web-3:4711:audit_order`.
    ///
    /// `None` for every error but [`Busy`](LockError::Busy) and [`TimedOut`](LockError::TimedOut),
    /// for a foreign client, and where nobody can have a majority of a Redlock.
    ///
    /// ```
    /// # use lockmacro_runtime::{Lock, LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// let locks = LockManager::builder().label("web-3:4711").memory();
    /// let order = Lock::new("order:42").name("audit_order").manager(&locks);
    /// let _guard = order.clone().acquire().await?;
    /// let busy = order.acquire().await.expect_err("it is held");
    /// assert_eq!(busy.owner(), Some("web-3:4711:audit_order"));
    /// # Ok(()) }
    /// ```
    pub fn owner(&self) -> Option<&str> {
        self.holder()?.owner.as_deref()
    }

    /// Returns the [note](crate::Lock::holder_note) of the holder. Characters that could act on a
    /// terminal are escaped; HTML is not.
    ///
    /// ```
    /// # use lockmacro_runtime::{Lock, LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// # let locks = LockManager::memory();
    /// let order = Lock::new("order:42").holder_note("Ann Example").manager(&locks);
    /// let _guard = order.clone().acquire().await?;
    /// let busy = order.acquire().await.expect_err("it is held");
    /// assert_eq!(busy.holder_note(), Some("Ann Example"));
    /// # Ok(()) }
    /// ```
    pub fn holder_note(&self) -> Option<&str> {
        self.holder()?.note.as_deref()
    }

    /// Returns since when the lock is held, by the clock of the holder's machine and to a second.
    ///
    /// `None` where the holder or the time is not known: for every error but
    /// [`Busy`](LockError::Busy) and [`TimedOut`](LockError::TimedOut), for a foreign client, where
    /// nobody can have a majority of a Redlock, and for a holder that was ready to wait, as its
    /// token was made before the grant.
    ///
    /// ```
    /// # use lockmacro_runtime::{Lock, LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// # let locks = LockManager::memory();
    /// let order = Lock::new("order:42").manager(&locks);
    /// let _guard = order.clone().acquire().await?;
    /// let busy = order.acquire().await.expect_err("it is held");
    /// assert!(busy.held_since().is_some());
    /// # Ok(()) }
    /// ```
    pub fn held_since(&self) -> Option<SystemTime> {
        self.holder()?.since
    }

    /// Returns the [`message`](crate::Lock::message) of the lock, without the holder that `Display`
    /// adds.
    ///
    /// ```
    /// # use lockmacro_runtime::{Lock, LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// let locks = LockManager::builder().label("web-3").memory();
    /// let lock = Lock::new("order:42").message("order 42 is being processed").manager(&locks);
    /// let guard = lock.clone().acquire().await?;
    /// let busy = lock.acquire().await.expect_err("it is held");
    /// assert_eq!(busy.message(), Some("order 42 is being processed"));
    /// assert_eq!(
    ///     busy.to_string(),
    ///     "order 42 is being processed (locked by web-3: try again in 5s)"
    /// );
    /// # guard.release().await }
    /// ```
    pub fn message(&self) -> Option<&str> {
        match self {
            LockError::Busy { message, .. } | LockError::TimedOut { message, .. } => {
                message.as_deref()
            }
            _ => None,
        }
    }

    fn holder(&self) -> Option<&Holder> {
        match self {
            LockError::Busy { holder, .. } | LockError::TimedOut { holder, .. } => Some(holder),
            _ => None,
        }
    }
}
