//! Accessors of an error: its kind, the holder, and when to ask again.
//! Long, because its items have examples.

use std::fmt;
use std::time::Duration;

use super::LockError::{
    self, AccessDenied, Authentication, Busy, QueueFull, TimedOut, Unavailable,
};
use super::UnavailableReason;
use crate::value::holder::Holder;
use crate::value::key::LockKey;

impl LockError {
    /// The kind of an error, in one word.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            LockError::Busy { .. } => "busy",
            LockError::TimedOut { .. } => "timed_out",
            LockError::QueueFull { .. } => "queue_full",
            #[cfg(feature = "defer")]
            LockError::Deferred { .. } => "deferred",
            LockError::Lost(_) => "lost",
            LockError::Unavailable { .. } => "unavailable",
            LockError::KeyNotALock { .. } => "key_not_a_lock",
            LockError::AccessDenied { .. } => "access_denied",
            LockError::Authentication { .. } => "authentication",
            #[cfg(feature = "reuse")]
            LockError::ReusedKey { .. } => "reused_key",
            LockError::InvalidKey { .. } => "invalid_key",
            LockError::InvalidSetting { .. } => "invalid_setting",
            LockError::Nested { .. } => "nested",
            LockError::NotInstalled { .. } => "not_installed",
            LockError::NoRuntime { .. } => "no_runtime",
            LockError::ShutDown { .. } => "shut_down",
        }
    }

    /// Returns whether another holder has the lock: `Busy`, `TimedOut` and `QueueFull`. Every other
    /// error is a failure or a mistake, except `Deferred`.
    ///
    /// ```
    /// # use lockmacro_runtime::{Lock, LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// # let locks = LockManager::isolated_memory();
    /// let order = Lock::new("order:42").manager(&locks);
    /// let _guard = order.acquire().await?;
    /// assert!(order.acquire().await.is_err_and(|error| error.is_busy()));
    /// # Ok(()) }
    /// ```
    pub fn is_busy(&self) -> bool {
        self.busy_key().is_some()
    }

    /// Returns why the servers are [unavailable](LockError::Unavailable). Its text is a few words
    /// for a log or a label: "no answer in time". `None` for every other error.
    ///
    /// ```
    /// # use lockmacro_runtime::{LockError, LockManager, UnavailableReason};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// let down = LockManager::connect("redis://127.0.0.1:1").await;
    /// assert_eq!(down.unwrap_err().reason(), Some(UnavailableReason::Refused));
    /// assert_eq!(UnavailableReason::Refused.to_string(), "connection refused");
    /// # Ok(()) }
    /// ```
    pub fn reason(&self) -> Option<UnavailableReason> {
        match self {
            Unavailable { reason, .. } => Some(*reason),
            _ => None,
        }
    }

    /// Sets the message of a busy lock, like [`Lock::message`](crate::Lock::message). Any other
    /// error is returned unchanged, and `text` is not formatted.
    ///
    /// ```
    /// # use lockmacro_runtime::{Lock, LockManager, LockError};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// # let locks = LockManager::isolated_memory();
    /// # let _guard = Lock::new("order:42").manager(&locks).acquire().await?;
    /// # let id = 42;
    /// let busy = Lock::new(format!("order:{id}")).manager(&locks).acquire().await.unwrap_err();
    /// let busy = busy.with_message(format_args!("order {id} is being audited"));
    /// assert!(busy.to_string().starts_with("order 42 is being audited"));
    /// # Ok(()) }
    /// ```
    pub fn with_message(mut self, text: impl fmt::Display) -> Self {
        if let Busy { message, .. } | TimedOut { message, .. } = &mut self {
            *message = Some(text.to_string());
        }
        self
    }

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
    /// its server was down: see [`fail_fast`](crate::LockManagerBuilder::fail_fast). `None` for
    /// every other error that is not [busy](LockError::is_busy).
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use lockmacro_runtime::{Lock, LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// let locks = LockManager::isolated_memory();
    /// let lock = Lock::new("order:42").ttl(Duration::from_secs(300)).manager(&locks);
    /// let guard = lock.acquire().await?;
    /// let busy = lock.acquire().await.expect_err("it is held");
    /// assert_eq!(busy.retry_after_secs(), Some(5));
    /// assert!(busy.holder().free_within > Some(Duration::from_secs(290)));
    /// guard.release().await?;
    ///
    /// // The first hold was shorter than a second, so the estimate is the lower bound.
    /// let guard = lock.acquire().await?;
    /// let busy = lock.acquire().await.expect_err("it is held");
    /// assert_eq!(busy.retry_after(), Some(Duration::from_secs(1)));
    /// # guard.release().await }
    /// ```
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Busy { retry_after, .. }
            | TimedOut { retry_after, .. }
            | QueueFull { retry_after, .. } => Some(*retry_after),
            Unavailable { retry_after, .. } => *retry_after,
            _ => None,
        }
    }

    /// Returns the holder of a [`Busy`](LockError::Busy) or [`TimedOut`](LockError::TimedOut) lock,
    /// as far as it is known. For every other error all of its fields are `None`.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use lockmacro_runtime::{Lock, LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// let locks = LockManager::builder().label("web-3:4711").isolated_memory();
    /// let order = Lock::new("order:42").name("audit_order").manager(&locks);
    /// let _guard = order.clone().ttl(Duration::from_secs(300)).acquire().await?;
    /// let busy = order.acquire().await.expect_err("it is held");
    /// assert_eq!(busy.holder().owner.as_deref(), Some("web-3:4711:audit_order"));
    /// assert!(busy.holder().free_within > Some(Duration::from_secs(290)));
    /// # Ok(()) }
    /// ```
    pub fn holder(&self) -> &Holder {
        match self {
            Busy { holder, .. } | TimedOut { holder, .. } => holder,
            _ => &Holder::UNKNOWN,
        }
    }

    /// Returns the [`message`](crate::Lock::message) of the lock, without the holder that `Display`
    /// adds.
    ///
    /// ```
    /// # use lockmacro_runtime::{Lock, LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// let locks = LockManager::builder().label("web-3").isolated_memory();
    /// let lock = Lock::new("order:42").message("order 42 is being processed").manager(&locks);
    /// let guard = lock.acquire().await?;
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
            Busy { message, .. } | TimedOut { message, .. } => message.as_deref(),
            _ => None,
        }
    }

    /// Whether another try may succeed soon. Of a Redlock, a majority of nodes has to be left
    /// without the nodes that fail for good.
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            Unavailable { reason: UnavailableReason::NoQuorum, nodes, .. } => {
                let errors = nodes.iter().filter_map(|reply| reply.error.as_ref());
                2 * errors.filter(|error| !error.is_transient()).count() < nodes.len()
            }
            Unavailable { reason, .. } => *reason != UnavailableReason::NotAcknowledged,
            _ => false,
        }
    }

    /// Whether there is no fence left.
    pub(crate) fn is_of_fences(&self) -> bool {
        self.reason() == Some(UnavailableReason::FencesUsedUp)
    }

    /// Whether too few replicas have acknowledged the lock.
    pub(crate) fn is_of_replicas(&self) -> bool {
        self.reason() == Some(UnavailableReason::NotAcknowledged)
    }

    /// Whether it is about the servers rather than the key, so that many callers get it at once.
    pub(crate) fn is_of_servers(&self) -> bool {
        matches!(self, Unavailable { .. } | AccessDenied { .. } | Authentication { .. })
    }

    /// The key that somebody else holds.
    pub(crate) fn busy_key(&self) -> Option<&LockKey> {
        match self {
            Busy { key, .. } | TimedOut { key, .. } | QueueFull { key, .. } => Some(key),
            _ => None,
        }
    }
}
