//! The server: one lock, its queue and the counter of its fences, and what the scripts do to them.

use crate::variant::Variant;

/// The times of a model, in ticks, and its mistake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// How long a lock is granted for.
    pub ttl: u8,
    /// How long a lock is handed off for until it is confirmed.
    pub confirm_window: u8,
    /// How long a waiter stays in the queue without asking.
    pub lease: u8,
    /// Number of fences of one grant.
    pub block: u64,
    /// What is wrong with the model.
    pub variant: Variant,
}

/// The state of the server.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Server<T> {
    /// The token of the holder, and the ticks until its lease ends.
    pub held: Option<(T, u8)>,
    /// The tokens that wait, in order, each with the ticks until it leaves.
    pub queue: Vec<(T, u8)>,
    /// The last fence.
    pub fence: u64,
    /// Whether the lock is free because a lease has ended, or another program has deleted it.
    pub was_freed: bool,
}

/// The first and the last fence of a grant.
pub type Block = (u64, u64);

/// The answer to a request for the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// The token holds the lock.
    Granted(Block),
    /// The token is in the queue.
    Queued,
    /// Another one holds the lock, and the token does not wait.
    Busy,
}

/// A grant to a token that did not ask for it in this step. It is pushed to its process.
pub type HandOff<T> = Option<(T, Block)>;

impl<T: Clone + Eq> Server<T> {
    /// A server without a lock.
    pub fn new() -> Server<T> {
        Server { held: None, queue: Vec::new(), fence: 0, was_freed: false }
    }

    /// Whether a token holds the lock.
    pub fn is_held_by(&self, token: &T) -> bool {
        self.held.as_ref().is_some_and(|(held, _)| held == token)
    }

    /// Whether a token waits.
    pub fn waits(&self, token: &T) -> bool {
        self.queue.iter().any(|(waiting, _)| waiting == token)
    }

    /// `acquire.lua`.
    pub fn ask(&mut self, rules: &Rules, token: &T, waits: bool) -> (Answer, HandOff<T>) {
        if self.is_held_by(token) {
            return (self.grant(rules, token), None);
        }
        let mut handed_off = None;
        if self.held.is_none() {
            if waits && !self.queue.is_empty() {
                self.join(rules, token);
            }
            if self.queue.is_empty() || self.queue[0].0 == *token {
                return (self.grant(rules, token), None);
            }
            handed_off = self.hand_off(rules);
        }
        if waits {
            self.join(rules, token);
            return (Answer::Queued, handed_off);
        }
        (Answer::Busy, handed_off)
    }

    /// `release.lua` and `release_uncontended.lua`. Returns whether the token held the lock.
    pub fn release(&mut self, rules: &Rules, token: &T) -> (bool, HandOff<T>) {
        let compares = rules.variant != Variant::ReleaseWithoutCompare;
        let was_held = self.held.is_some() && (!compares || self.is_held_by(token));
        if !was_held && rules.variant != Variant::QueueEntryKept {
            self.leave(token);
        }
        if self.held.is_some() && !was_held {
            return (false, None);
        }
        self.held = None;
        let handed_off = self.hand_off(rules);
        (was_held, handed_off)
    }

    /// `renew.lua`. Returns whether the token holds the lock.
    pub fn renew(&mut self, rules: &Rules, token: &T) -> bool {
        match &mut self.held {
            Some((held, left)) if held == token => {
                *left = rules.ttl.max(*left);
                true
            }
            _ => false,
        }
    }

    /// The lease of the holder ends, or another program deletes the lock.
    pub fn expire(&mut self) {
        self.held = None;
        self.was_freed = true;
    }

    /// A token leaves the queue.
    pub fn leave(&mut self, token: &T) {
        self.queue.retain(|(waiting, _)| waiting != token);
    }

    /// Time passes.
    pub fn tick(&mut self) {
        if let Some((_, left)) = &mut self.held {
            *left -= 1;
            if *left == 0 {
                self.expire();
            }
        }
        self.queue.iter_mut().for_each(|(_, left)| *left -= 1);
        self.queue.retain(|(_, left)| *left > 0);
    }

    fn join(&mut self, rules: &Rules, token: &T) {
        match self.queue.iter_mut().find(|(waiting, _)| waiting == token) {
            Some((_, left)) => *left = rules.lease,
            None => self.queue.push((token.clone(), rules.lease)),
        }
    }

    fn grant(&mut self, rules: &Rules, token: &T) -> Answer {
        self.leave(token);
        let left = self.held.as_ref().map_or(0, |(_, left)| *left);
        self.held = Some((token.clone(), rules.ttl.max(left)));
        self.was_freed = false;
        Answer::Granted(self.next_fences(rules))
    }

    /// `promote` in `queue.lua`.
    fn hand_off(&mut self, rules: &Rules) -> HandOff<T> {
        if self.queue.is_empty() {
            return None;
        }
        let (head, _) = self.queue.remove(0);
        self.held = Some((head.clone(), rules.confirm_window.min(rules.ttl)));
        self.was_freed = false;
        Some((head, self.next_fences(rules)))
    }

    /// `next_fences` in `queue.lua`: numbers that were never given before.
    fn next_fences(&mut self, rules: &Rules) -> Block {
        let first = self.fence + 1;
        self.fence += rules.block;
        (first, self.fence)
    }
}

impl<T: Clone + Eq> Default for Server<T> {
    fn default() -> Server<T> {
        Server::new()
    }
}
