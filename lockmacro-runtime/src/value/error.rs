//! Everything that can go wrong, one variant for each thing a caller can do about it.

use std::fmt;
use std::time::Duration;

use crate::value::busy_text::{busy, timed_out, whole_seconds};
use crate::value::holder::Holder;
use crate::value::key::{InvalidKey, LockKey};
use crate::value::limits::{InvalidTtl, TTL_MIN};
use crate::value::loss::Lost;
use crate::value::unavailability::Unavailability;

/// Why a body did not run, or why its result must not be trusted.
///
/// No message carries the random part of a token, or a password. The variants with fields may
/// gain more of them, so match with `..`.
///
/// ```
/// use lockmacro_runtime::LockError;
///
/// fn status(error: &LockError) -> u16 {
///     match error {
///         error if error.is_busy() => 423,
///         error if error.is_unavailable() => 503,
///         _ => 500,
///     }
/// }
/// # assert_eq!(status(&LockError::NotInstalled), 500);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LockError {
    /// Somebody else holds the lock. Try again after [`retry_after`](LockError::retry_after), or
    /// tell the person who asked.
    #[error("{}", busy(key, holder, *retry_after, message.as_deref()))]
    #[non_exhaustive]
    Busy {
        /// The key that is held.
        key: LockKey,
        /// Who holds it, as far as that is known.
        holder: Box<Holder>,
        /// When to ask again, as in [`retry_after`](LockError::retry_after).
        retry_after: Duration,
        /// The `message` of the lock, for the person who asked.
        message: Option<String>,
    },
    /// Somebody else held the lock for as long as the caller was willing to wait.
    #[error("{}", timed_out(key, holder, *retry_after, *position, message.as_deref()))]
    #[non_exhaustive]
    TimedOut {
        /// The key that is held.
        key: LockKey,
        /// Who holds it, as far as that is known.
        holder: Box<Holder>,
        /// When to ask again, as in [`retry_after`](LockError::retry_after).
        retry_after: Duration,
        /// How many were before the caller in line.
        position: u32,
        /// The `message` of the lock, for the person who asked.
        message: Option<String>,
    },
    /// So many wait for the lock that there is no place in line any more.
    #[error("too many wait for `{}`: try again in {}s", key.shown(), whole_seconds(*retry_after))]
    #[non_exhaustive]
    QueueFull {
        /// The key that is held.
        key: LockKey,
        /// When to ask again, as in [`retry_after`](LockError::retry_after).
        retry_after: Duration,
    },
    /// Somebody else holds the lock, and the call was stored: a [worker](crate::defer::Worker) runs
    /// it later, as `on_busy = defer("30s")` asks. Nothing is left to do for the caller.
    #[cfg(feature = "defer")]
    #[error("deferred for {due:?}, as somebody else holds `{}`", key.shown())]
    #[non_exhaustive]
    Deferred {
        /// The key that is held.
        key: LockKey,
        /// Under which the call is stored; with `unique` that of an earlier call perhaps.
        id: Box<str>,
        /// In how long it is due.
        due: Duration,
    },
    /// The call was to be deferred, and its arguments are larger than what is stored for one call.
    /// The lock was busy, and nothing is stored. Defer an id in place of what it stands for, or
    /// raise
    /// [`max_deferred_size`](crate::LockManagerBuilder::max_deferred_size).
    #[cfg(feature = "defer")]
    #[error(
        "the arguments of the deferred call are {size} bytes long, and {limit} is the limit: \
         store an id instead, or raise `max_deferred_size`"
    )]
    #[non_exhaustive]
    TooLarge {
        /// How long the arguments are as JSON, in bytes.
        size: usize,
        /// How long they may be.
        limit: usize,
    },
    /// A call was to be deferred, and the manager has no queue for deferred calls: a Redlock keeps
    /// none. Give the manager the queue of another one by
    /// [`deferrer`](crate::LockManagerBuilder::deferrer).
    #[cfg(feature = "defer")]
    #[error(
        "a redlock keeps no deferred calls: give its builder the queue of a single server's \
         manager, `.deferrer(other.deferrer())`"
    )]
    NoDeferrer,
    /// Two functions of one worker have the same name, so that calls of one would be run by the
    /// other.
    #[cfg(feature = "defer")]
    #[error(
        "two deferred functions are named `{name}`, or one was registered twice: give one of them \
         another name by `name = \"…\"`"
    )]
    #[non_exhaustive]
    DuplicateName {
        /// The name.
        name: String,
    },
    /// The lock was lost while it was held, so somebody else may hold it now. What the body did up
    /// to then stands: check it, or roll it back.
    #[error(transparent)]
    Lost(#[from] Lost),
    /// The server could not be asked, or could not answer. Nothing is known to be held; a token
    /// that may have been written is released in the background. A call that was to be deferred may have
    /// been stored.
    #[error("the lock server is unavailable: {reason} ({detail})")]
    #[non_exhaustive]
    Unavailable {
        /// What is wrong with the server.
        reason: Unavailability,
        /// The server's or the system's own words.
        detail: String,
    },
    /// Fewer nodes of a Redlock than a majority did what was asked, so that nothing is decided. What
    /// some of them may have written is given back. Look at what each of them said.
    #[error("no majority of the lock servers: {}", replies(nodes))]
    #[non_exhaustive]
    NoQuorum {
        /// Every node, in the order in which they were given.
        nodes: Box<[NodeReply]>,
    },
    /// Fewer replicas than the manager waits for have acknowledged the lock in time. One that was
    /// asked for is given back, and its body has not run; one that was to be extended is held for as
    /// long as before. See to the replicas, or wait for fewer of them or for longer: see
    /// [`replicated`](crate::LockManagerBuilder::replicated).
    #[error(
        "only {acked} of {wanted} replicas have acknowledged `{}` in time{AT}{server}",
        key.shown()
    )]
    #[non_exhaustive]
    InsufficientReplicas {
        /// The key, or one of several.
        key: LockKey,
        /// How many have.
        acked: u32,
        /// How many are waited for.
        wanted: u32,
        /// The host and port of their primary.
        server: Box<str>,
    },
    /// The key exists and is not a string, so it is not a lock; or, where a lock is taken away by
    /// force, no lock of ours. Choose another key, or delete what is there.
    #[error("`{}` is not a lock: the key exists and holds something else", key.shown())]
    #[non_exhaustive]
    KeyNotALock {
        /// The key that is something else.
        key: LockKey,
    },
    /// The server knows the user and refuses the command. It is told when a manager connects; of a
    /// user of some keys only, with the first lock; of deferred calls, when a worker starts and when
    /// the first call of a function is stored. On the lock's keys and on `lm1:*` grant it
    /// `+ping +set +get +getex +del +pttl +pexpire +time +evalsha +eval +zadd +zrem +zrange
    /// +zrank +zcard +zpopmin +hset +hget +hdel`; for waiting also `+subscribe +publish
    /// +pubsub|numsub` and the channels `&lm1:*`; and `+select` when the URL names a database. In a
    /// cluster it is `+ssubscribe +spublish +pubsub|shardnumsub` for waiting, and `+cluster|slots
    /// +asking`; with [`replicated`](crate::LockManagerBuilder::replicated) `+wait`; on the nodes of a
    /// Redlock `+info`. For deferred calls the README names what they need beside these.
    #[error("the lock server refuses access: {detail}")]
    #[non_exhaustive]
    AccessDenied {
        /// The rights that the user lacks, or the server's own words and the keys of the lock.
        detail: String,
    },
    /// The server asks for a password, or refuses the one given. Mend the user and password in
    /// the manager's URL.
    #[error("the lock server refuses the login: {detail}")]
    #[non_exhaustive]
    Authentication {
        /// The server's own words.
        detail: String,
    },
    /// The server has as many clients as it takes. Raise its `maxclients`, or share managers: one
    /// needs two connections, four where HELLO is refused, and up to 32 more with `replicated`.
    #[error("the lock server takes no more clients: {detail}")]
    #[non_exhaustive]
    ConnectionLimit {
        /// The server's own words.
        detail: String,
    },
    /// The key is empty, too long, reserved, or made of an empty value; or there is none, or there are
    /// too many.
    #[error("not a usable key: {detail}")]
    #[non_exhaustive]
    InvalidKey {
        /// What is wrong with it.
        detail: String,
    },
    /// The ttl is outside of 50 ms to 24 h, or longer than a Redlock manager was told that locks
    /// are: see [`longest_ttl`](crate::LockManagerBuilder::longest_ttl).
    #[error("a ttl of {ttl:?} is outside of {TTL_MIN:?} to {longest:?}")]
    #[non_exhaustive]
    InvalidTtl {
        /// The ttl as it was given.
        ttl: Duration,
        /// The longest one that this manager gives.
        longest: Duration,
    },
    /// A fence was asked for inside of a body whose lock was acquired without one. Ask for it where
    /// the lock is acquired.
    #[error("no fence for `{}`: the outer lock was acquired without one", key.shown())]
    #[non_exhaustive]
    NoFence {
        /// The key that is held.
        key: LockKey,
    },
    /// Some of several keys are held around the call, and others are not. To wait for those here could
    /// lock two callers against each other, so take all of them in the outer lock.
    #[error(
        "`{}` is held around this call, and other keys of the same lock are not: take them together",
        key.shown()
    )]
    #[non_exhaustive]
    PartlyHeld {
        /// A key that is held.
        key: LockKey,
    },
    /// The URL names no server that a manager can connect to.
    #[error("not a usable url: {detail}")]
    #[non_exhaustive]
    InvalidUrl {
        /// What is wrong with it; never the URL, which may hold a password.
        detail: String,
    },
    /// A setting of the builder, or of the manager's URL, has a value that it cannot have.
    #[error("`{setting}` is not usable: {detail}")]
    #[non_exhaustive]
    InvalidSetting {
        /// Its name, the same in the builder and in a URL.
        setting: &'static str,
        /// What is wrong with it, and what to write instead.
        detail: String,
    },
    /// No manager was installed and none was given. Call [`LockManager::install`] when the
    /// program starts, or give the lock its own manager.
    ///
    /// [`LockManager::install`]: crate::LockManager::install
    #[error("no lock manager is installed: call `LockManager::install` when the program starts")]
    NotInstalled,
    /// Another manager is the default already. It stays, because locks of two servers would not
    /// exclude each other.
    #[error("another lock manager is installed already")]
    AlreadyInstalled,
    /// A blocking lock was asked for on the thread of a current-thread runtime, as actix' workers
    /// are, where it would stop the task that holds the lock. Make the function async, or call it by
    /// `spawn_blocking`, which is `web::block` in actix.
    #[error(
        "a blocking lock on the thread of a current-thread runtime would stop every other task: make the function async, or call it by `spawn_blocking` (`web::block` in actix)"
    )]
    BlockingInAsync,
    /// An async lock was asked for outside of a tokio runtime.
    #[error("no tokio runtime here: await the lock inside one, with its time and io enabled")]
    NoRuntime,
    /// The manager was shut down.
    #[error("the lock manager is shut down")]
    ShutDown,
    /// Locks were still held when the time for shutting down was over. They end with their
    /// bodies, or by their leases.
    #[error("{held} locks were still held when the time for shutting down was over")]
    #[non_exhaustive]
    ShutdownTimeout {
        /// How many.
        held: usize,
    },
}

/// What stands before the host and port of the server that an error is about.
pub(crate) const AT: &str = ", at ";

impl LockError {
    /// The server that the error names at its end.
    pub(crate) fn server(&self) -> Option<&str> {
        match self {
            LockError::InsufficientReplicas { server, .. } => Some(server),
            LockError::Unavailable { detail, .. } | LockError::ConnectionLimit { detail } => {
                detail.rsplit_once(AT).map(|(_, server)| server)
            }
            _ => None,
        }
    }
}

impl LockError {
    /// Whether the lock could not be had because somebody else holds it: `Busy`, `TimedOut` and
    /// `QueueFull`. Everything else is a fault or a mistake, but for `Deferred`.
    pub fn is_busy(&self) -> bool {
        use LockError::{Busy, QueueFull, TimedOut};
        matches!(self, Busy { .. } | TimedOut { .. } | QueueFull { .. })
    }

    /// Whether the servers could not do what was asked, whoever holds the lock: `Unavailable`,
    /// `NoQuorum`, `InsufficientReplicas` and `ConnectionLimit`. They are to be mended; trying again
    /// later may help.
    pub fn is_unavailable(&self) -> bool {
        use LockError::{ConnectionLimit, InsufficientReplicas, NoQuorum, Unavailable};
        matches!(
            self,
            Unavailable { .. }
                | NoQuorum { .. }
                | InsufficientReplicas { .. }
                | ConnectionLimit { .. }
        )
    }

    /// Puts a message on a lock that is busy, as [`Lock::message`](crate::Lock::message) does. It is
    /// written only then: for every other error nothing happens.
    ///
    /// ```
    /// # use lockmacro_runtime::{Lock, LockManager, LockError};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// # let locks = LockManager::memory();
    /// # let _guard = Lock::new("order:42").manager(&locks).acquire().await?;
    /// # let id = 42;
    /// let busy = Lock::new(format!("order:{id}")).manager(&locks).acquire().await.unwrap_err();
    /// let busy = busy.with_message(format_args!("order {id} is being audited"));
    /// assert!(busy.to_string().starts_with("order 42 is being audited"));
    /// # Ok(()) }
    /// ```
    pub fn with_message(mut self, text: impl fmt::Display) -> Self {
        if let LockError::Busy { message, .. } | LockError::TimedOut { message, .. } = &mut self {
            *message = Some(text.to_string());
        }
        self
    }

    /// [`Unavailable`](LockError::Unavailable), for a [`Deferrer`](crate::jobs::deferrer::Deferrer) of one's own.
    /// The detail is shown, so it has no password in it.
    #[cfg(feature = "defer")]
    pub fn unavailable(reason: Unavailability, detail: impl Into<String>) -> Self {
        LockError::Unavailable { reason, detail: detail.into() }
    }

    /// [`InvalidUrl`](LockError::InvalidUrl) with what is wrong.
    pub(crate) fn invalid_url(detail: impl Into<String>) -> Self {
        LockError::InvalidUrl { detail: detail.into() }
    }

    /// Whether it may be over soon: of a Redlock, unless too many of its nodes have lasting troubles.
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            LockError::Unavailable { .. } | LockError::ConnectionLimit { .. } => true,
            LockError::NoQuorum { nodes } => {
                let errors = nodes.iter().filter_map(|reply| reply.error.as_ref());
                2 * errors.filter(|error| !error.is_transient()).count() < nodes.len()
            }
            _ => false,
        }
    }

    /// Whether it is the servers' and not the key's, so that many callers are told the same at
    /// once.
    pub(crate) fn is_of_servers(&self) -> bool {
        use LockError::{AccessDenied, Authentication};
        self.is_unavailable() || matches!(self, AccessDenied { .. } | Authentication { .. })
    }

    /// The key that somebody else holds.
    #[cfg(feature = "defer")]
    pub(crate) fn busy_key(&self) -> Option<&LockKey> {
        use LockError::{Busy, QueueFull, TimedOut};
        match self {
            Busy { key, .. } | TimedOut { key, .. } | QueueFull { key, .. } => Some(key),
            _ => None,
        }
    }
}

impl From<InvalidKey> for LockError {
    fn from(InvalidKey { detail }: InvalidKey) -> Self {
        LockError::InvalidKey { detail }
    }
}

impl From<InvalidTtl> for LockError {
    fn from(InvalidTtl { ttl, longest }: InvalidTtl) -> Self {
        LockError::InvalidTtl { ttl, longest }
    }
}

/// What one node of a Redlock said: see [`LockError::NoQuorum`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeReply {
    /// Where the node is: host and port, or a path.
    pub node: String,
    /// What is wrong with it; `None` when it has answered.
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

/// Told once, and not for each node.
const YOUNG: &str = "a node does not vote while it is younger than the longest ttl, as it may have \
    forgotten a lock: have a shorter `longest_ttl`, or `durable` nodes, which write to disk first";

fn replies(nodes: &[NodeReply]) -> String {
    let young = |reply: &NodeReply| {
        let restarted = Unavailability::Restarted;
        matches!(&reply.error, Some(LockError::Unavailable { reason, .. }) if *reason == restarted)
    };
    let mend = nodes.iter().any(young).then(|| YOUNG.to_owned());
    nodes.iter().map(NodeReply::to_string).chain(mend).collect::<Vec<_>>().join("; ")
}
