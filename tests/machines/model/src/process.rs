//! A process: its callers, and its turn.

use crate::server::Block;

/// A token: its process, and which of the process's tokens it is.
pub type Token = u8;

/// Number of processes; those without callers do nothing.
pub const PROCESSES: usize = 3;

/// Tokens of one process that are known at once.
const TOKENS: u8 = 2;

pub fn owner(token: Token) -> usize {
    usize::from(token / TOKENS)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Process {
    pub is_alive: bool,
    /// Callers that have not held the lock yet.
    pub waiting: u8,
    pub phase: Phase,
    /// Tokens whose release the server has not answered, a bit each.
    retired: u8,
}

/// What a process does about the lock. `left`: the ticks until its lease ends, as it counts them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Nothing.
    Idle,
    /// It waits for an answer or a push, and has to ask again when time has passed.
    Asking { token: Token, is_due: bool },
    /// A body runs, and these fences are left.
    Held { token: Token, left: u8, fences: Block },
    /// The lock was passed on to a caller that has not taken it up.
    Passed { token: Token, left: u8, fences: Block },
}

impl Process {
    pub fn new(callers: u8) -> Process {
        Process { is_alive: true, waiting: callers, phase: Phase::Idle, retired: 0 }
    }

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

    pub fn crash(&mut self) {
        *self = Process { is_alive: false, ..Process::new(0) };
    }
}

fn bit(token: Token) -> u8 {
    1 << (token % TOKENS)
}

impl Phase {
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

    pub fn fences(&mut self) -> Option<&mut Block> {
        match self {
            Phase::Held { fences, .. } | Phase::Passed { fences, .. } => Some(fences),
            _ => None,
        }
    }

    pub fn pass(&mut self) {
        if let Phase::Held { token, left, fences } = *self {
            *self = Phase::Passed { token, left, fences };
        }
    }
}
