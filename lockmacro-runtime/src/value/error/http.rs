//! What the handler of a web service needs of an error.

use super::LockError::{self, Busy, QueueFull, TimedOut, Unavailable};
use super::whole_seconds;

/// For the handler of a [web service](LockError#in-a-web-service).
impl LockError {
    /// Returns the status of an HTTP response that reports this error. All are in the
    /// [table](LockError#in-a-web-service).
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use lockmacro_runtime::{Holder, LockError};
    /// let second = Duration::from_secs(1);
    /// assert_eq!(LockError::busy("order:42", Holder::new("web-3"), second).http_status(), 423);
    /// assert_eq!(LockError::unavailable("").http_status(), 503);
    /// assert_eq!(LockError::access_denied("no rights").http_status(), 500);
    /// ```
    pub fn http_status(&self) -> u16 {
        match self {
            Busy { .. } | TimedOut { .. } => 423,
            QueueFull { .. } | Unavailable { .. } | LockError::ShutDown { .. } => 503,
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

    /// Returns [`retry_after`](LockError::retry_after) in whole seconds, rounded up, as the header
    /// `Retry-After` needs it.
    ///
    /// ```
    /// # use lockmacro_runtime::{Lock, LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// # let locks = LockManager::isolated_memory();
    /// let order = Lock::new("order:42").manager(&locks);
    /// let _guard = order.acquire().await?;
    /// let busy = order.acquire().await.expect_err("it is held");
    /// let header = busy.retry_after_secs().map(|secs| ("Retry-After", secs.to_string()));
    /// assert_eq!(header, Some(("Retry-After", "5".to_owned())));
    /// # Ok(()) }
    /// ```
    pub fn retry_after_secs(&self) -> Option<u64> {
        self.retry_after().map(whole_seconds)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::UnavailableReason;
    use super::*;
    use crate::value::holder::Holder;
    use crate::value::loss::{LossCause, Lost};

    /// One error of each kind, each made of `secret`.
    fn errors() -> Vec<(u16, LockError)> {
        let secret = || "secret".to_owned();
        let time = Duration::from_secs(1);
        let holder = || Holder::new("secret");
        let at_server = Some("secret".into());
        let unavailable =
            LockError::unavailable_at(at_server, UnavailableReason::Timeout, "secret");
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
            (503, LockError::QueueFull { key: "secret".into(), retry_after: time }),
            #[cfg(feature = "reuse")]
            (422, LockError::ReusedKey { key: "secret".into() }),
            #[cfg(feature = "defer")]
            (202, LockError::Deferred { key: "secret".into(), id: "secret".into(), due: time }),
            (503, unavailable),
            (503, LockError::no_quorum(Box::default())),
            (503, LockError::because(UnavailableReason::ConnectionLimit, "secret")),
            (503, LockError::because(UnavailableReason::NotAcknowledged, "secret")),
            (503, LockError::SHUT_DOWN),
            (500, LockError::NO_RUNTIME),
            (400, LockError::InvalidKey { detail: secret() }),
            (500, Lost::new("secret", LossCause::Expired).into()),
            (500, LockError::access_denied("secret")),
            (500, LockError::invalid_url("secret")),
            (500, LockError::KeyNotALock { key: "secret".into() }),
            (500, LockError::NOT_INSTALLED),
            (500, LockError::nested(&"secret".into(), "secret")),
            (500, LockError::Authentication { detail: secret(), server: Some("secret".into()) }),
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
