//! What happens at a server, as a trace of a run tells it.

use crate::server::Block;

/// An event of a trace, at one lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// `acquire.lua`: a token asks for the lock.
    Asked {
        /// The token.
        token: String,
        /// Whether it waits.
        waits: bool,
        /// The answer, whether it arrived or not.
        reply: Reply,
    },
    /// The plain `SET` of a token. It may overtake the queue of a lock that is free.
    Set {
        /// The token.
        token: String,
        /// Whether it has the lock.
        granted: bool,
    },
    /// A grant to a token that did not ask, by the event before.
    HandedOff {
        /// The token.
        token: String,
        /// Its fences, if it wants any.
        fences: Option<Block>,
    },
    /// `release.lua`: a token releases the lock, or leaves the queue.
    Released {
        /// The token.
        token: String,
        /// Whether it held the lock.
        held: bool,
        /// Whether the key stays for a while.
        keeps: bool,
    },
    /// `renew.lua`.
    Renewed {
        /// The token.
        token: String,
        /// Whether it held the lock.
        held: bool,
    },
    /// A token is removed from the queue, because it has not asked for too long, or nobody listens.
    Left {
        /// The token.
        token: String,
    },
    /// The next event removes no more dead waiters, though the lock is free.
    TooManyDead,
    /// The lease of the holder ends, or another program deletes the lock.
    Freed,
    /// Another program sets the lock.
    Foreign,
    /// The counter of the fences is forgotten, or changed from outside.
    Counter {
        /// The last fence.
        last: u64,
    },
    /// The body of a holder begins.
    Began {
        /// Its token.
        token: String,
        /// Its fence, if it has one.
        fence: Option<u64>,
    },
    /// The body of a holder ends.
    Ended {
        /// Its token.
        token: String,
    },
    /// What is at the server now.
    Seen {
        /// The holder; `None` for a lock that is free.
        held: Option<String>,
        /// Who waits, in order.
        queue: Vec<String>,
    },
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
