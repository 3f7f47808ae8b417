//! What has become of one token: what the servers may have of it, and for how long.

use std::any::Any;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::sys::time::{LastMoment, Moment};
use crate::value::applied::Applied;
use crate::value::token::Token;

/// The token may be sent.
const ASKS: u8 = 0;
/// A release of the token was sent.
const RELEASED: u8 = 1;
/// The queue asks with the token, and has a state of its own for it.
const TAKEN_OVER: u8 = 2;

/// A token, and what was done with it. All who have it one after the other share this: who asks
/// with it, the guards to which the lock is passed on, and the cleanup. But a queue that goes on
/// with the token of a caller makes a state of its own, because the caller may still write into the
/// first one.
#[derive(Debug)]
pub(crate) struct TokenState {
    pub(crate) secret: Token,
    /// It is its queue's, for all that wait: the queue has drawn it, or has taken it over.
    pub(crate) is_of_queue: bool,
    /// Whether the requests with it were applied: an [`Applied`]. The attempts know more.
    applied: AtomicU8,
    /// What may still be done with it: [`ASKS`], [`RELEASED`] or [`TAKEN_OVER`].
    stage: AtomicU8,
    /// It may be in a queue of the store.
    queued: AtomicBool,
    /// A waiter waits for the release, or this one may share the lock with others that wait.
    awaited: AtomicBool,
    /// End of the holder's `min_hold`.
    stays: LastMoment,
    /// Until when the server was asked to keep the lock, where that is longer than for the ttl.
    kept: LastMoment,
    /// The attempts at the nodes of a Redlock, one for each key.
    attempts: OnceLock<Box<[AttemptsOfKey]>>,
}

/// The attempts of a request for one of its keys, where the locks are on several servers: each of
/// them may have a token that it has not answered for.
pub(crate) trait ServerAttempts: Any + fmt::Debug + Send + Sync {
    /// Whether no server has a token, and no request can bring one any more.
    fn is_clear(&self) -> bool;

    /// Whether a server may have a token, as far as it has answered.
    fn is_doubtful(&self) -> bool;

    /// When the current attempt began.
    fn began(&self) -> Option<Moment>;
}

/// Those of one key, which a request shares with its parts; empty until the store has made them.
pub(super) type AttemptsOfKey = Arc<OnceLock<Arc<dyn ServerAttempts>>>;

impl TokenState {
    /// That of a caller.
    pub(crate) fn new(secret: Token) -> Self {
        Self {
            secret,
            is_of_queue: false,
            applied: AtomicU8::new(Applied::Unknown as u8),
            stage: AtomicU8::new(ASKS),
            queued: AtomicBool::new(false),
            awaited: AtomicBool::new(false),
            stays: LastMoment::default(),
            kept: LastMoment::default(),
            attempts: OnceLock::new(),
        }
    }

    /// That of a queue, with which no caller has asked. It is not applied before it is sent, which
    /// may take a subscription first.
    pub(crate) fn of_queue(secret: Token) -> Self {
        let applied = AtomicU8::new(Applied::No as u8);
        Self { is_of_queue: true, applied, ..Self::new(secret) }
    }

    /// The queue goes on with the token of a caller, who neither asks with it nor releases it from
    /// here on. `None` if it was released. The server may keep the lock for `ttl` if the caller's
    /// request is applied.
    pub(super) fn take_over(&self, ttl: Duration, now: Moment) -> Option<Self> {
        if self.ends_use(TAKEN_OVER) != ASKS {
            return None;
        }
        let token = Self {
            is_of_queue: true,
            applied: AtomicU8::new(self.own_applied() as u8),
            kept: self.kept.clone(),
            attempts: self.attempts.clone(),
            ..Self::new(self.secret.clone())
        };
        if token.applied().may_be() {
            token.note_kept_until(now.after(ttl));
        }
        Some(token)
    }

    /// A token of the same holder for some of its keys, which have these `attempts`. What becomes
    /// of it there says nothing of the others.
    pub(super) fn part(&self, secret: Token, attempts: Box<[AttemptsOfKey]>) -> Self {
        Self {
            queued: AtomicBool::new(self.was_queued()),
            stays: self.stays.clone(),
            attempts: OnceLock::from(attempts),
            ..Self::new(secret)
        }
    }

    /// Whether a queue has gone on with it.
    pub(crate) fn is_taken_over(&self) -> bool {
        self.stage.load(Ordering::Acquire) == TAKEN_OVER
    }

    /// Records that a release of the token is sent. A late copy of it would delete a lock that the
    /// token is granted afterwards. Returns false if a queue has gone on with it: then it must not
    /// be released.
    pub(crate) fn note_released(&self) -> bool {
        self.ends_use(RELEASED) != TAKEN_OVER
    }

    /// Whether a release of the token was sent. Then only another one may ask for the lock.
    pub(crate) fn was_released(&self) -> bool {
        self.stage.load(Ordering::Acquire) == RELEASED
    }

    /// Ends the use of the token, unless that was done. Returns its use before.
    fn ends_use(&self, end: u8) -> u8 {
        let before = self.stage.compare_exchange(ASKS, end, Ordering::AcqRel, Ordering::Acquire);
        before.unwrap_or_else(|ended| ended)
    }

    /// Records that it is about to be sent for a place in a queue.
    pub(crate) fn note_queued(&self) {
        self.queued.store(true, Ordering::Release);
    }

    /// Whether it may be in a queue of the store.
    pub(crate) fn was_queued(&self) -> bool {
        self.queued.load(Ordering::Acquire)
    }

    /// Records that a waiter waits for the release, or may.
    pub(crate) fn note_awaited(&self) {
        self.awaited.store(true, Ordering::Release);
    }

    /// Whether a waiter waits for the release, as far as is known.
    pub(crate) fn was_awaited(&self) -> bool {
        self.awaited.load(Ordering::Acquire)
    }

    /// Records whether the requests with it were applied.
    pub(crate) fn set_applied(&self, applied: Applied) {
        self.applied.store(applied as u8, Ordering::Release);
    }

    /// Whether the requests with it were applied. While that is unknown, a request may still arrive
    /// at a server, or a node of a Redlock may have it.
    pub(crate) fn applied(&self) -> Applied {
        if self.known_attempts().all(|attempts| attempts.is_clear()) {
            self.own_applied()
        } else {
            Applied::Unknown
        }
    }

    fn own_applied(&self) -> Applied {
        match self.applied.load(Ordering::Acquire) {
            0 => Applied::No,
            1 => Applied::Yes,
            _ => Applied::Unknown,
        }
    }

    /// What became of earlier requests with it, when one begins to wait.
    pub(crate) fn applied_before(&self) -> Applied {
        if self.is_of_queue { self.applied() } else { Applied::No }
    }

    /// Whether a node of a Redlock may have it, because the node has not answered that it is gone.
    pub(crate) fn is_doubtful(&self) -> bool {
        self.known_attempts().any(|attempts| attempts.is_doubtful())
    }

    /// When the last of several attempts began.
    pub(crate) fn last_attempt(&self) -> Option<Moment> {
        self.known_attempts().filter_map(|attempts| attempts.began()).max()
    }

    /// The attempts so far.
    fn known_attempts(&self) -> impl Iterator<Item = &Arc<dyn ServerAttempts>> {
        self.attempts.get().into_iter().flatten().filter_map(|of_key| of_key.get())
    }

    /// Those of each key.
    pub(super) fn attempts_of(&self, keys: usize) -> &[AttemptsOfKey] {
        self.attempts.get_or_init(|| (0..keys).map(|_| Arc::default()).collect())
    }

    /// Records that the key stays until then at least.
    pub(crate) fn note_stays_until(&self, moment: Moment) {
        self.stays.note(moment);
    }

    /// How long the key has to stay when it is released now, because of `min_hold`; zero without a
    /// grant.
    pub(crate) fn stays_for(&self, now: Moment) -> Duration {
        self.stays.get().since(now)
    }

    /// Records that the server is asked to keep the lock until `end`.
    pub(crate) fn note_kept_until(&self, end: Moment) {
        self.kept.note(end);
    }

    /// How long the server keeps the lock that was just granted for `ttl`, without another command.
    pub(crate) fn kept_for(&self, ttl: Duration, now: Moment) -> Duration {
        ttl.max(self.kept.get().since(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(60);

    fn token() -> TokenState {
        TokenState::new(Token::new("test", "", "").unwrap())
    }

    fn now() -> Moment {
        Moment::at(TTL)
    }

    #[test]
    fn a_token_that_was_released_is_not_taken_over() {
        let token = token();
        assert!(token.note_released() && token.was_released());
        assert!(token.take_over(TTL, now()).is_none());
    }

    #[test]
    fn a_token_that_was_taken_over_is_released_by_its_queue_alone() {
        let token = token();
        let of_queue = token.take_over(TTL, now()).unwrap();
        assert!(token.is_taken_over() && !token.note_released() && !token.was_released());
        assert!(of_queue.note_released());
        assert!(token.take_over(TTL, now()).is_none(), "once only");
    }

    #[test]
    fn what_a_caller_hears_late_says_nothing_of_the_request_of_its_queue() {
        let token = token();
        let of_queue = token.take_over(TTL, now()).unwrap();
        token.set_applied(Applied::No);
        assert_eq!(of_queue.applied(), Applied::Unknown);
        assert_eq!(of_queue.applied_before(), Applied::Unknown);
    }

    #[test]
    fn a_server_keeps_a_lock_for_the_ttl_of_the_caller_if_its_request_may_be_applied() {
        for (applied, kept) in [(Applied::No, Duration::ZERO), (Applied::Unknown, TTL)] {
            let token = token();
            token.set_applied(applied);
            let of_queue = token.take_over(TTL, now()).unwrap();
            assert_eq!(of_queue.kept_for(Duration::ZERO, now()), kept);
        }
    }
}
