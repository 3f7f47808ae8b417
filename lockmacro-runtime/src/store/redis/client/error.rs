//! What a failed call means: whether it may have been applied, whether to try again, and what to
//! tell the caller.

use crate::value::error::AT;
use redis::{ErrorKind, RedisError, Value};

use crate::store::redis::client::tls;
use crate::value::companion::write_companion;
use crate::value::error::LockError;
use crate::value::escaped::Escaped;
use crate::value::key::LockKey;
use crate::value::unavailability::Unavailability;

/// What the detail of a refused login starts with, where the next one may be accepted.
pub(crate) const LOGIN: &str = "login: ";

/// A call that brought no answer to its question.
#[derive(Debug, Clone)]
pub(crate) enum CallError {
    /// The server does not know the script; nothing was applied.
    NoScript,
    /// The key is of another type; nothing was applied.
    NotALock,
    /// The keys are in different slots of a cluster; nothing was applied.
    CrossSlot,
    /// The key is on another node of a cluster; nothing was applied.
    Redirect(Redirect),
    /// Nothing was applied, and nothing will be until a person mends it.
    Final(LockError),
    /// It may be over soon.
    Transient(Transient),
}

/// Where a node of a cluster sends its caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Redirect {
    /// `host:port`; without a host it is the one that was asked.
    pub(crate) address: String,
    /// Only this once, after an ASKING: the slot is being moved there.
    pub(crate) once: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct Transient {
    pub(crate) reason: Unavailability,
    pub(crate) detail: String,
    /// The call may have been applied, or may be yet.
    pub(crate) unknown: bool,
    /// The connection is of no more use: it is broken, or leads to the wrong server.
    pub(crate) replace: bool,
}

impl Transient {
    pub(crate) fn timeout(detail: &str, unknown: bool) -> Self {
        Self { reason: Unavailability::Timeout, detail: detail.to_owned(), unknown, replace: false }
    }

    /// Whether the login was refused, and the next one may not be.
    pub(crate) fn is_login(&self) -> bool {
        self.detail.starts_with(LOGIN)
    }

    /// Whether keys of one lock are at different nodes, because their slot is being moved.
    pub(crate) fn is_split(&self) -> bool {
        is_split(&self.detail)
    }
}

impl CallError {
    /// The trouble to tell after this one: what a person has to mend tells more than silence.
    pub(crate) fn unless_final(self, next: Self) -> Self {
        if matches!(self, CallError::Final(_)) { self } else { next }
    }

    /// CallError while connecting: the caller's own command was not sent yet.
    pub(crate) fn unapplied(error: RedisError) -> Self {
        if let Some(detail) = tls::explained(&error) {
            return CallError::Final(unavailable(Unavailability::Tls, detail));
        }
        let mut error = CallError::from(error);
        if let CallError::Transient(transient) = &mut error {
            transient.unknown = false;
        }
        error
    }

    /// The same with where it was.
    pub(crate) fn at(mut self, server: impl FnOnce() -> String) -> Self {
        use LockError::{AccessDenied, Authentication, ConnectionLimit, Unavailable};
        let detail = match &mut self {
            CallError::Transient(Transient { detail, .. })
            | CallError::Final(
                AccessDenied { detail }
                | Authentication { detail }
                | ConnectionLimit { detail }
                | Unavailable { detail, .. },
            ) => detail,
            _ => return self,
        };
        detail.push_str(AT);
        detail.push_str(&server());
        self
    }

    /// What the caller is told when there is no more time to try.
    pub(crate) fn into_error(self, key: &LockKey) -> LockError {
        match self {
            CallError::NoScript => unavailable(Unavailability::Protocol, "it forgets its scripts"),
            CallError::NotALock => LockError::KeyNotALock { key: key.clone() },
            CallError::CrossSlot => unavailable(Unavailability::ClusterDown, "it wants one slot"),
            CallError::Redirect(Redirect { address, .. }) => {
                let detail = format!("the key is at {address}: give a `redis-cluster://` URL");
                unavailable(Unavailability::ClusterDown, detail)
            }
            CallError::Final(LockError::AccessDenied { detail }) => {
                LockError::AccessDenied { detail: with_keys(detail, key) }
            }
            CallError::Final(error) => error,
            CallError::Transient(Transient { detail, .. }) if is_full(&detail) => {
                LockError::ConnectionLimit { detail }
            }
            CallError::Transient(transient) if transient.is_login() => {
                let detail = transient.detail.split_at(LOGIN.len()).1.to_owned();
                LockError::Authentication { detail }
            }
            CallError::Transient(Transient { reason, detail, .. }) => {
                LockError::Unavailable { reason, detail }
            }
        }
    }
}

impl From<Transient> for CallError {
    fn from(transient: Transient) -> Self {
        CallError::Transient(transient)
    }
}

/// Whether these are a server's words on keys that are at different nodes.
pub(crate) fn is_split(detail: &str) -> bool {
    detail.starts_with("TRYAGAIN")
}

/// Refusals that come without NOPERM: of a command inside a script, and of the SELECT while
/// connecting.
const DENIED: [&str; 3] = [
    "The user executing the script",
    "has no permissions to run",
    "DENIED Redis is running in protected",
];

/// A server quotes the arguments of a command that it does not know, and those are somebody's token
/// or password.
fn without_arguments(text: &str) -> String {
    let text = text.split("with args beginning with").next().unwrap_or_default();
    Escaped(text.trim_end_matches([',', ' ', ':'])).to_string()
}

/// What a server that takes no more clients says to every new one, whatever it asks.
pub(crate) fn full(text: &str) -> Option<CallError> {
    is_full(text).then(|| {
        CallError::Transient(Transient {
            reason: Unavailability::Refused,
            detail: text.to_owned(),
            unknown: false,
            replace: true,
        })
    })
}

fn is_full(text: &str) -> bool {
    text.contains("max number of clients")
}

/// A server that denies a key does not say which one.
fn with_keys(detail: String, key: &LockKey) -> String {
    if !detail.contains("access a key") && !detail.contains("one of the keys") {
        return detail;
    }
    let mut companions = String::new();
    write_companion(key.as_str(), "*", |part| companions.push_str(part));
    format!("{detail}: the lock needs ~{} and ~{}", key.shown(), Escaped(&companions))
}

fn unavailable(reason: Unavailability, detail: impl Into<String>) -> LockError {
    LockError::Unavailable { reason, detail: detail.into() }
}

impl From<RedisError> for CallError {
    fn from(error: RedisError) -> Self {
        let detail = without_arguments(&error.to_string());
        if let Some(full) = full(&detail) {
            return full;
        }
        if DENIED.iter().any(|text| detail.contains(text)) {
            return CallError::Final(LockError::AccessDenied { detail });
        }
        if let Some(code) = error.code() {
            return of_reply(code, error.detail().unwrap_or_default());
        }
        match error.kind() {
            ErrorKind::AuthenticationFailed => {
                CallError::Final(LockError::Authentication { detail })
            }
            _ if error.is_connection_refusal() => CallError::Transient(Transient {
                reason: Unavailability::Refused,
                detail,
                unknown: false,
                replace: true,
            }),
            ErrorKind::Parse | ErrorKind::UnexpectedReturnType => CallError::Transient(Transient {
                reason: Unavailability::Protocol,
                detail,
                unknown: true,
                replace: true,
            }),
            _ => CallError::Transient(Transient {
                reason: Unavailability::Disconnected,
                detail,
                unknown: true,
                replace: true,
            }),
        }
    }
}

/// An error reply by its code. Servers before 7.0 wrap what happened inside a script in a text
/// after `ERR`, where the code is looked for then.
fn of_reply(code: &str, text: &str) -> CallError {
    let text = without_arguments(text);
    let inner = (code == "ERR" && text.contains("Error running script")).then(|| {
        ["WRONGTYPE", "READONLY", "OOM", "NOREPLICAS", "MISCONF", "NOPERM", "MASTERDOWN"]
            .into_iter()
            .find(|inner| text.contains(inner))
    });
    let code = inner.flatten().unwrap_or(code);
    let detail = format!("{code} {text}").trim_end().to_owned();
    let transient = |reason, replace| {
        CallError::Transient(Transient { reason, detail: detail.clone(), unknown: false, replace })
    };
    match code {
        "NOSCRIPT" => CallError::NoScript,
        "WRONGTYPE" => CallError::NotALock,
        "CROSSSLOT" => CallError::CrossSlot,
        // These take writes again as soon as others leave room, a replica is back, or data is saved.
        "OOM" => transient(Unavailability::OutOfMemory, false),
        "NOREPLICAS" => transient(Unavailability::NotEnoughReplicas, false),
        "MISCONF" => transient(Unavailability::NotSaving, false),
        // What acquire.lua says.
        "FENCESUSEDUP" => CallError::Final(unavailable(Unavailability::FencesUsedUp, detail)),
        "NOAUTH" | "WRONGPASS" => CallError::Final(LockError::Authentication { detail }),
        "NOPERM" => CallError::Final(LockError::AccessDenied { detail }),
        // A new connection may find the primary, where a name stands for it.
        "READONLY" => transient(Unavailability::ReadOnly, true),
        // It was made a replica while it waited for its own.
        "UNBLOCKED" => transient(Unavailability::ReadOnly, true),
        "MASTERDOWN" => transient(Unavailability::PrimaryDown, true),
        "LOADING" => transient(Unavailability::Loading, false),
        "BUSY" => transient(Unavailability::BusyScript, false),
        "CLUSTERDOWN" | "TRYAGAIN" => transient(Unavailability::ClusterDown, false),
        "MOVED" | "ASK" => match text.split_once(' ') {
            Some((_slot, address)) => {
                let address = address.trim_end().to_owned();
                CallError::Redirect(Redirect { address, once: code == "ASK" })
            }
            None => CallError::Final(unavailable(Unavailability::Protocol, detail)),
        },
        // A slot that is being moved has lost a key while the script was at it.
        _ if text.contains("access a non local key") => CallError::Transient(Transient {
            reason: Unavailability::ClusterDown,
            detail,
            unknown: true,
            replace: false,
        }),
        _ => CallError::Final(unavailable(Unavailability::Protocol, detail)),
    }
}

/// An answer that is none to the question.
pub(crate) fn unexpected(reply: &Value) -> CallError {
    // The kind of the reply only: its text may be somebody's token.
    let kind = match reply {
        Value::Nil => "nil",
        Value::Int(_) => "an integer",
        Value::Okay | Value::SimpleString(_) => "a status",
        Value::BulkString(_) => "a string",
        Value::Array(_) => "an array",
        _ => "something else",
    };
    // Whatever it means, something may have been written.
    CallError::Transient(Transient {
        reason: Unavailability::Protocol,
        detail: format!("the server answered {kind}"),
        unknown: true,
        replace: false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(code: &str, text: &str) -> LockError {
        of_reply(code, text).into_error(&"k".into())
    }

    #[test]
    fn a_code_wrapped_by_an_older_server_is_found() {
        let wrapped = "Error running script (call to f_c0ffee): @user_script:14: \
             @user_script: 14: -READONLY You can't write against a read only replica.";
        assert!(matches!(
            reply("ERR", wrapped),
            LockError::Unavailable { reason: Unavailability::ReadOnly, .. }
        ));
        let wrapped = "Error running script: WRONGTYPE Operation against a key holding the wrong \
             kind of value";
        assert_eq!(reply("ERR", wrapped), LockError::KeyNotALock { key: "k".into() });
    }

    #[test]
    fn a_code_in_the_name_of_a_key_is_none() {
        let unknown = "unknown command 'EVALSHA', with args beginning with: 'ROOM:5' 'secret'";
        let error = reply("ERR", unknown);
        assert!(
            matches!(error, LockError::Unavailable { reason: Unavailability::Protocol, .. }),
            "{error:?}"
        );
        assert!(!format!("{error:?} {error}").contains("secret"));
    }

    #[test]
    fn no_reply_of_a_server_means_that_somebody_holds_the_lock() {
        let codes = [
            "NOSCRIPT",
            "WRONGTYPE",
            "OOM",
            "NOREPLICAS",
            "MISCONF",
            "NOAUTH",
            "WRONGPASS",
            "NOPERM",
            "READONLY",
            "MASTERDOWN",
            "LOADING",
            "BUSY",
            "CLUSTERDOWN",
            "TRYAGAIN",
            "MOVED",
            "ASK",
            "ERR",
            "NEW",
        ];
        for code in codes {
            assert!(!reply(code, "").is_busy(), "{code}");
        }
    }
}
