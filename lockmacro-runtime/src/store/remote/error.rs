//! A failed call to a server: whether it may have been applied, and whether to retry.

use std::error::Error;

use crate::value::applied::Applied;
use crate::value::companion::write_companion;
use crate::value::error::{Cause, LockError, UnavailableReason};
use crate::value::escaped::Escaped;
use crate::value::key::LockKey;

/// A call without a usable reply.
#[derive(Debug, Clone)]
pub(crate) enum RemoteError {
    /// The server does not know the script; nothing was applied.
    NoScript,
    /// The key holds another type; nothing was applied.
    NotALock,
    /// The keys are in different slots of a cluster; nothing was applied.
    CrossSlot,
    /// The key is on another node of a cluster; nothing was applied.
    Redirect {
        /// `host:port`; an empty host is that of the node that sent the redirect.
        address: String,
        /// For this call only, after an ASKING: the slot is being moved there.
        once: bool,
    },
    /// Nothing was applied, and a retry is of no use.
    Final(LockError),
    /// A script was denied a command or a key: what it wrote before that stays. A retry is of no
    /// use.
    DeniedInScript(LockError),
    /// The keys of one lock are on different nodes, because their slot is being moved (TRYAGAIN);
    /// nothing was applied, and a retry may succeed.
    Split(Transient),
    /// A retry may succeed.
    Transient(Transient),
}

#[derive(Debug, Clone)]
pub(crate) struct Transient {
    pub(crate) reason: UnavailableReason,
    pub(crate) detail: String,
    /// The address of the server, once it is known.
    pub(crate) server: Option<Box<str>>,
    pub(crate) applied: Applied,
    /// The connection has to be replaced: it is broken, or leads to the wrong server.
    pub(crate) replace: bool,
    /// The login was refused, and the next one may be accepted.
    pub(crate) login: bool,
    /// The error of the connection.
    pub(crate) cause: Option<Cause>,
}

impl Transient {
    /// A failure on a connection that stays in use.
    pub(crate) fn new(
        reason: UnavailableReason,
        detail: impl Into<String>,
        applied: Applied,
    ) -> Self {
        Self {
            reason,
            detail: detail.into(),
            server: None,
            applied,
            replace: false,
            login: false,
            cause: None,
        }
    }

    /// The error for the caller when the budget is used up.
    pub(crate) fn into_error(self) -> LockError {
        let Self { reason, detail, server, cause, .. } = self;
        LockError::Unavailable {
            reason,
            detail,
            server,
            retry_after: None,
            nodes: Box::default(),
            cause,
        }
    }
}

impl RemoteError {
    /// The error for a connection that has to be replaced.
    pub(crate) fn broken(
        reason: UnavailableReason,
        detail: impl Into<String>,
        applied: Applied,
    ) -> Self {
        let transient = Transient::new(reason, detail, applied);
        RemoteError::Transient(Transient { replace: true, ..transient })
    }

    /// The error of a step that took too long.
    pub(crate) fn timeout(detail: &str, applied: Applied) -> Self {
        RemoteError::Transient(Transient::new(UnavailableReason::Timeout, detail, applied))
    }

    /// The error of a request that the server refused to serve, as nobody would wait for its
    /// answer.
    pub(crate) fn late() -> Self {
        let detail = "the request has reached the server too late";
        RemoteError::Transient(Transient::new(UnavailableReason::TooSlow, detail, Applied::No))
    }

    /// The error of a connection that was not open in time.
    pub(crate) fn not_connected() -> Self {
        Self::timeout("connecting", Applied::No)
    }

    /// The error of a command that was not answered in time.
    pub(crate) fn unanswered() -> Self {
        Self::timeout("sent, and not answered", Applied::Unknown)
    }

    /// The same on a connection that another runtime drives, and that was replaced if `replace`.
    pub(crate) fn unanswered_elsewhere(replace: bool) -> Self {
        let detail = "sent, and not answered: the connection belongs to another runtime of this \
                      process, which may be blocked";
        let transient = Transient::new(UnavailableReason::Timeout, detail, Applied::Unknown);
        RemoteError::Transient(Transient { replace, ..transient })
    }

    /// The same error with that of the connection, which is no reply of a server.
    pub(crate) fn caused_by(self, error: impl Error + Send + Sync + 'static) -> Self {
        self.with_cause(Cause::new(error))
    }

    /// The same error with this one as its source.
    pub(crate) fn with_cause(mut self, error: Cause) -> Self {
        if let RemoteError::Transient(Transient { cause, .. })
        | RemoteError::Final(LockError::Unavailable { cause, .. }) = &mut self
        {
            *cause = Some(error);
        }
        self
    }

    /// Whether the call was applied.
    pub(crate) fn applied(&self) -> Applied {
        match self {
            RemoteError::Split(transient) | RemoteError::Transient(transient) => transient.applied,
            RemoteError::DeniedInScript(_) => Applied::Unknown,
            _ => Applied::No,
        }
    }

    /// The transient error, if a retry may succeed.
    pub(crate) fn transient(self) -> Result<Transient, Self> {
        match self {
            RemoteError::Split(transient) | RemoteError::Transient(transient) => Ok(transient),
            lasting => Err(lasting),
        }
    }

    /// The error to report after this one: a final error says more than a transient one.
    pub(crate) fn unless_final(self, next: Self) -> Self {
        if matches!(self, RemoteError::Final(_)) { self } else { next }
    }

    /// The same error with the server's address.
    pub(crate) fn at(mut self, server: impl FnOnce() -> String) -> Self {
        use LockError::{AccessDenied, Authentication, Unavailable};
        if let RemoteError::Split(Transient { server: at, .. })
        | RemoteError::Transient(Transient { server: at, .. })
        | RemoteError::Final(
            AccessDenied { server: at, .. }
            | Authentication { server: at, .. }
            | Unavailable { server: at, .. },
        )
        | RemoteError::DeniedInScript(AccessDenied { server: at, .. }) = &mut self
        {
            at.get_or_insert_with(|| server().into());
        }
        self
    }

    /// The error for the caller when the budget is used up.
    pub(crate) fn into_error(self, key: &LockKey) -> LockError {
        match self {
            RemoteError::NoScript => {
                LockError::because(UnavailableReason::Protocol, "the server forgets its scripts")
            }
            RemoteError::NotALock => LockError::KeyNotALock { key: key.clone() },
            RemoteError::CrossSlot => LockError::because(
                UnavailableReason::ClusterDown,
                "the server wants all keys in one slot",
            ),
            RemoteError::Redirect { address, .. } => {
                let detail =
                    format!("the key is on the node {address}: use a `redis-cluster://` URL");
                LockError::because(UnavailableReason::ClusterDown, detail)
            }
            RemoteError::Final(LockError::AccessDenied { detail, server, .. })
            | RemoteError::DeniedInScript(LockError::AccessDenied { detail, server, .. }) => {
                let keys = needed_keys(&detail, key);
                LockError::AccessDenied { detail, server, keys }
            }
            RemoteError::Final(error) | RemoteError::DeniedInScript(error) => error,
            RemoteError::Transient(Transient { detail, server, .. }) if is_full(&detail) => {
                let detail = format!("raise its `maxclients`, or share managers: {detail}");
                LockError::unavailable_at(server, UnavailableReason::ConnectionLimit, detail)
            }
            RemoteError::Transient(Transient { detail, server, login: true, .. }) => {
                LockError::Authentication { detail, server }
            }
            RemoteError::Split(failed) | RemoteError::Transient(failed) => failed.into_error(),
        }
    }
}

/// Whether it is the error of a Redis server at its connection limit.
pub(crate) fn is_full(text: &str) -> bool {
    text.contains("max number of clients")
}

/// The keys of the lock, if one of them is denied: the server does not name it.
fn needed_keys(detail: &str, key: &LockKey) -> Option<Box<str>> {
    if !detail.contains("access a key") && !detail.contains("one of the keys") {
        return None;
    }
    let mut companions = String::new();
    write_companion(key.as_str(), "*", |part| companions.push_str(part));
    Some(format!("~{} and ~{}", key.shown(), Escaped(&companions)).into())
}
