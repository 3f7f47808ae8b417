//! Constructors of errors, for a queue of one's own and for tests: one for each thing that a caller
//! can do about an error. Errors without fields need none.

use std::time::Duration;

use super::{LockError, Unavailability};
use crate::value::holder::Holder;
use crate::value::key::LockKey;

impl LockError {
    /// Makes a [`Busy`](LockError::Busy) error, for tests of code that handles it. Give it a
    /// message with [`with_message`](LockError::with_message).
    ///
    /// ```
    /// # use std::time::Duration;
    /// use lockmacro_runtime::{Holder, LockError};
    ///
    /// fn status(error: &LockError) -> u16 {
    ///     if error.is_busy() { 423 } else { 500 }
    /// }
    ///
    /// let busy = LockError::busy("order:42", Holder::new("web-3:audit"), Duration::from_secs(5));
    /// assert_eq!(status(&busy), 423);
    /// assert_eq!(busy.owner(), Some("web-3:audit"));
    /// ```
    pub fn busy(key: impl Into<LockKey>, holder: Holder, retry_after: Duration) -> Self {
        let (key, holder) = (key.into(), Box::new(holder));
        LockError::Busy { key, holder, retry_after, message: None }
    }

    /// Makes a [`TimedOut`](LockError::TimedOut) error, for tests of code that handles it. `rank`
    /// is the number of waiters ahead of the caller. Give it a message with
    /// [`with_message`](LockError::with_message).
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use lockmacro_runtime::{Holder, LockError};
    /// let second = Duration::from_secs(1);
    /// let late = LockError::timed_out("order:42", Holder::new("web-3"), second, 7);
    /// assert!(late.is_busy() && matches!(late, LockError::TimedOut { rank: 7, .. }));
    /// ```
    pub fn timed_out(
        key: impl Into<LockKey>,
        holder: Holder,
        retry_after: Duration,
        rank: u32,
    ) -> Self {
        let (key, holder) = (key.into(), Box::new(holder));
        LockError::TimedOut { key, holder, retry_after, rank, message: None }
    }

    /// Makes a [`QueueFull`](LockError::QueueFull) error, for tests of code that handles it.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use lockmacro_runtime::LockError;
    /// let full = LockError::queue_full("order:42", Duration::from_secs(30));
    /// assert_eq!(full.retry_after_secs(), Some(30));
    /// ```
    pub fn queue_full(key: impl Into<LockKey>, retry_after: Duration) -> Self {
        LockError::QueueFull { key: key.into(), retry_after }
    }

    /// Makes a [`Deferred`](LockError::Deferred) error, for tests of code that handles it.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use lockmacro_runtime::LockError;
    /// let stored = LockError::deferred("order:42", "7f3a", Duration::from_secs(30));
    /// let LockError::Deferred { id, .. } = stored else { panic!("{stored}") };
    /// assert_eq!(&*id, "7f3a");
    /// ```
    #[cfg(feature = "defer")]
    pub fn deferred(key: impl Into<LockKey>, id: impl Into<Box<str>>, due: Duration) -> Self {
        LockError::Deferred { key: key.into(), id: id.into(), due }
    }

    /// Makes an [`Unavailable`](LockError::Unavailable) error, for your own queue of deferred
    /// calls, and for tests. The detail is shown to users and in logs: do not put a password into
    /// it.
    ///
    /// ```
    /// # use lockmacro_runtime::{LockError, Unavailability};
    /// let error = LockError::unavailable(Unavailability::Refused, "the queue is down");
    /// assert!(error.is_unavailable());
    /// ```
    pub fn unavailable(reason: Unavailability, detail: impl Into<String>) -> Self {
        Self::unavailable_at(None, reason, detail)
    }

    /// The same for a failure of a server, which `Display` names.
    pub(crate) fn unavailable_at(
        server: Option<Box<str>>,
        reason: Unavailability,
        detail: impl Into<String>,
    ) -> Self {
        LockError::Unavailable { reason, detail: detail.into(), server, retry_after: None }
    }

    /// Makes an [`AccessDenied`](LockError::AccessDenied) error, for your own queue of deferred
    /// calls, and for tests. The detail names the rights that the user lacks.
    ///
    /// ```
    /// # use lockmacro_runtime::LockError;
    /// let denied = LockError::access_denied("the user may not write the table `calls`");
    /// assert!(!denied.is_unavailable(), "another try does not help");
    /// ```
    pub fn access_denied(detail: impl Into<String>) -> Self {
        LockError::AccessDenied { detail: detail.into(), server: None, keys: None }
    }

    /// Makes an [`InvalidUrl`](LockError::InvalidUrl) error.
    pub(crate) fn invalid_url(detail: impl Into<String>) -> Self {
        LockError::InvalidUrl { detail: detail.into() }
    }
}
