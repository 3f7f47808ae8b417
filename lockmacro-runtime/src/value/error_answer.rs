//! The status and the sentence that a client of a service gets for an error.

use crate::value::error::LockError;

impl LockError {
    /// Returns the status of an HTTP response that reports this error.
    ///
    /// | error | status |
    /// |---|---|
    /// | [busy](LockError::is_busy): `Busy`, `TimedOut`, `QueueFull` | 423 Locked |
    /// | `Deferred`: the call is stored | 202 Accepted |
    /// | `InvalidKey`: keys are made of what the client sends | 400 Bad Request |
    /// | [unavailable](LockError::is_unavailable), and `ShutDown` | 503 Service Unavailable |
    /// | all others, `Lost` among them | 500 Internal Server Error |
    ///
    /// Send [`retry_after_secs`](LockError::retry_after_secs) in the header `Retry-After`, and
    /// [`public_message`](LockError::public_message) in the body.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use lockmacro_runtime::{Holder, LockError, Unavailability};
    /// let second = Duration::from_secs(1);
    /// assert_eq!(LockError::busy("order:42", Holder::new("web-3"), second).http_status(), 423);
    /// assert_eq!(LockError::unavailable(Unavailability::Timeout, "").http_status(), 503);
    /// assert_eq!(LockError::NotInstalled.http_status(), 500);
    /// ```
    pub fn http_status(&self) -> u16 {
        match self {
            _ if self.is_busy() => 423,
            _ if self.is_unavailable() => 503,
            LockError::ShutDown => 503,
            LockError::InvalidKey { .. } => 400,
            #[cfg(feature = "defer")]
            LockError::Deferred { .. } => 202,
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
            LockError::QueueFull { .. } => "too many others wait for this: try again later",
            LockError::Lost(_) => "this was interrupted, and may be done in part: check it first",
            _ => match self.http_status() {
                202 => "this was accepted, and is done later",
                400 => "this request is not valid",
                423 => "somebody else is using this: try again later",
                503 => "this service is not available: try again later",
                _ => "an internal error occurred",
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::value::holder::Holder;
    use crate::value::loss::{LossCause, Lost};
    use crate::value::unavailability::Unavailability;

    /// One error of each kind, each made of `secret`.
    fn errors() -> Vec<(u16, LockError)> {
        let secret = || "secret".to_owned();
        let (time, holder) = (Duration::from_secs(1), || Holder::new("secret"));
        let at_server = Some("secret".into());
        let unavailable =
            LockError::unavailable_at(at_server.clone(), Unavailability::Timeout, "secret");
        vec![
            (423, LockError::busy("secret", holder(), time)),
            (423, LockError::busy("secret", holder(), time).with_message(" ")),
            (423, LockError::timed_out("secret", holder(), time, 7)),
            (423, LockError::queue_full("secret", time)),
            #[cfg(feature = "defer")]
            (202, LockError::deferred("secret", "secret", time)),
            (503, unavailable),
            (503, LockError::NoQuorum { nodes: Box::default() }),
            (503, LockError::ConnectionLimit { detail: secret(), server: at_server }),
            (503, LockError::ShutDown),
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
