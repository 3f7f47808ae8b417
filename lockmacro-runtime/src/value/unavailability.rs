//! What is wrong with a server.

/// What is wrong with a server that is [`Unavailable`](crate::LockError::Unavailable).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Unavailability {
    /// It is over its `maxmemory` and takes no new keys until others have gone.
    #[error("out of memory")]
    OutOfMemory,
    /// It could not save its data to disk, and takes no writes until it can.
    #[error("unable to save its data")]
    NotSaving,
    /// Fewer replicas are connected than `min-replicas-to-write` asks for.
    #[error("too few replicas")]
    NotEnoughReplicas,
    /// It is a replica, and takes no writes.
    #[error("a read-only replica")]
    ReadOnly,
    /// It is a replica that lost its primary and serves nothing.
    #[error("a replica without its primary")]
    PrimaryDown,
    /// It is still loading its data from disk.
    #[error("loading its data")]
    Loading,
    /// A script of somebody else keeps it busy.
    #[error("busy with a script")]
    BusyScript,
    /// Its cluster is down or is moving the key's slot.
    #[error("its cluster is not serving the key")]
    ClusterDown,
    /// Nobody listens at its address.
    #[error("connection refused")]
    Refused,
    /// The connection broke.
    #[error("disconnected")]
    Disconnected,
    /// Another server took its place before the lock was there for good.
    #[error("another server has taken its place")]
    Replaced,
    /// A connection could not be encrypted: a certificate is refused, here or by the server.
    #[error("no secure connection")]
    Tls,
    /// It did not answer in time.
    #[error("no answer in time")]
    Timeout,
    /// It answered so late that the lease was over.
    #[error("the answer came after the lease had ended")]
    TooSlow,
    /// It answered something that is no answer to the question.
    #[error("an unexpected answer")]
    Protocol,
    /// The counter of a key's fences is at its end, 2^53, because somebody has set it there: a
    /// fence would be given twice. Delete the key that the detail names, if no resource has seen
    /// such fences.
    #[error("the fences of the key are used up")]
    FencesUsedUp,
    /// It was started too recently to vote: it may have forgotten a lock that is still held.
    #[error("restarted too recently to vote")]
    Restarted,
    /// So many deferred calls wait that it takes no more.
    #[error("its queue of deferred calls is full")]
    QueueFull,
    /// This machine could not give what a lock needs: randomness, or a background thread.
    #[error("this machine is out of resources")]
    Local,
}
