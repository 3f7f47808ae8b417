//! A process: its callers, and its turn.

use crate::server::Block;

/// A token: its process, and which of the process's tokens it is.
pub type Token = u8;

/// Number of processes; those without callers do nothing.
pub const PROCESSES: usize = 3;

/// Tokens of one process that are known at once.
const TOKENS: u8 = 2;

/// The process of a token.
pub fn owner(token: Token) -> usize {
    usize::from(token / TOKENS)
}

/// A process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Process {
    /// Whether it has not died.
    pub is_alive: bool,
    /// Callers that have not held the lock yet.
    pub waiting: u8,
    /// What it does about the lock.
    pub phase: Phase,
    /// Tokens whose release the server has not answered, a bit each.
    retired: u8,
}

/// What a process does about the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Nothing.
    Idle,
    /// It waits for an answer or a push.
    Asking {
        /// For this token.
        token: Token,
        /// Whether time has passed since it asked.
        is_due: bool,
    },
    /// A body runs.
    Held {
        /// Under this token.
        token: Token,
        /// The ticks until the lease ends, as the process counts them.
        left: u8,
        /// The fences that are left.
        fences: Block,
    },
    /// The lock was passed on to a caller that has not taken it up.
    Passed {
        /// With this token.
        token: Token,
        /// The ticks until the lease ends, as the process counts them.
        left: u8,
        /// The fences that are left.
        fences: Block,
    },
}

impl Process {
    /// A process with this number of callers.
    pub fn new(callers: u8) -> Process {
        Process { is_alive: true, waiting: callers, phase: Phase::Idle, retired: 0 }
    }

    /// Its tokens.
    pub fn tokens(process: usize) -> impl Iterator<Item = Token> {
        let first = process as Token * TOKENS;
        first..first + TOKENS
    }

    /// The tokens whose release the server has not answered.
    pub fn retired(self, process: usize) -> impl Iterator<Item = Token> {
        Process::tokens(process).filter(move |token| self.is_retired(*token))
    }

    /// Whether the server has not answered the release of a token.
    pub fn is_retired(self, token: Token) -> bool {
        self.retired & bit(token) != 0
    }

    /// The token is to be released, or the server has answered that it was.
    pub fn retire(&mut self, token: Token, is_retired: bool) {
        self.retired &= !bit(token);
        self.retired |= if is_retired { bit(token) } else { 0 };
    }

    /// Whether it has nothing left to do.
    pub fn is_over(self, process: usize) -> bool {
        let is_idle = self.waiting == 0 && self.phase == Phase::Idle;
        is_idle && self.retired(process).next().is_none()
    }

    /// It dies.
    pub fn crash(&mut self) {
        *self = Process { is_alive: false, ..Process::new(0) };
    }
}

fn bit(token: Token) -> u8 {
    1 << (token % TOKENS)
}

impl Phase {
    /// The token of the turn.
    pub fn token(&self) -> Option<Token> {
        match self {
            Phase::Idle => None,
            Phase::Asking { token, .. }
            | Phase::Held { token, .. }
            | Phase::Passed { token, .. } => Some(*token),
        }
    }

    /// The token, and the ticks until the lease ends.
    pub fn lease(&mut self) -> Option<(&Token, &mut u8)> {
        match self {
            Phase::Held { token, left, .. } | Phase::Passed { token, left, .. } => {
                Some((token, left))
            }
            _ => None,
        }
    }

    /// The fences that are left.
    pub fn fences(&mut self) -> Option<&mut Block> {
        match self {
            Phase::Held { fences, .. } | Phase::Passed { fences, .. } => Some(fences),
            _ => None,
        }
    }

    /// The holder passes the lock on.
    pub fn pass(&mut self) {
        if let Phase::Held { token, left, fences } = *self {
            *self = Phase::Passed { token, left, fences };
        }
    }
}
