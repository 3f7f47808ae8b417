//! Why a server is unavailable.

use std::fmt;

/// Why a server is [unavailable](crate::LockError::Unavailable). Its `Display` is a few words
/// without the server's own text, as for a label. Further reasons may be added.
///
/// ```
/// use lockmacro_runtime::{LockError, UnavailableReason};
///
/// /// Whether an operator has to do something, other than to wait.
/// fn pages_somebody(error: &LockError) -> bool {
///     use UnavailableReason::{FencesUsedUp, NotSaving, OutOfMemory, ReadOnly, Tls};
///     matches!(error.reason(), Some(FencesUsedUp | NotSaving | OutOfMemory | ReadOnly | Tls))
/// }
/// # assert!(!pages_somebody(&LockError::access_denied("no rights")));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum UnavailableReason {
    /// The server is over its `maxmemory` and accepts no new keys until others are gone.
    OutOfMemory,
    /// The server could not save its data to disk, and accepts no writes until it can.
    NotSaving,
    /// Fewer replicas are connected than `min-replicas-to-write` requires.
    NotEnoughReplicas,
    /// The server is a replica, and accepts no writes.
    ReadOnly,
    /// The server is a replica without its primary, and answers no commands.
    PrimaryDown,
    /// The server is still loading its data from disk.
    Loading,
    /// Another client's script keeps the server busy.
    BusyScript,
    /// The cluster is down or is moving the key's slot.
    ClusterDown,
    /// No server listens at the address.
    Refused,
    /// The connection broke.
    Disconnected,
    /// Another server took the place of the lock's server before the lock was confirmed.
    Replaced,
    /// The connection could not be encrypted: the client or the server refused a certificate.
    Tls,
    /// The server did not answer in time.
    Timeout,
    /// The server answered after the lease was over.
    TooSlow,
    /// The server's answer does not fit the request.
    Protocol,
    /// The fence counter of a key is at its end, 2^53, which only a foreign write can bring about.
    /// Another grant would repeat a fence. If no resource has seen such fences, delete the key that
    /// the detail names.
    FencesUsedUp,
    /// The node was started too recently to vote: it may have forgotten a lock that is still held.
    Restarted,
    /// The queue of jobs is full.
    TooManyJobs,
    /// The client's machine has no random numbers or no thread left, which a lock needs.
    Local,
    /// The server has reached its limit of clients. A manager needs two connections, and
    /// up to 32 more with `replicated`.
    ConnectionLimit,
    /// Fewer nodes of a Redlock than a majority have answered.
    NoQuorum,
    /// Fewer replicas than required have acknowledged the lock in time.
    NotAcknowledged,
    /// The failure of a custom queue of jobs.
    Other,
}

impl UnavailableReason {
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::OutOfMemory => "out of memory",
            Self::NotSaving => "unable to save its data",
            Self::NotEnoughReplicas => "too few replicas",
            Self::ReadOnly => "a read-only replica",
            Self::PrimaryDown => "a replica without its primary",
            Self::Loading => "loading its data",
            Self::BusyScript => "busy with a script",
            Self::ClusterDown => "its cluster is not serving the key",
            Self::Refused => "connection refused",
            Self::Disconnected => "disconnected",
            Self::Replaced => "another server has taken its place",
            Self::Tls => "no secure connection",
            Self::Timeout => "no answer in time",
            Self::TooSlow => "the answer came after the lease had ended",
            Self::Protocol => "an unexpected answer",
            Self::FencesUsedUp => "the fences of the key are used up",
            Self::Restarted => "restarted too recently to vote",
            Self::TooManyJobs => "its queue of jobs is full",
            Self::Local => "this machine is out of resources",
            Self::ConnectionLimit => "it accepts no more clients",
            Self::NoQuorum => "no majority of its nodes",
            Self::NotAcknowledged => "too few replicas have acknowledged the lock",
            Self::Other => "unable to answer",
        }
    }
}

impl fmt::Display for UnavailableReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}
