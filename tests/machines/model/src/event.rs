//! What happens at a server, as a trace of a run tells it.

use crate::server::Block;

/// An event of a trace, at one lock.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are explained with their event")]
pub enum Event {
    /// `acquire.lua`: a token asks for the lock, and waits or does not. The reply may be lost.
    Asked { token: String, waits: bool, reply: Reply },
    /// The plain `SET` of a token. It may overtake the queue of a lock that is free.
    Set { token: String, granted: bool },
    /// A grant to a token that did not ask, by the event before, with fences if it wants any.
    HandedOff { token: String, fences: Option<Block> },
    /// `release.lua`: a token that held the lock releases it, and the key stays for a while or does
    /// not; or a token leaves the queue.
    Released { token: String, held: bool, keeps: bool },
    /// `renew.lua`, of a token that held the lock or did not.
    Renewed { token: String, held: bool },
    /// A token is removed from the queue, because it has not asked for too long, or nobody listens.
    Left { token: String },
    /// The next event removes no more dead waiters, though the lock is free.
    TooManyDead,
    /// The lease of the holder ends, or another program deletes the lock.
    Freed,
    /// Another program sets the lock.
    Foreign,
    /// The counter of the fences is forgotten, or changed from outside: the last fence.
    Counter { last: u64 },
    /// The body of a holder begins, with its fence if it has one.
    Began { token: String, fence: Option<u64> },
    /// The body of a holder ends.
    Ended { token: String },
    /// Who has the lock now, and who waits, in order.
    Seen { held: Option<String>, queue: Vec<String> },
}

/// The answer to a request for the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reply {
    /// The token has the lock, with fences if it wants any.
    Granted(Option<Block>),
    /// It is in the queue.
    Queued,
    /// Another one has the lock, and the token does not wait.
    Busy,
    /// The queue is full.
    Full,
}
