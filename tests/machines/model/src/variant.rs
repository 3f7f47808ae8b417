//! Mistakes that the search must find.

/// What is wrong with a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Variant {
    /// Nothing.
    None,
    /// A release deletes the lock, whoever holds it.
    ReleaseWithoutCompare,
    /// A process that was handed the lock takes it for granted for the whole ttl, and does not
    /// confirm it.
    NotConfirmed,
    /// A lock that was passed on is taken up without a look at the lease.
    TakenUpTooLate,
    /// A caller that leaves stays in the server's queue.
    QueueEntryKept,
    /// A lock is passed on with the fence of the holder before.
    FencePassedOn,
    /// A lease is counted from the answer on, and not from the request.
    CountedFromTheAnswer,
    /// A push that does not arrive is waited for without asking again.
    NeverAsksAgain,
    /// The fence of a Redlock comes from one node.
    FenceOfOneNode,
    /// The fence of a Redlock is the largest of a majority, and no node is told.
    NoSecondRound,
    /// A node that has forgotten its locks and fences votes at once.
    ForgetfulNodeVotes,
}
