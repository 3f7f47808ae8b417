//! The meaning of an error of the `redis` crate, and which error the caller gets.

use redis::{ErrorKind, RedisError, Value};

use crate::store::remote::error::{RemoteError, Transient, is_full};
#[cfg(feature = "tls")]
use crate::store::remote::tls::remedy;
use crate::value::applied::Applied;
use crate::value::error::{LockError, UnavailableReason, setting_name};
use crate::value::escaped::Escaped;

impl RemoteError {
    /// The error of a connection attempt: the caller's command was not sent yet.
    pub(crate) fn unapplied(error: RedisError) -> Self {
        #[cfg(feature = "tls")]
        if let Some(detail) = of_tls(&error) {
            let untrusted = LockError::because(UnavailableReason::Tls, detail);
            return RemoteError::Final(untrusted).caused_by(error);
        }
        let mut error = RemoteError::from(error);
        if let RemoteError::Transient(transient) = &mut error {
            transient.applied = Applied::No;
        }
        error
    }
}

/// The code of `grant.lua` for a call that has reached the server too late.
const LATE: &str = "LATE";
/// Texts of denials in a script, before Redis 7.2 and since.
const DENIED_IN_A_SCRIPT: [&str; 2] = ["The user executing the script", "ACL failure in script"];
/// Texts of other denials without the code NOPERM, such as that of SELECT while connecting.
const DENIED: [&str; 2] = ["has no permissions to run", "DENIED Redis is running in protected"];

/// Removes the arguments that a server quotes with an unknown command: one may be a token or a
/// password.
fn without_arguments(text: &str) -> String {
    let text = text.split("with args beginning with").next().unwrap_or_default();
    Escaped(text.trim_end_matches([',', ' ', ':'])).to_string()
}

/// The error of a server at its connection limit, which it sends to every new connection.
pub(crate) fn full(text: &str) -> Option<RemoteError> {
    is_full(text).then(|| RemoteError::broken(UnavailableReason::Refused, text, Applied::No))
}

impl From<RedisError> for RemoteError {
    fn from(error: RedisError) -> Self {
        let detail = without_arguments(&error.to_string());
        if let Some(full) = full(&detail) {
            return full;
        }
        if DENIED_IN_A_SCRIPT.iter().any(|text| detail.contains(text)) {
            return RemoteError::DeniedInScript(LockError::access_denied(detail));
        }
        if DENIED.iter().any(|text| detail.contains(text)) {
            return RemoteError::Final(LockError::access_denied(detail));
        }
        if let Some(code) = error.code() {
            return of_reply(code, error.detail().unwrap_or_default());
        }
        let failed = match error.kind() {
            ErrorKind::AuthenticationFailed => return RemoteError::Final(no_login(detail)),
            _ if error.is_connection_refusal() => {
                Self::broken(UnavailableReason::Refused, detail, Applied::No)
            }
            // The text may repeat a part of the reply.
            ErrorKind::Parse | ErrorKind::UnexpectedReturnType => {
                return Self::broken(UnavailableReason::Protocol, detail, Applied::Unknown);
            }
            _ => Self::broken(UnavailableReason::Disconnected, detail, Applied::Unknown),
        };
        failed.caused_by(error)
    }
}

/// The error of rustls, and what to do about it.
#[cfg(feature = "tls")]
fn of_tls(error: &RedisError) -> Option<String> {
    use std::error::Error;

    // The `redis` crate wraps an I/O error in an `Arc`, with the error of rustls inside.
    let wrapped = error.source()?.downcast_ref::<std::sync::Arc<dyn Error + Send + Sync>>()?;
    let inner = wrapped.downcast_ref::<std::io::Error>()?.get_ref()?;
    inner.downcast_ref().map(remedy)
}

fn no_login(detail: String) -> LockError {
    LockError::Authentication { detail, server: None }
}

/// The server's time in microseconds, with which a script refuses a call that reached it too late.
pub(crate) fn late(error: &RedisError) -> Option<u64> {
    error.detail().filter(|_| error.code() == Some(LATE))?.split(' ').next()?.parse().ok()
}

/// The error for an error reply, by its code. Servers before 7.0 wrap an error of a script in a
/// text after `ERR`, which is searched for the code.
fn of_reply(code: &str, text: &str) -> RemoteError {
    let text = without_arguments(text);
    let inner = (code == "ERR" && text.contains("Error running script")).then(|| {
        ["WRONGTYPE", "READONLY", "OOM", "NOREPLICAS", "MISCONF", "NOPERM", "MASTERDOWN"]
            .into_iter()
            .find(|inner| text.contains(inner))
    });
    let code = inner.flatten().unwrap_or(code);
    let detail = format!("{code} {text}").trim_end().to_owned();
    let refused = |reason| Transient::new(reason, detail.clone(), Applied::No);
    let transient = |reason| RemoteError::Transient(refused(reason));
    let replica = |reason| RemoteError::broken(reason, detail.clone(), Applied::No);
    match code {
        "NOSCRIPT" => RemoteError::NoScript,
        // The code of grant.lua.
        LATE => RemoteError::late(),
        "WRONGTYPE" => RemoteError::NotALock,
        "CROSSSLOT" => RemoteError::CrossSlot,
        // The server accepts writes again once memory is free, a replica is back, or data is saved.
        "OOM" => transient(UnavailableReason::OutOfMemory),
        "NOREPLICAS" => transient(UnavailableReason::NotEnoughReplicas),
        "MISCONF" => transient(UnavailableReason::NotSaving),
        // The code of grant.lua.
        "FENCESUSEDUP" => {
            RemoteError::Final(LockError::because(UnavailableReason::FencesUsedUp, detail))
        }
        "NOAUTH" | "WRONGPASS" => RemoteError::Final(no_login(detail)),
        "NOPERM" => RemoteError::Final(LockError::access_denied(detail)),
        // A new connection may find the primary, where a name stands for it.
        "READONLY" => replica(UnavailableReason::ReadOnly),
        // The server was made a replica while it waited for its own replicas.
        "UNBLOCKED" => replica(UnavailableReason::ReadOnly),
        "MASTERDOWN" => replica(UnavailableReason::PrimaryDown),
        "LOADING" => transient(UnavailableReason::Loading),
        "BUSY" => transient(UnavailableReason::BusyScript),
        "CLUSTERDOWN" => transient(UnavailableReason::ClusterDown),
        "TRYAGAIN" => RemoteError::Split(refused(UnavailableReason::ClusterDown)),
        "MOVED" | "ASK" => match text.split_once(' ') {
            Some((_slot, address)) => {
                let address = address.trim_end().to_owned();
                RemoteError::Redirect { address, once: code == "ASK" }
            }
            None => RemoteError::Final(LockError::because(UnavailableReason::Protocol, detail)),
        },
        // A slot that is being moved has lost a key while the script ran.
        _ if text.contains("access a non local key") => {
            let reason = UnavailableReason::ClusterDown;
            RemoteError::Transient(Transient::new(reason, detail, Applied::Unknown))
        }
        // The replies to SELECT, which is sent with the login.
        _ if text.contains("DB index is out of range")
            || text.contains("SELECT is not allowed") =>
        {
            // A URL of a host has it as its path.
            RemoteError::Final(LockError::invalid(setting_name::DB, detail))
        }
        _ if text.contains("unknown command") && text.contains("HELLO") => {
            let detail = format!("locks need RESP3, and it does not know HELLO: {detail}");
            RemoteError::Final(LockError::because(UnavailableReason::Protocol, detail))
        }
        _ if text.contains("unknown command") && text.contains("EVAL") => {
            let detail = format!("locks need scripts, and it has none: {detail}");
            RemoteError::Final(LockError::because(UnavailableReason::Protocol, detail))
        }
        _ => RemoteError::Final(LockError::because(UnavailableReason::Protocol, detail)),
    }
}

/// The error for a reply of the wrong kind.
pub(crate) fn unexpected(reply: &Value) -> RemoteError {
    // Only the kind of the reply: its text may be a token.
    let kind = match reply {
        Value::Nil => "nil",
        Value::Int(_) => "an integer",
        Value::Okay | Value::SimpleString(_) => {
            "a status, as it may if it is only in part like Redis: see `lockmacro doctor`"
        }
        Value::BulkString(_) => "a string",
        Value::Array(_) => "an array",
        _ => "something else",
    };
    // The call may have been applied.
    let detail = format!("the server answered {kind}");
    RemoteError::Transient(Transient::new(UnavailableReason::Protocol, detail, Applied::Unknown))
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
            LockError::Unavailable { reason: UnavailableReason::ReadOnly, .. }
        ));
        let wrapped = "Error running script: WRONGTYPE Operation against a key holding the wrong \
             kind of value";
        assert_eq!(reply("ERR", wrapped), LockError::KeyNotALock { key: "k".into() });
    }

    #[test]
    fn the_text_of_an_error_names_the_server() {
        let key = of_reply("NOPERM", "No permissions to access a key");
        let texts = [
            (of_reply("OOM", "full"), "out of memory (OOM full, at a:1)"),
            (of_reply("WRONGPASS", "no"), "refuses the login: WRONGPASS no, at a:1"),
            (key, "access a key, at a:1: the lock needs ~k and ~lm1:w*:{k}"),
            (full("ERR max number of clients").unwrap(), "of clients, at a:1)"),
        ];
        for (error, text) in texts {
            let error = error.at(|| "a:1".to_owned()).into_error(&"k".into());
            assert!(error.to_string().ends_with(text), "{error}");
        }
    }

    #[test]
    fn only_its_code_tells_that_a_slot_is_being_moved() {
        let split = of_reply("TRYAGAIN", "Multiple");
        let down = of_reply("CLUSTERDOWN", "TRYAGAIN");
        assert!(matches!(split, RemoteError::Split(_)) && !matches!(down, RemoteError::Split(_)));
        assert!(split.clone().transient().is_ok(), "another try may succeed");
        let text = split.into_error(&"k".into()).to_string();
        assert!(text.ends_with("is not serving the key (TRYAGAIN Multiple)"), "{text}");
    }

    #[test]
    fn a_code_in_the_name_of_a_key_is_none() {
        let unknown = "unknown command 'EVALSHA', with args beginning with: 'ROOM:5' 'secret'";
        let error = reply("ERR", unknown);
        assert!(
            matches!(error, LockError::Unavailable { reason: UnavailableReason::Protocol, .. }),
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
