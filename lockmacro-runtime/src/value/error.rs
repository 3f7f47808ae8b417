//! The error of all locks: one variant for each thing that a caller can do about it.
//! Long, because it is one enum with its docs.

use std::fmt;
use std::time::Duration;

use crate::value::holder::Holder;
use crate::value::key::{InvalidKey, LockKey};
use crate::value::loss::Lost;

mod accessors;
mod cause;
mod constructors;
mod http;
pub(crate) mod setting_name;
mod unavailable_reason;

pub(crate) use cause::Cause;
pub use unavailable_reason::UnavailableReason;

/// The reason why a body did not run, or why its result must not be trusted: one variant for each
/// thing that a caller can do about it.
///
/// No message contains a password or the random part of a token. Variants with fields may gain
/// further fields, so match them with `..`; only the fields of [`ShutDown`] are complete.
///
/// # What to do
/// - Try again later, or show the holder: [`Busy`], [`TimedOut`], [`QueueFull`], for which
///   [`is_busy`](LockError::is_busy) holds.
/// - Nothing, because the call is stored: `Deferred`.
/// - Use another key: `ReusedKey`.
/// - Check what the body did, or roll it back: [`Lost`](LockError::Lost).
/// - Try again later, or repair the servers: [`Unavailable`].
/// - Change what the server or the URL says: [`KeyNotALock`], [`AccessDenied`],
///   [`Authentication`].
/// - Correct the program or its settings: [`InvalidKey`], [`InvalidSetting`], [`Nested`],
///   [`NotInstalled`], [`NoRuntime`].
/// - Nothing, because the program ends: [`ShutDown`].
///
/// A manager that is [connected](crate::LockManager::connect), made ready or installed reports the
/// same errors: a lock of a [lazy](crate::LockManagerBuilder::lazy) manager can find all that its
/// connection would have found.
///
/// [The guide](crate::guide::errors#each-error) says what to do about each.
///
/// # In a web service
/// A response has the [status](LockError::http_status), the header `Retry-After` with
/// [`retry_after_secs`](LockError::retry_after_secs) where that is known, and the
/// [public message](LockError::public_message) in its body. With the feature `axum`, a `LockError`
/// is such a response by itself.
///
/// | error | status | `Retry-After` |
/// |---|---|---|
/// | [`Busy`], [`TimedOut`] | 423 Locked | yes |
/// | [`QueueFull`] | 503 Service Unavailable | yes |
/// | [`Unavailable`] | 503 Service Unavailable | where the call failed at once |
/// | [`ShutDown`] | 503 Service Unavailable | – |
/// | `Deferred`: the call is stored | 202 Accepted | – |
/// | `ReusedKey`: one idempotency key for two requests | 422 Unprocessable Content | – |
/// | [`InvalidKey`]: keys are made of what the client sends | 400 Bad Request | – |
/// | all others, [`Lost`](LockError::Lost) among them | 500 Internal Server Error | – |
///
/// ```
/// use lockmacro_runtime::LockError;
///
/// fn answer(error: &LockError) -> (u16, Option<u64>, &str) {
///     (error.http_status(), error.retry_after_secs(), error.public_message())
/// }
/// # assert_eq!(answer(&LockError::access_denied("no rights")).0, 500);
/// ```
///
/// [`Busy`]: LockError::Busy
/// [`TimedOut`]: LockError::TimedOut
/// [`QueueFull`]: LockError::QueueFull
/// [`Unavailable`]: LockError::Unavailable
/// [`KeyNotALock`]: LockError::KeyNotALock
/// [`AccessDenied`]: LockError::AccessDenied
/// [`Authentication`]: LockError::Authentication
/// [`InvalidKey`]: LockError::InvalidKey
/// [`InvalidSetting`]: LockError::InvalidSetting
/// [`Nested`]: LockError::Nested
/// [`NotInstalled`]: LockError::NotInstalled
/// [`NoRuntime`]: LockError::NoRuntime
/// [`ShutDown`]: LockError::ShutDown
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LockError {
    /// Another holder has the lock. Try again after [`retry_after`](LockError::retry_after), or
    /// show the message to the user.
    #[error("{}", contended(key, holder, *retry_after, None, message))]
    #[non_exhaustive]
    Busy {
        /// The key that is held.
        key: LockKey,
        /// The holder, as far as it is known.
        holder: Box<Holder>,
        /// When to ask again, as in [`retry_after`](LockError::retry_after).
        retry_after: Duration,
        /// The `message` of the lock, for the user.
        message: Option<String>,
    },
    /// Other holders had the lock until the caller's `wait` was over.
    #[error("{}", contended(key, holder, *retry_after, Some(*rank), message))]
    #[non_exhaustive]
    TimedOut {
        /// The key that is held.
        key: LockKey,
        /// The holder, as far as it is known.
        holder: Box<Holder>,
        /// When to ask again, as in [`retry_after`](LockError::retry_after).
        retry_after: Duration,
        /// The rank in the queue: the number of waiters ahead of the caller.
        rank: u32,
        /// The `message` of the lock, for the user.
        message: Option<String>,
    },
    /// The queue of the lock is full.
    #[error(
        "too many callers wait for `{}`: try again in {}s",
        key.shown(),
        whole_seconds(*retry_after)
    )]
    #[non_exhaustive]
    QueueFull {
        /// The key that is held.
        key: LockKey,
        /// When to ask again, as in [`retry_after`](LockError::retry_after).
        retry_after: Duration,
    },
    /// Another holder has the lock, and the call was stored because of `on_busy = defer("30s")`. A
    /// [worker](crate::defer::Worker) runs it later. The caller has nothing left to do.
    #[cfg(feature = "defer")]
    #[error("somebody else holds `{}`: the call was stored, and is due in {due:?}", key.shown())]
    #[non_exhaustive]
    Deferred {
        /// The key that is held.
        key: LockKey,
        /// The id of the job. With `unique` or `latest` it may be the id of an earlier
        /// call.
        id: Box<str>,
        /// Time until the call is due.
        due: Duration,
    },
    /// The lock was lost while the body ran, so another holder may have it now. The work that the
    /// body has done stands: check it, or roll it back.
    #[error(transparent)]
    Lost(#[from] Lost),
    /// The server could not be reached, or could not answer. The lock is not held: a request that
    /// may have been applied is released in the background. A call to be deferred may have been
    /// stored.
    ///
    /// Of a Redlock, fewer nodes than a majority have answered. Where
    /// [replicas](crate::guide::redis#replicated) count, too few of them may have acknowledged the
    /// lock in time: one to be acquired is released, and one to be extended is held as long as
    /// before.
    #[error("the lock server is unavailable: {reason} ({detail}{})", after(", at ", server.as_deref()))]
    #[non_exhaustive]
    Unavailable {
        /// Why, for code that tells one failure from another.
        reason: UnavailableReason,
        /// The text of the server or of the operating system, and what to do about it.
        detail: String,
        /// Host and port of the server, or of every node of a Redlock; `None` where no server is
        /// known, and without a majority, which `nodes` explains.
        server: Option<Box<str>>,
        /// When to ask again, where the call failed at once because the server was down; see
        /// [`fail_fast`](crate::LockManagerBuilder::fail_fast).
        retry_after: Option<Duration>,
        /// The reply of every node, in the order of the manager's URLs, where a Redlock has no
        /// majority.
        nodes: Box<[NodeReply]>,
        /// The error of the connection, for [`source`](std::error::Error::source).
        #[source]
        #[doc(hidden)]
        cause: Option<Cause>,
    },
    /// The key exists and is not a lock: its value is no string or, where a lock is released by
    /// force, was not written by this crate. Choose another key, or delete the value.
    #[error(
        "`{}` is not a lock: the key exists and holds something else; choose another key, or \
         delete that one",
        key.shown()
    )]
    #[non_exhaustive]
    KeyNotALock {
        /// The key with another value.
        key: LockKey,
    },
    /// The server knows the user and refuses a command.
    ///
    /// The error comes when a manager connects. For a user who may access only some keys it comes
    /// with the first lock. For jobs it comes when a worker starts, and when the first
    /// call of a function is stored.
    ///
    /// `lockmacro acl 'order:*'` prints the rights that a user of Redis needs for such keys, as a
    /// line for the server, and `inspect::rights` returns them. In PostgreSQL the user needs `USAGE`
    /// on the schema and `EXECUTE` on its routines.
    ///
    /// [The guide](crate::guide::servers#rights-on-redis) says what needs further rights.
    #[error(
        "the lock server refuses access: {detail}{}{}",
        after(", at ", server.as_deref()),
        after(": the lock needs ", keys.as_deref())
    )]
    #[non_exhaustive]
    AccessDenied {
        /// The rights that the user lacks, or the server's text.
        detail: String,
        /// Host and port of the server, or the path of its socket; `None` where no server is known.
        server: Option<Box<str>>,
        /// The keys that the lock needs, as `ACL SETUSER` takes them; `None` where the server
        /// refuses something else.
        keys: Option<Box<str>>,
    },
    /// The server requires a password, or refuses the given one. Correct the user and password in
    /// the manager's URL.
    #[error("the lock server refuses the login: {detail}{}", after(", at ", server.as_deref()))]
    #[non_exhaustive]
    Authentication {
        /// The server's text.
        detail: String,
        /// Host and port of the server, or the path of its socket; `None` where no server is known.
        server: Option<Box<str>>,
    },
    /// The key is for a call that is made of something else, which has a value, is running or has
    /// failed: see [`ReusingLock::same`](crate::ReusingLock::same). The client has used one
    /// idempotency key for two requests.
    #[cfg(feature = "reuse")]
    #[error("`{}` was used for a different call: use a key of its own for each", key.shown())]
    #[non_exhaustive]
    ReusedKey {
        /// The key that was used before.
        key: LockKey,
    },
    /// The key is empty, too long, reserved, or made of an empty value; or a lock has no key, or
    /// too many.
    #[error("not a usable key: {detail}")]
    #[non_exhaustive]
    InvalidKey {
        /// Why it is invalid.
        detail: String,
    },
    /// A setting of the manager, of its URL, of a lock or of a job cannot be used, or not
    /// in this place. The text says what to write instead.
    #[error("`{setting}` is not usable: {detail}")]
    #[non_exhaustive]
    InvalidSetting {
        /// The name of the setting, the same everywhere.
        setting: &'static str,
        /// Why it is invalid, and what to write instead. Never contains a URL, which may have a
        /// password in it.
        detail: String,
    },
    /// The body of a lock asks for the same key again, in a way that the held lock cannot give:
    ///
    /// - with a fence, where the outer lock is not [`fenced`](crate::Lock::fenced);
    /// - with further keys, where waiting for those could deadlock with another caller;
    /// - exclusively, where the body shares the key with others: it would wait for itself.
    #[error("`{}` is held around this call, {detail}", key.shown())]
    #[non_exhaustive]
    Nested {
        /// The key that is held around the call.
        key: LockKey,
        /// What the held lock does not give, and what to do.
        detail: &'static str,
    },
    /// The lock names no manager, and none is installed. Call [`LockManager::install`] when the
    /// program starts, or name a manager.
    ///
    /// [`LockManager::install`]: crate::LockManager::install
    #[error("{detail}")]
    #[non_exhaustive]
    NotInstalled {
        /// What to do. It is a field, because programs that end with this error show its `Debug`.
        detail: &'static str,
    },
    /// An async lock was requested outside of a tokio runtime, or a blocking one on the thread of a
    /// current-thread runtime, such as a worker of actix: that would stop the task that holds the
    /// lock.
    #[error("{detail}")]
    #[non_exhaustive]
    NoRuntime {
        /// Where to call it instead.
        detail: &'static str,
    },
    /// The manager was shut down. Its [`shutdown`](crate::LockManager::shutdown) says this, too,
    /// where locks were still held when its timeout was over: they end with their bodies, or with
    /// their leases.
    #[error("{}", shut_down(*held))]
    ShutDown {
        /// Number of locks that were held.
        held: usize,
    },
}

/// The text for a contended lock: the holder, and when to ask again. `rank` is for a caller that
/// has waited.
fn contended(
    key: &LockKey,
    holder: &Holder,
    retry_after: Duration,
    rank: Option<u32>,
    message: &Option<String>,
) -> String {
    let key = key.shown();
    let again = format!("try again in {}s", whole_seconds(retry_after));
    // Somebody who looks for a body that is stuck has to know that there is none.
    let by = if holder.is_kept { "kept by the `min_hold` of" } else { "locked by" };
    if let Some(message) = message {
        return format!("{message} ({by} {holder}: {again})");
    }
    if let Some(rank) = rank {
        let held_by = holder.owner.as_ref().map(|_| format!(", which {holder} holds"));
        let held_by = held_by.unwrap_or_default();
        // 0 for the first waiter, and where the rank is not known.
        let queue = if rank > 0 { format!(", {rank} ahead in the queue") } else { String::new() };
        return format!("timed out waiting for `{key}`{held_by}{queue}: {again}");
    }
    let expiry = match (holder.free_within, &holder.owner) {
        (Some(left), _) => {
            return format!("`{key}` is {by} {holder}: {again}, its lease ends in {left:.1?}");
        }
        (None, Some(_)) => "without an expiry",
        (None, None) => {
            "without an expiry, or by several clients, each at some of the lock servers"
        }
    };
    format!("`{key}` is {by} {holder} {expiry}: {again}")
}

fn shut_down(held: usize) -> String {
    match held {
        0 => "the lock manager is shut down, and grants no further locks".to_owned(),
        held => format!(
            "{held} locks were still held at the end of the shutdown's timeout: they end with \
             their bodies or leases; call `shutdown` again to wait for them"
        ),
    }
}

/// Whole seconds for `Retry-After`, rounded up, so that no caller comes too early.
fn whole_seconds(time: Duration) -> u64 {
    time.as_secs().saturating_add(u64::from(time.subsec_nanos() > 0))
}

/// A part of an error's text that is not always known.
fn after(words: &str, part: Option<&str>) -> String {
    part.map(|part| [words, part].concat()).unwrap_or_default()
}

impl From<InvalidKey> for LockError {
    fn from(InvalidKey { detail }: InvalidKey) -> Self {
        LockError::InvalidKey { detail }
    }
}

/// The reply of one node of a Redlock: see [`LockError::Unavailable`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeReply {
    /// Host and port of the node, or the path of its socket.
    pub node: String,
    /// Why the node has not answered; `None` when it has.
    pub error: Option<LockError>,
}

impl fmt::Display for NodeReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.error {
            Some(error) => write!(f, "{}: {error}", self.node),
            None => write!(f, "{} answers", self.node),
        }
    }
}

/// Added once to the error, and not for each node.
const RESTARTED: &str = "a node does not vote until it has run for the longest ttl, as it may have \
    forgotten a lock: set a shorter `longest_ttl`, or use `durable` nodes, which write to disk \
    first";

/// The replies of all nodes as one text.
fn replies(nodes: &[NodeReply]) -> String {
    let is_restarted = |reply: &NodeReply| {
        reply.error.as_ref().and_then(LockError::reason) == Some(UnavailableReason::Restarted)
    };
    let hint = nodes.iter().any(is_restarted).then(|| RESTARTED.to_owned());
    nodes.iter().map(NodeReply::to_string).chain(hint).collect::<Vec<_>>().join("; ")
}
