//! Constructors of errors. Three are public, for tests and for a queue of one's own.

use std::time::Duration;

use super::{LockError, NodeReply, UnavailableReason, replies, setting_name};
use crate::value::holder::Holder;
use crate::value::key::LockKey;

impl LockError {
    /// The system has no random numbers.
    pub(crate) fn no_random(error: impl std::fmt::Display) -> Self {
        Self::because(UnavailableReason::Local, error.to_string())
    }

    pub(crate) const SHUT_DOWN: Self = LockError::ShutDown { held: 0 };
    pub(crate) const NOT_INSTALLED: Self = LockError::NotInstalled {
        detail: "no lock manager is installed: call `LockManager::install` when the program \
                 starts, before it calls a locked function, or name one with `manager = …`; in a \
                 test, `LockManager::scope` does not cover tasks that are spawned inside it",
    };
    pub(crate) const NO_RUNTIME: Self = LockError::NoRuntime {
        detail: "no tokio runtime here: await the lock inside one, with its time and io enabled",
    };
    pub(crate) const BLOCKING_IN_ASYNC: Self = LockError::NoRuntime {
        detail: "a blocking lock on the thread of a current-thread runtime would stop every other \
                 task: make the function async, or call it in `spawn_blocking` (`web::block` in \
                 actix)",
    };

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
    /// assert_eq!(busy.holder().to_string(), "web-3:audit");
    /// ```
    pub fn busy(key: impl Into<LockKey>, holder: Holder, retry_after: Duration) -> Self {
        let key = key.into();
        let holder = Box::new(holder);
        LockError::Busy { key, holder, retry_after, message: None }
    }

    /// Makes an [`Unavailable`](LockError::Unavailable) error, for your own queue of
    /// jobs, and for tests. The detail is shown to users and in logs: do not put a password into
    /// it.
    ///
    /// ```
    /// # use lockmacro_runtime::LockError;
    /// assert_eq!(LockError::unavailable("the queue is down").http_status(), 503);
    /// ```
    pub fn unavailable(detail: impl Into<String>) -> Self {
        Self::because(UnavailableReason::Other, detail)
    }

    pub(crate) fn because(reason: UnavailableReason, detail: impl Into<String>) -> Self {
        Self::unavailable_at(None, reason, detail)
    }

    /// The same for a failure of a server, which `Display` names.
    pub(crate) fn unavailable_at(
        server: Option<Box<str>>,
        reason: UnavailableReason,
        detail: impl Into<String>,
    ) -> Self {
        let detail = detail.into();
        let nodes = Box::default();
        LockError::Unavailable { reason, detail, server, retry_after: None, nodes, cause: None }
    }

    /// The error of a Redlock without a majority.
    pub(crate) fn no_quorum(nodes: Box<[NodeReply]>) -> Self {
        LockError::Unavailable {
            reason: UnavailableReason::NoQuorum,
            detail: replies(&nodes),
            server: None,
            retry_after: None,
            nodes,
            cause: None,
        }
    }

    /// Makes an [`AccessDenied`](LockError::AccessDenied) error, for your own queue of
    /// jobs, and for tests. The detail names the rights that the user lacks.
    ///
    /// ```
    /// # use lockmacro_runtime::LockError;
    /// let denied = LockError::access_denied("the user may not write the table `calls`");
    /// assert_eq!(denied.http_status(), 500, "another try does not help");
    /// ```
    pub fn access_denied(detail: impl Into<String>) -> Self {
        LockError::AccessDenied { detail: detail.into(), server: None, keys: None }
    }

    pub(crate) fn invalid(setting: &'static str, detail: impl Into<String>) -> Self {
        LockError::InvalidSetting { setting, detail: detail.into() }
    }

    /// A lock around the call does not have what the call asks for.
    pub(crate) fn nested(held: &LockKey, detail: &'static str) -> Self {
        LockError::Nested { key: held.clone(), detail }
    }

    /// Locks of two servers would not exclude each other.
    pub(crate) fn installed_already() -> Self {
        Self::invalid(
            "manager",
            "another lock manager is installed already: install one per process, and pass others \
             with `manager = …`",
        )
    }

    /// The URL names no server to which a manager can connect. The detail never contains the URL,
    /// which may have a password in it.
    pub(crate) fn invalid_url(detail: impl Into<String>) -> Self {
        Self::invalid(setting_name::URL, detail)
    }
}
