//! Kinds of errors: busy, unavailable, lost, transient; and the message of a busy one.

use std::fmt;

use crate::value::error::LockError;
#[cfg(feature = "defer")]
use crate::value::key::LockKey;
use crate::value::unavailability::Unavailability;

impl LockError {
    /// Returns whether another holder has the lock: `Busy`, `TimedOut` and `QueueFull`. Every other
    /// error is a failure or a mistake, except `Deferred`.
    ///
    /// ```
    /// # use lockmacro_runtime::{Lock, LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// # let locks = LockManager::memory();
    /// let order = Lock::new("order:42").manager(&locks);
    /// let _guard = order.clone().acquire().await?;
    /// assert!(order.acquire().await.is_err_and(|error| error.is_busy()));
    /// # Ok(()) }
    /// ```
    pub fn is_busy(&self) -> bool {
        use LockError::{Busy, QueueFull, TimedOut};
        matches!(self, Busy { .. } | TimedOut { .. } | QueueFull { .. })
    }

    /// Returns whether the servers failed: `Unavailable`, `NoQuorum`, `InsufficientReplicas` and
    /// `ConnectionLimit`. Another try later may succeed.
    ///
    /// ```
    /// # use lockmacro_runtime::{LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// let down = LockManager::connect("redis://127.0.0.1:1").await;
    /// assert!(down.is_err_and(|error| error.is_unavailable() && !error.is_busy()));
    /// # Ok(()) }
    /// ```
    pub fn is_unavailable(&self) -> bool {
        use LockError::{ConnectionLimit, InsufficientReplicas, NoQuorum, Unavailable};
        matches!(
            self,
            Unavailable { .. }
                | NoQuorum { .. }
                | InsufficientReplicas { .. }
                | ConnectionLimit { .. }
        )
    }

    /// Returns whether the lock was lost while the body ran: [`Lost`](LockError::Lost). The work
    /// that the body has done stands.
    ///
    /// ```
    /// # use lockmacro_runtime::{LockError, LossCause, Lost};
    /// let lost = LockError::from(Lost::new("order:42", LossCause::Expired));
    /// assert!(lost.is_lost() && !lost.is_busy() && !lost.is_unavailable());
    /// ```
    pub fn is_lost(&self) -> bool {
        matches!(self, LockError::Lost(_))
    }

    /// Sets the message of a busy lock, like [`Lock::message`](crate::Lock::message). Any other
    /// error is returned unchanged, and `text` is not formatted.
    ///
    /// ```
    /// # use lockmacro_runtime::{Lock, LockManager, LockError};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// # let locks = LockManager::memory();
    /// # let _guard = Lock::new("order:42").manager(&locks).acquire().await?;
    /// # let id = 42;
    /// let busy = Lock::new(format!("order:{id}")).manager(&locks).acquire().await.unwrap_err();
    /// let busy = busy.with_message(format_args!("order {id} is being audited"));
    /// assert!(busy.to_string().starts_with("order 42 is being audited"));
    /// # Ok(()) }
    /// ```
    pub fn with_message(mut self, text: impl fmt::Display) -> Self {
        if let LockError::Busy { message, .. } | LockError::TimedOut { message, .. } = &mut self {
            *message = Some(text.to_string());
        }
        self
    }

    /// Whether another try may succeed soon. Of a Redlock, a majority of nodes has to be left
    /// without the nodes that fail for good.
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            LockError::Unavailable { .. } | LockError::ConnectionLimit { .. } => true,
            LockError::NoQuorum { nodes } => {
                let errors = nodes.iter().filter_map(|reply| reply.error.as_ref());
                2 * errors.filter(|error| !error.is_transient()).count() < nodes.len()
            }
            _ => false,
        }
    }

    /// Whether there is no fence left.
    pub(crate) fn is_of_fences(&self) -> bool {
        let used_up = Unavailability::FencesUsedUp;
        matches!(self, LockError::Unavailable { reason, .. } if *reason == used_up)
    }

    /// Whether it is about the servers rather than the key, so that many callers get it at once.
    pub(crate) fn is_of_servers(&self) -> bool {
        use LockError::{AccessDenied, Authentication};
        self.is_unavailable() || matches!(self, AccessDenied { .. } | Authentication { .. })
    }

    /// The key that somebody else holds.
    #[cfg(feature = "defer")]
    pub(crate) fn busy_key(&self) -> Option<&LockKey> {
        use LockError::{Busy, QueueFull, TimedOut};
        match self {
            Busy { key, .. } | TimedOut { key, .. } | QueueFull { key, .. } => Some(key),
            _ => None,
        }
    }
}
