//! Kinds of server failures.

/// The kind of failure of a server that is [`Unavailable`](crate::LockError::Unavailable).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Unavailability {
    /// The server is over its `maxmemory` and accepts no new keys until others are gone.
    #[error("out of memory")]
    OutOfMemory,
    /// The server could not save its data to disk, and accepts no writes until it can.
    #[error("unable to save its data")]
    NotSaving,
    /// Fewer replicas are connected than `min-replicas-to-write` requires.
    #[error("too few replicas")]
    NotEnoughReplicas,
    /// The server is a replica, and accepts no writes.
    #[error("a read-only replica")]
    ReadOnly,
    /// The server is a replica without its primary, and answers no commands.
    #[error("a replica without its primary")]
    PrimaryDown,
    /// The server is still loading its data from disk.
    #[error("loading its data")]
    Loading,
    /// Another client's script keeps the server busy.
    #[error("busy with a script")]
    BusyScript,
    /// The cluster is down or is moving the key's slot.
    #[error("its cluster is not serving the key")]
    ClusterDown,
    /// No server listens at the address.
    #[error("connection refused")]
    Refused,
    /// The connection broke.
    #[error("disconnected")]
    Disconnected,
    /// Another server took the place of the lock's server before the lock was confirmed.
    #[error("another server has taken its place")]
    Replaced,
    /// The connection could not be encrypted: the client or the server refused a certificate.
    #[error("no secure connection")]
    Tls,
    /// The server did not answer in time.
    #[error("no answer in time")]
    Timeout,
    /// The server answered after the lease was over.
    #[error("the answer came after the lease had ended")]
    TooSlow,
    /// The server's answer does not fit the request.
    #[error("an unexpected answer")]
    Protocol,
    /// The fence counter of a key is at its end, 2^53, which only a foreign write can bring about.
    /// Another grant would repeat a fence. If no resource has seen such fences, delete the key that
    /// the detail names.
    #[error("the fences of the key are used up: its fence counter is at 2^53")]
    FencesUsedUp,
    /// The node was started too recently to vote: it may have forgotten a lock that is still held.
    #[error("restarted too recently to vote")]
    Restarted,
    /// The queue of deferred calls is full.
    #[error("its queue of deferred calls is full")]
    TooManyDeferred,
    /// The client's machine has no random numbers or no thread left, which a lock needs.
    #[error("this machine is out of resources")]
    Local,
}
