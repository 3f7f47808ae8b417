//! Messages between processes and the server, and what happens.

use crate::process::Token;
use crate::server::Block;

/// A message that was sent, and has not arrived.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Message {
    /// A request for the lock, sent `age` ticks ago.
    Ask { token: Token, age: u8 },
    /// A release, or the end of a wait.
    Release { token: Token },
    /// A renewal, or the confirmation of a hand-off. It is answered at once: what the process does
    /// not know of it yet, only makes its lease longer.
    Renew { token: Token, age: u8 },
    /// A grant, in an answer or a push. `left`: of the lease, as the process counts it.
    Grant { token: Token, left: u8, fences: Block },
}

impl Message {
    pub fn token(&self) -> Token {
        match self {
            Message::Ask { token, .. }
            | Message::Release { token }
            | Message::Renew { token, .. }
            | Message::Grant { token, .. } => *token,
        }
    }

    /// Time passes while it is on its way. Ages are not counted beyond the ttl.
    pub fn tick(&mut self, ttl: u8) {
        match self {
            Message::Ask { age, .. } | Message::Renew { age, .. } => *age = (*age + 1).min(ttl),
            Message::Grant { left, .. } => *left = left.saturating_sub(1),
            Message::Release { .. } => {}
        }
    }

    /// Whether it is as late as messages are in this model.
    pub fn is_late(&self, ttl: u8) -> bool {
        match self {
            Message::Ask { age, .. } | Message::Renew { age, .. } => *age == ttl,
            Message::Grant { left, .. } => *left == 0,
            Message::Release { .. } => false,
        }
    }
}

/// What happens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// A process asks for the first of its callers.
    Ask(usize),
    /// It asks again, because it has not received an answer or a push.
    AskAgain(usize),
    /// It confirms its lock, or renews it.
    Renew(usize),
    /// The holder ends, and passes the lock on to the next caller of the process.
    Pass(usize),
    /// That caller takes it up.
    TakeUp(usize),
    /// The holder ends, and the lock is released.
    Release(usize),
    /// A release was not answered, and is sent again.
    ReleaseAgain(Token),
    /// A caller that waits leaves.
    Drop(usize),
    /// A process dies.
    Crash(usize),
    /// A message arrives.
    Deliver(Message),
    /// A message is lost.
    Lose(Message),
    /// A message arrives twice.
    Double(Message),
    /// Time passes.
    Tick,
}
