//! A request for a lock, as a store sees it.

use std::any::Any;
use std::slice;
use std::sync::Arc;
use std::time::Duration;

use crate::protocol::ask::Ask;
use crate::protocol::token::{AttemptsOfKey, ServerAttempts, TokenState};
use crate::sys::time::Moment;
use crate::value::key::LockKey;
use crate::value::limits::{CONFIRM_WINDOW, WAITER_TTL};
use crate::value::token::Token;

/// What is asked for, and by which token. A lock is renewed and released by the same.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) ask: Arc<Ask>,
    pub(crate) token: Arc<TokenState>,
}

impl Request {
    /// A request with the token `secret`, which was not sent before.
    pub(crate) fn new(ask: impl Into<Arc<Ask>>, secret: Token) -> Self {
        Self { ask: ask.into(), token: Arc::new(TokenState::new(secret)) }
    }

    /// The same request for some of its keys, for `ttl`.
    pub(crate) fn part(&self, keys: &[LockKey], ttl: Duration) -> Self {
        let all = self.ask.keys().iter().zip(self.attempts_of_keys());
        let theirs = all.filter(|(key, _)| keys.contains(key));
        let theirs = theirs.map(|(_, attempts)| Arc::clone(attempts)).collect();
        let token = self.token.part(self.token.secret.clone(), theirs);
        Self { ask: Arc::new(self.ask.part(keys, ttl)), token: Arc::new(token) }
    }

    /// A request for each of its keys.
    pub(crate) fn each(&self) -> Vec<Self> {
        let alone = |key| self.part(slice::from_ref(key), self.ask.ttl);
        self.ask.keys().iter().map(alone).collect()
    }

    /// The `nth` attempt of a Redlock at this request.
    pub(crate) fn attempt(&self, nth: u64) -> Self {
        let secret = self.token.secret.nth(nth);
        let token = self.token.part(secret, self.attempts_of_keys().into());
        Self { ask: Arc::new(self.ask.for_a_node()), token: Arc::new(token) }
    }

    /// The request of a caller that its queue goes on with, and the caller no more; `None` if its
    /// token was released.
    pub(crate) fn take_over(&self, now: Moment) -> Option<Self> {
        let token = self.token.take_over(self.ask.ttl, now)?;
        Some(Self { ask: Arc::clone(&self.ask), token: Arc::new(token) })
    }

    /// Records a grant that a request sent at `sent` has brought, for `min_hold`.
    pub(crate) fn note_granted(&self, sent: Moment) {
        let min_hold = self.ask.min_hold;
        if !min_hold.is_zero() {
            self.token.note_stays_until(sent.after(min_hold));
        }
    }

    /// How long the key, or the token in its queue, may last without a release.
    pub(crate) fn lasts(&self, now: Moment) -> Duration {
        let is_queued = self.token.was_queued();
        let queued = if is_queued { WAITER_TTL + CONFIRM_WINDOW } else { Duration::ZERO };
        self.token.kept_for(self.ask.ttl, now).max(queued)
    }

    /// The attempts for its first key, which the store makes once.
    pub(crate) fn attempts<A: ServerAttempts + Default>(&self) -> Arc<A> {
        let attempts: Arc<dyn Any + Send + Sync> =
            Arc::clone(self.attempts_of_keys()[0].get_or_init(|| Arc::new(A::default()))) as _;
        attempts.downcast().expect("a request is sent by stores of one kind only")
    }

    fn attempts_of_keys(&self) -> &[AttemptsOfKey] {
        self.token.attempts_of(self.ask.keys().len())
    }
}

/// Requests are equal that are for the same token.
impl PartialEq for Request {
    fn eq(&self, other: &Self) -> bool {
        self.token.secret == other.token.secret
    }
}

#[cfg(test)]
impl Request {
    /// A request with a token of its own.
    pub(crate) fn of(ask: Ask) -> Self {
        Self::new(ask, Token::new("test", "", "").unwrap())
    }
}
