//! The store of the model: one server that has one key, with the protocol's scripts in few lines.

use std::cell::Cell;
use std::fmt;
use std::time::Duration;

use super::engine::QueuedAsk;
use super::value::fence::FenceBlock;
use super::value::limits::CONFIRM_WINDOW;

/// Times are counted in microseconds.
pub(crate) const MS: u64 = 1_000;
pub(crate) const S: u64 = 1_000 * MS;
pub(crate) const WINDOW: u64 = CONFIRM_WINDOW.as_secs() * S;
/// How long a waiter stays in the queue without asking.
const WAITER: u64 = 10 * S;
/// Most fences in a block.
const BLOCK: u64 = 256;

/// The token of another program.
pub(crate) const FOREIGN: Token = Token { number: 0, process: usize::MAX, window: WINDOW };

#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(crate) struct Token {
    pub(crate) number: u64,
    pub(crate) process: usize,
    /// For how long the queue asks with it: the ttl of the caller that it was made for, or the
    /// confirm window if that is shorter.
    pub(crate) window: u64,
}

thread_local! {
    /// The number of the last token.
    pub(crate) static LAST: Cell<u64> = const { Cell::new(0) };
}

impl Token {
    pub(crate) fn new(process: usize, ttl: u64) -> Self {
        LAST.set(LAST.get() + 1);
        Self { number: LAST.get(), process, window: ttl.min(WINDOW) }
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({})", self.number)
    }
}

/// What a caller asks for.
#[derive(Debug, Clone)]
pub(crate) struct Wish {
    pub(crate) token: Token,
    pub(crate) ttl: u64,
    pub(crate) fenced: bool,
    pub(crate) waits: bool,
}

impl QueuedAsk for Wish {
    type Token = Token;

    fn ttl(&self) -> Duration {
        Duration::from_micros(self.ttl)
    }

    fn is_fenced(&self) -> bool {
        self.fenced
    }

    fn waits(&self) -> bool {
        self.waits
    }

    fn another(&self) -> Token {
        Token::new(self.token.process, self.ttl)
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Command {
    /// `SET NX`: knows nothing of the queue and of fences.
    Set { token: Token, ttl: u64 },
    /// `acquire.lua`
    Acquire { token: Token, ttl: u64, fenced: bool, waits: bool },
    /// `release.lua`
    Release { token: Token },
    /// `renew.lua`
    Renew { token: Token, ttl: u64 },
}

impl Command {
    /// The token of a command that may acquire the lock.
    pub(crate) fn asks_with(self) -> Option<Token> {
        match self {
            Self::Set { token, .. } | Self::Acquire { token, .. } => Some(token),
            _ => None,
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Reply {
    /// `at`: when it was granted, by the server's clock.
    Granted { at: u64, fences: Option<FenceBlock>, ttl: u64 },
    /// This token has the lock.
    Busy(Token),
    /// The token waits. `left`: what is left of the holder's ttl.
    Queued { now: u64, left: u64 },
    /// It held the lock.
    Yes,
    /// It did not.
    No,
}

/// A hand-off to a waiter.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Push {
    pub(crate) token: Token,
    pub(crate) fences: Option<FenceBlock>,
    pub(crate) at: u64,
    pub(crate) ttl: u64,
}

#[derive(Debug, Clone)]
struct Record {
    token: Token,
    deadline: u64,
    ttl: u64,
    fenced: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Server {
    pub(crate) now: u64,
    /// The holder, and the end of its ttl.
    pub(crate) lock: Option<(Token, u64)>,
    queue: Vec<Record>,
    last_fence: u64,
    /// The processes that are dead: nobody listens for their pushes.
    pub(crate) dead: Vec<bool>,
    pub(crate) pushes: Vec<Push>,
}

impl Server {
    pub(crate) fn new(now: u64, processes: usize) -> Self {
        Self { now, dead: vec![false; processes], ..Self::default() }
    }

    pub(crate) fn holder(&mut self) -> Option<Token> {
        self.lock = self.lock.filter(|(_, end)| *end > self.now);
        self.lock.map(|(token, _)| token)
    }

    pub(crate) fn is_waited_for(&self) -> bool {
        self.queue.iter().any(|record| record.deadline > self.now)
    }

    /// Another server without data takes the place of this one.
    pub(crate) fn replace(&mut self) {
        (self.lock, self.last_fence) = (None, 0);
        self.queue.clear();
    }

    pub(crate) fn run(&mut self, command: Command) -> Reply {
        match command {
            Command::Set { token, ttl } => match self.holder() {
                None => self.grant(token, ttl, false),
                Some(holder) => Reply::Busy(holder),
            },
            Command::Acquire { token, ttl, fenced, waits } => {
                self.acquire(token, ttl, fenced, waits)
            }
            Command::Release { token } => {
                let was_held = self.holder() == Some(token);
                // Before the hand-off: a late SET may have granted a token that is in the queue.
                self.queue.retain(|record| record.token != token);
                if was_held {
                    self.lock = None;
                }
                if self.lock.is_none() {
                    self.promote(None);
                }
                if was_held { Reply::Yes } else { Reply::No }
            }
            Command::Renew { token, .. } if self.holder() != Some(token) => Reply::No,
            Command::Renew { ttl, .. } => {
                self.extend(ttl);
                Reply::Yes
            }
        }
    }

    fn acquire(&mut self, token: Token, ttl: u64, fenced: bool, waits: bool) -> Reply {
        let holder = self.holder();
        if holder == Some(token) {
            self.queue.retain(|record| record.token != token);
            self.extend(ttl);
            let fences = fenced.then(|| self.fences());
            return Reply::Granted { at: self.now, fences, ttl };
        }
        if waits {
            let record = Record { token, deadline: self.now + WAITER, ttl, fenced };
            match self.queue.iter().position(|record| record.token == token) {
                Some(own) => self.queue[own] = record,
                None if holder.is_none() && self.queue.is_empty() => {}
                None => self.queue.push(record),
            }
        }
        if holder.is_none() && !self.promote(Some(token)) {
            return self.grant(token, ttl, fenced);
        }
        match self.lock {
            Some((_, end)) if waits => Reply::Queued { now: self.now, left: end - self.now },
            Some((holder, _)) => Reply::Busy(holder),
            None => Reply::No,
        }
    }

    /// Hands the lock off to the first live waiter, unless that is the caller. Returns whether
    /// there is one.
    fn promote(&mut self, caller: Option<Token>) -> bool {
        while !self.queue.is_empty() {
            let Record { token, deadline, ttl, fenced } = self.queue.remove(0);
            if Some(token) == caller {
                return false;
            }
            if deadline > self.now && !self.dead[token.process] {
                let fences = fenced.then(|| self.fences());
                self.lock = Some((token, self.now + ttl));
                self.pushes.push(Push { token, fences, at: self.now, ttl });
                return true;
            }
        }
        false
    }

    fn grant(&mut self, token: Token, ttl: u64, fenced: bool) -> Reply {
        self.lock = Some((token, self.now + ttl));
        let fences = fenced.then(|| self.fences());
        Reply::Granted { at: self.now, fences, ttl }
    }

    fn extend(&mut self, ttl: u64) {
        if let Some((_, end)) = &mut self.lock {
            *end = (*end).max(self.now + ttl);
        }
    }

    /// Numbers that were never given before, which end at the clock.
    fn fences(&mut self) -> FenceBlock {
        let next = self.last_fence + 1;
        let last = next.max(self.now);
        let first = if self.last_fence > 0 { next.max(last + 1 - BLOCK) } else { last };
        self.last_fence = last;
        FenceBlock::new(first, last)
    }
}
