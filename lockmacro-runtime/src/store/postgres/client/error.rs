//! The meaning of an error of PostgreSQL, and which error the caller gets.

use std::{fmt, io};

use tokio_postgres::Error;
use tokio_postgres::error::SqlState;

use crate::store::remote::error::{RemoteError, Transient};
use crate::value::applied::Applied;
use crate::value::error::{LockError, UnavailableReason, setting_name};

/// The code of `schema.sql` for a fence at its end.
const FENCES_USED_UP: &str = "LM001";
/// The code of `install.sql` for a schema that it leaves as it is.
const NOT_OURS: &str = "LM002";
/// The cause where the server is no standby, and what to do.
pub(crate) const READ_ONLY: &str = "transactions are read-only by `default_transaction_read_only`, \
    which hosts set when a disk is full: free space, then reset it";

/// The failure of a statement. `rights` are what gives the user those that it needs.
pub(crate) fn of_statement(error: Error, rights: impl FnOnce() -> String) -> RemoteError {
    match of(error, Applied::Unknown) {
        RemoteError::Final(LockError::AccessDenied { detail, .. }) => {
            let detail = format!("{detail}: {}", rights());
            RemoteError::Final(LockError::access_denied(detail))
        }
        error => error,
    }
}

/// The failure to connect: nothing was sent for the caller.
pub(crate) fn of_connecting(error: Error) -> RemoteError {
    match of(error, Applied::No) {
        RemoteError::Final(LockError::AccessDenied { detail, .. }) => {
            let detail = format!("{detail}: the user needs `GRANT CONNECT ON DATABASE`");
            RemoteError::Final(LockError::access_denied(detail))
        }
        error => error,
    }
}

/// The meaning of an error, which is the cause unless it is a server's reply.
fn of(error: Error, without_reply: Applied) -> RemoteError {
    let meaning = meaning(&error, without_reply);
    if error.as_db_error().is_some() { meaning } else { meaning.caused_by(error) }
}

fn meaning(error: &Error, without_reply: Applied) -> RemoteError {
    use UnavailableReason as Why;
    let Some(reply) = error.as_db_error() else {
        let source = std::error::Error::source(error);
        let kind = source.and_then(|source| source.downcast_ref::<io::Error>());
        let kind = kind.map(io::Error::kind);
        let detail = source.map_or_else(|| error.to_string(), ToString::to_string);
        #[cfg(feature = "postgres-tls")]
        let detail = source.and_then(of_tls).unwrap_or(detail);
        // The client's own refusal to log in, as when the URL has no password: it stays the same.
        let text = error.to_string();
        let kinds = ["invalid configuration", "authentication error"];
        if kinds.iter().any(|kind| text.starts_with(kind)) {
            return RemoteError::Final(LockError::Authentication { detail, server: None });
        }
        return match kind {
            Some(io::ErrorKind::ConnectionRefused) => {
                RemoteError::broken(Why::Refused, detail, Applied::No)
            }
            // What the library says of one of several hosts.
            Some(io::ErrorKind::PermissionDenied) if detail.contains("allow writes") => {
                let detail = format!("it is a standby, or {READ_ONLY}");
                RemoteError::broken(Why::ReadOnly, detail, Applied::No)
            }
            _ => RemoteError::broken(Why::Disconnected, detail, without_reply),
        };
    };
    let code = reply.code();
    let detail = reply.message().to_owned();
    let last = |error| RemoteError::Final(error);
    // A statement with an error was rolled back.
    let passing =
        |reason, detail| RemoteError::Transient(Transient::new(reason, detail, Applied::No));
    let broken = |reason, applied| RemoteError::broken(reason, detail.clone(), applied);
    match *code {
        SqlState::INVALID_PASSWORD | SqlState::INVALID_AUTHORIZATION_SPECIFICATION => {
            let plain = detail.ends_with("no encryption");
            let fix = if plain { ": encrypt it by `sslmode=require`" } else { "" };
            let detail = detail + fix;
            last(LockError::Authentication { detail, server: None })
        }
        SqlState::INVALID_CATALOG_NAME => last(LockError::invalid_url(detail)),
        // The setting `options` of the URL, while connecting.
        SqlState::SYNTAX_ERROR if detail.contains("command-line argument") => {
            last(LockError::invalid("options", detail))
        }
        // A name that is a word of the language.
        SqlState::SYNTAX_ERROR => {
            let why = format!("a word of SQL is no name for one: choose another ({detail})");
            last(LockError::invalid(setting_name::SCHEMA, why))
        }
        // While installing: what of others stands on a routine or a table that an upgrade replaces.
        SqlState::DEPENDENT_OBJECTS_STILL_EXIST => {
            let others = reply.detail().unwrap_or_default().replace('\n', "; ");
            let why = format!(
                "{detail}: {others}: drop what depends on it, and make it again afterwards, as far \
                 as the new schema has the same: the check of a fence is a procedure now"
            );
            last(LockError::invalid(setting_name::SCHEMA, why))
        }
        // In a key, a label, or a value.
        SqlState::UNTRANSLATABLE_CHARACTER | SqlState::CHARACTER_NOT_IN_REPERTOIRE => {
            let why = format!("its database cannot store a text: make one in UTF8 ({detail})");
            last(LockError::invalid_url(why))
        }
        SqlState::INVALID_REGULAR_EXPRESSION => last(LockError::invalid("pattern", detail)),
        SqlState::INSUFFICIENT_PRIVILEGE => last(LockError::access_denied(detail)),
        SqlState::INVALID_SCHEMA_NAME | SqlState::UNDEFINED_FUNCTION => last(LockError::invalid(
            setting_name::SCHEMA,
            format!("{detail}: run `lockmacro postgres install`, or add `install=1` to the URL"),
        )),
        SqlState::TOO_MANY_CONNECTIONS => broken(Why::ConnectionLimit, Applied::No),
        SqlState::CANNOT_CONNECT_NOW => broken(Why::Loading, Applied::No),
        SqlState::READ_ONLY_SQL_TRANSACTION => {
            let detail = format!("{detail}: it is a standby, or {READ_ONLY}");
            RemoteError::broken(Why::ReadOnly, detail, Applied::No)
        }
        // As the server goes down or ends a connection: the statement may have been committed.
        SqlState::ADMIN_SHUTDOWN | SqlState::CRASH_SHUTDOWN | SqlState::IDLE_SESSION_TIMEOUT => {
            broken(Why::Disconnected, without_reply)
        }
        SqlState::QUERY_CANCELED => passing(Why::Timeout, detail),
        SqlState::DISK_FULL => passing(Why::NotSaving, detail),
        SqlState::OUT_OF_MEMORY => passing(Why::OutOfMemory, detail),
        SqlState::T_R_SERIALIZATION_FAILURE
        | SqlState::T_R_DEADLOCK_DETECTED
        | SqlState::LOCK_NOT_AVAILABLE => passing(Why::Other, detail),
        // Of pgbouncer.
        ref code if code.code() == "08P01" && detail.starts_with("no more connections allowed") => {
            broken(Why::ConnectionLimit, Applied::No)
        }
        // Of the connection, and those of poolers.
        ref code if code.code().starts_with("08") => broken(Why::Disconnected, without_reply),
        ref code if code.code() == NOT_OURS => {
            last(LockError::invalid(setting_name::SCHEMA, detail))
        }
        ref code if code.code() == FENCES_USED_UP => {
            last(LockError::because(Why::FencesUsedUp, detail))
        }
        ref code => last(LockError::because(Why::Protocol, format!("{detail} ({})", code.code()))),
    }
}

/// The error of rustls, and what to do about it.
#[cfg(feature = "postgres-tls")]
fn of_tls(error: &(dyn std::error::Error + 'static)) -> Option<String> {
    let inner = error.downcast_ref::<io::Error>()?.get_ref()?;
    inner.downcast_ref().map(crate::store::remote::tls::remedy)
}

/// An answer of another shape.
pub(crate) fn unexpected(what: impl fmt::Display) -> RemoteError {
    let detail = format!("a function of the schema has returned something else: {what}");
    RemoteError::Final(LockError::because(UnavailableReason::Protocol, detail))
}
