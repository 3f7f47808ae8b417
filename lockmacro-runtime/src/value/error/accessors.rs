//! Accessors of an error: its kind, the holder, when to ask again, and the answer of a service.
//! Long, because its items have examples.

use std::fmt;
use std::time::Duration;

use super::LockError::{
    self, AccessDenied, Authentication, Busy, QueueFull, TimedOut, Unavailable,
};
use super::{Unavailability, whole_seconds};
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
            LockError::NotInstalled => "not_installed",
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
    /// let _guard = order.clone().acquire().await?;
    /// assert!(order.acquire().await.is_err_and(|error| error.is_busy()));
    /// # Ok(()) }
    /// ```
    pub fn is_busy(&self) -> bool {
        self.busy_key().is_some()
    }

    /// Returns why the servers are [unavailable](LockError::Unavailable), in a few words for a
    /// log or a label: "no answer in time". A server's own text is not in it. `None` for every
    /// other error.
    ///
    /// ```
    /// # use lockmacro_runtime::{LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// let down = LockManager::connect("redis://127.0.0.1:1").await;
    /// assert!(down.is_err_and(|error| error.reason() == Some("connection refused")));
    /// # Ok(()) }
    /// ```
    pub fn reason(&self) -> Option<&'static str> {
        self.unavailability().map(Unavailability::text)
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
    /// let guard = lock.clone().acquire().await?;
    /// let busy = lock.clone().acquire().await.expect_err("it is held");
    /// assert_eq!(busy.retry_after_secs(), Some(5));
    /// assert!(busy.holder().free_within > Some(Duration::from_secs(290)));
    /// guard.release().await?;
    ///
    /// // The first hold was shorter than a second, so the estimate is the lower bound.
    /// let guard = lock.clone().acquire().await?;
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

    /// Returns [`retry_after`](LockError::retry_after) in whole seconds, rounded up, as the header
    /// `Retry-After` needs it.
    ///
    /// ```
    /// # use lockmacro_runtime::{Lock, LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// # let locks = LockManager::isolated_memory();
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
            Busy { message, .. } | TimedOut { message, .. } => message.as_deref(),
            _ => None,
        }
    }

    /// Returns the status of an HTTP response that reports this error.
    ///
    /// | error | status |
    /// |---|---|
    /// | [busy](LockError::is_busy): `Busy`, `TimedOut`, `QueueFull` | 423 Locked |
    /// | `Deferred`: the call is stored | 202 Accepted |
    /// | `ReusedKey`: one idempotency key for two requests | 422 Unprocessable Content |
    /// | `InvalidKey`: keys are made of what the client sends | 400 Bad Request |
    /// | [unavailable](LockError::Unavailable), and `ShutDown` | 503 Service Unavailable |
    /// | all others, `Lost` among them | 500 Internal Server Error |
    ///
    /// Send [`retry_after_secs`](LockError::retry_after_secs) in the header `Retry-After`, and
    /// [`public_message`](LockError::public_message) in the body.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use lockmacro_runtime::{Holder, LockError};
    /// let second = Duration::from_secs(1);
    /// assert_eq!(LockError::busy("order:42", Holder::new("web-3"), second).http_status(), 423);
    /// assert_eq!(LockError::unavailable("").http_status(), 503);
    /// assert_eq!(LockError::NotInstalled.http_status(), 500);
    /// ```
    pub fn http_status(&self) -> u16 {
        match self {
            _ if self.is_busy() => 423,
            Unavailable { .. } | LockError::ShutDown { .. } => 503,
            LockError::InvalidKey { .. } => 400,
            #[cfg(feature = "defer")]
            LockError::Deferred { .. } => 202,
            #[cfg(feature = "reuse")]
            LockError::ReusedKey { .. } => 422,
            _ => 500,
        }
    }

    /// Returns a sentence for the client of a service: the [`message`](LockError::message) of the
    /// lock, or else a general one. It is never empty, and names no key, holder, server or setting.
    /// `Display` names them, and is for logs.
    ///
    /// A `message` is returned as it was written, with the values of its placeholders.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use lockmacro_runtime::{Holder, LockError};
    /// let busy = LockError::busy("order:42", Holder::new("web-3"), Duration::from_secs(1));
    /// assert_eq!(busy.public_message(), "somebody else is using this: try again later");
    /// let busy = busy.with_message("order 42 is being audited");
    /// assert_eq!(busy.public_message(), "order 42 is being audited");
    /// ```
    pub fn public_message(&self) -> &str {
        if let Some(message) = self.message().filter(|message| !message.trim().is_empty()) {
            return message;
        }
        match self {
            QueueFull { .. } => "too many others wait for this: try again later",
            LockError::Lost(_) => "this was interrupted, and may be done in part: check it first",
            _ => match self.http_status() {
                202 => "this was accepted, and is done later",
                400 => "this request is not valid",
                422 => "this was asked for before with other content",
                423 => "somebody else is using this: try again later",
                503 => "this service is not available: try again later",
                _ => "an internal error occurred",
            },
        }
    }

    /// Whether another try may succeed soon. Of a Redlock, a majority of nodes has to be left
    /// without the nodes that fail for good.
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            Unavailable { reason: Unavailability::NoQuorum, nodes, .. } => {
                let errors = nodes.iter().filter_map(|reply| reply.error.as_ref());
                2 * errors.filter(|error| !error.is_transient()).count() < nodes.len()
            }
            Unavailable { reason, .. } => *reason != Unavailability::NotAcknowledged,
            _ => false,
        }
    }

    /// Whether there is no fence left.
    pub(crate) fn is_of_fences(&self) -> bool {
        self.unavailability() == Some(Unavailability::FencesUsedUp)
    }

    /// Whether too few replicas have acknowledged the lock.
    pub(crate) fn is_of_replicas(&self) -> bool {
        self.unavailability() == Some(Unavailability::NotAcknowledged)
    }

    pub(crate) fn unavailability(&self) -> Option<Unavailability> {
        match self {
            Unavailable { reason, .. } => Some(*reason),
            _ => None,
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::loss::{LossCause, Lost};

    /// One error of each kind, each made of `secret`.
    fn errors() -> Vec<(u16, LockError)> {
        let secret = || "secret".to_owned();
        let time = Duration::from_secs(1);
        let holder = || Holder::new("secret");
        let at_server = Some("secret".into());
        let unavailable = LockError::unavailable_at(at_server, Unavailability::Timeout, "secret");
        vec![
            (423, LockError::busy("secret", holder(), time)),
            (423, LockError::busy("secret", holder(), time).with_message(" ")),
            (
                423,
                LockError::TimedOut {
                    key: "secret".into(),
                    holder: Box::new(holder()),
                    retry_after: time,
                    rank: 7,
                    message: None,
                },
            ),
            (423, LockError::QueueFull { key: "secret".into(), retry_after: time }),
            #[cfg(feature = "reuse")]
            (422, LockError::ReusedKey { key: "secret".into() }),
            #[cfg(feature = "defer")]
            (202, LockError::Deferred { key: "secret".into(), id: "secret".into(), due: time }),
            (503, unavailable),
            (503, LockError::no_quorum(Box::default())),
            (503, LockError::because(Unavailability::ConnectionLimit, "secret")),
            (503, LockError::because(Unavailability::NotAcknowledged, "secret")),
            (503, LockError::SHUT_DOWN),
            (500, LockError::NO_RUNTIME),
            (400, LockError::InvalidKey { detail: secret() }),
            (500, Lost::new("secret", LossCause::Expired).into()),
            (500, LockError::access_denied("secret")),
            (500, LockError::invalid_url("secret")),
            (500, LockError::KeyNotALock { key: "secret".into() }),
            (500, LockError::NotInstalled),
        ]
    }

    #[test]
    fn every_error_has_a_status_and_a_sentence_that_names_nothing() {
        for (status, error) in errors() {
            assert_eq!(error.http_status(), status, "{error:?}");
            let text = error.public_message();
            assert!(!text.trim().is_empty() && !text.contains("secret"), "{text}");
            let names = ["lock", "redis", "server", "key"];
            assert!(!names.iter().any(|name| text.contains(name)), "{text}");
        }
    }
}
