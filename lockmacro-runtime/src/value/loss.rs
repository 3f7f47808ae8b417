//! The loss of a lock: its cause, and its effect on the body.

use crate::value::key::{Listed, LockKey};

/// The loss of a lock while its body ran. From then on another holder may have the lock. A lock on
/// several keys is lost with any of them.
///
/// ```
/// # use std::time::Duration;
/// # use lockmacro_runtime::{Lock, LockError, LockManager};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
/// # let locks = LockManager::isolated_memory();
/// let order = Lock::new("order:42").ttl(Duration::from_millis(50)).manager(&locks);
/// let body = async {
///     tokio::time::sleep(Duration::from_secs(60)).await;
///     Ok::<_, LockError>(())
/// };
/// let Err(LockError::Lost(lost)) = order.run(body).await else { panic!("too long") };
/// assert_eq!(lost.key().as_str(), "order:42");
/// assert_eq!(lost.cause(), lockmacro_runtime::LossCause::Expired);
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the lock `{}` was lost: {cause}", Listed(.keys))]
pub struct Lost {
    keys: Vec<LockKey>,
    cause: LossCause,
}

impl Lost {
    /// Makes the loss of a lock on one key, for tests of code that handles it.
    ///
    /// ```
    /// use lockmacro_runtime::{LockError, LossCause, Lost};
    ///
    /// let error = LockError::from(Lost::new("order:42", LossCause::Expired));
    /// assert!(error.to_string().starts_with("the lock `order:42` was lost"));
    /// ```
    pub fn new(key: impl Into<LockKey>, cause: LossCause) -> Self {
        Self { keys: vec![key.into()], cause }
    }

    /// The loss of a lock on any number of keys.
    pub(crate) fn of(keys: Listed<'_>, cause: LossCause) -> Self {
        Self { keys: keys.0.to_vec(), cause }
    }

    /// Returns the key that was held; the first one of several.
    pub fn key(&self) -> &LockKey {
        &self.keys[0]
    }

    /// Returns every key that was held.
    pub fn keys(&self) -> impl Iterator<Item = &LockKey> {
        self.keys.iter()
    }

    /// Returns the cause of the loss.
    pub fn cause(&self) -> LossCause {
        self.cause
    }
}

/// The cause of a loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum LossCause {
    /// The body took longer than the ttl of the lock, or its `max_hold`.
    #[error("it was held for longer than its ttl or `max_hold`")]
    Expired,
    /// The lease could not be renewed in time.
    #[error("the lease could not be renewed in time")]
    NotRenewed,
    /// The server no longer has this holder's token: another client deleted or overwrote the key,
    /// or the server came back without it.
    #[error("its key is gone from the server, or has another value")]
    Taken,
    /// The lock was released, and only a joined guard is left.
    #[error("it was already released")]
    Released,
}

impl LossCause {
    /// The cause in one word, for metrics.
    pub(crate) fn label(self) -> &'static str {
        match self {
            LossCause::Expired => "expired",
            LossCause::NotRenewed => "not_renewed",
            LossCause::Taken => "taken",
            LossCause::Released => "released",
        }
    }
}

/// The effect of a loss on the body.
///
/// ```
/// # use std::time::Duration;
/// # use lockmacro_runtime::{Lock, LockError, LockManager, OnLost};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
/// # let locks = LockManager::isolated_memory();
/// let order = Lock::new("order:42").ttl(Duration::from_millis(50)).manager(&locks);
/// let late = async {
///     tokio::time::sleep(Duration::from_millis(80)).await;
///     Ok::<_, LockError>("done")
/// };
/// assert_eq!(order.on_lost(OnLost::Finish).run(late).await?, "done");
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum OnLost {
    /// An async body is dropped at its next await, and the caller gets
    /// [`LockError::Lost`](crate::LockError::Lost). A blocking body cannot be stopped: it is
    /// treated as with `Error`.
    #[default]
    Cancel,
    /// The body runs to its end. Then the caller gets [`LockError::Lost`](crate::LockError::Lost)
    /// rather than the body's value. A body's own error is kept.
    Error,
    /// The body runs to its end, and its value is returned. The loss is logged and counted.
    Finish,
}
