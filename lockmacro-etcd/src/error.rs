//! Why etcd has not answered a request, or has refused it.

use std::error::Error;
use std::fmt;

use lockmacro_runtime::store::StoreError;

/// A request that failed.
#[derive(Debug, Clone)]
pub(crate) struct CallError {
    pub(crate) kind: Kind,
    text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// It was not sent.
    NotSent,
    /// It was sent, and whether it was carried out is unknown.
    Unanswered,
    /// A node refused it with this code of gRPC, and it was not carried out.
    Refused(u32),
}

const INVALID_ARGUMENT: u32 = 3;
const NOT_FOUND: u32 = 5;
const PERMISSION_DENIED: u32 = 7;
const UNAUTHENTICATED: u32 = 16;

impl CallError {
    pub(crate) fn not_sent(why: impl fmt::Display) -> Self {
        Self { kind: Kind::NotSent, text: why.to_string() }
    }

    pub(crate) fn unanswered(why: impl fmt::Display) -> Self {
        Self { kind: Kind::Unanswered, text: why.to_string() }
    }

    /// The status of an answer.
    pub(crate) fn of(code: u32, text: &str) -> Self {
        let kind = match code {
            // Cancelled, unknown, deadline exceeded, aborted, internal, unavailable and data loss.
            // etcd says "unavailable" when it does not know what became of a proposal, too.
            1 | 2 | 4 | 10 | 13 | 14 | 15 => Kind::Unanswered,
            code => Kind::Refused(code),
        };
        Self { kind, text: text.to_owned() }
    }

    /// The same, with the node that it is of.
    pub(crate) fn at(self, endpoint: &str) -> Self {
        Self { text: format!("{endpoint}: {}", self.text), ..self }
    }

    /// Whether another node may answer.
    pub(crate) fn is_of_the_node(&self) -> bool {
        !matches!(self.kind, Kind::Refused(_))
    }

    /// Whether a new login may help: the token has ended, or rights were changed since.
    pub(crate) fn is_of_the_login(&self) -> bool {
        let is_old = ["revision in header is old", "revision of auth store is old"];
        let is_old = is_old.iter().any(|text| self.text.contains(text));
        is_old || self.kind == Kind::Refused(UNAUTHENTICATED)
    }

    pub(crate) fn is_unknown_lease(&self) -> bool {
        self.kind == Kind::Refused(NOT_FOUND)
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Error for CallError {}

impl From<CallError> for StoreError {
    fn from(failure: CallError) -> Self {
        match failure.kind {
            Kind::Unanswered => StoreError::unknown(failure),
            _ if failure.is_of_the_login() => StoreError::not_applied(failure),
            // A wrong password is an invalid argument, and so is a request without a login.
            Kind::Refused(INVALID_ARGUMENT | PERMISSION_DENIED) => StoreError::refused(failure),
            // Such as a database without space, until an operator has made some.
            _ => StoreError::not_applied(failure),
        }
    }
}
