//! Where locks are kept. Every backend has the same meaning; only what can go wrong differs.

mod acknowledged;
mod in_turn;
mod memory;
mod parts;
mod redis;
mod redlock;

use std::pin::Pin;
use std::slice;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::clock::Moment;
use crate::error::LockError;
use crate::fence::Fences;
use crate::key::{Listed, LockKey};
use crate::telemetry::Labels;
use crate::token::Token;
use crate::waiting::{CLAIM, PLACE};

pub(crate) use memory::Memory;
#[cfg(feature = "defer")]
pub(crate) use redis::RedisJobs;
pub(crate) use redis::{Redis, Replicated, not_replicated};
pub(crate) use redlock::{Ballot, OneUrl, Redlock, Rules};

/// One acquisition as a backend sees it.
#[derive(Debug)]
pub(crate) struct Claim {
    /// The key, or the first of several.
    pub(crate) key: LockKey,
    /// All keys when there are several, in order and all different; else none.
    pub(crate) several: Vec<LockKey>,
    pub(crate) token: Token,
    pub(crate) ttl: Duration,
    pub(crate) labels: Labels,
    /// How long the key stays at least, from the grant on.
    pub(crate) min_hold: Duration,
    /// Whether the grant is to come with a fence.
    pub(crate) fenced: bool,
    /// How long to wait in line; `None` for not at all, `Duration::MAX` for ever.
    pub(crate) wait: Option<Duration>,
    granted: OnceLock<Moment>,
    /// The fate of every request with this token is known.
    settled: AtomicBool,
    /// Until when the server may count at most, if it was asked for more than the ttl.
    longest: Mutex<Option<Moment>>,
    /// What is known of it at the nodes of a Redlock, key by key.
    ballots: OnceLock<Box<[Arc<Ballot>]>>,
}

impl Claim {
    pub(crate) fn new(key: LockKey, token: Token, ttl: Duration) -> Self {
        let labels = Labels { name: "".into(), template: key.made_of() };
        let (min_hold, fenced, wait) = (Duration::ZERO, false, None);
        Self {
            key,
            several: Vec::new(),
            token,
            ttl,
            labels,
            min_hold,
            fenced,
            wait,
            granted: OnceLock::new(),
            settled: AtomicBool::new(false),
            longest: Mutex::new(None),
            ballots: OnceLock::new(),
        }
    }

    /// The keys, in the order in which they are taken.
    pub(crate) fn keys(&self) -> &[LockKey] {
        if self.several.is_empty() { slice::from_ref(&self.key) } else { &self.several }
    }

    /// The keys as they are told.
    pub(crate) fn listed(&self) -> Listed<'_> {
        Listed { first: &self.key, more: self.several.get(1..).unwrap_or_default() }
    }

    /// The same for some of its keys.
    fn part(&self, keys: &[LockKey]) -> Self {
        Self {
            key: keys.first().unwrap_or(&self.key).clone(),
            several: if keys.len() > 1 { keys.to_vec() } else { Vec::new() },
            token: self.token.clone(),
            labels: self.labels.clone(),
            granted: self.granted.clone(),
            settled: AtomicBool::new(false),
            longest: Mutex::new(None),
            ballots: self.ballots_of(keys),
            ..*self
        }
    }

    /// Each of its keys by itself.
    fn each(&self) -> Vec<Self> {
        self.keys().iter().map(|key| self.part(slice::from_ref(key))).collect()
    }

    /// The same by another token, `waited` later: for who begins anew.
    pub(crate) fn anew(&self, waited: Duration) -> Result<Self, LockError> {
        let mut claim = Self::new(self.key.clone(), self.token.another()?, self.ttl);
        claim.several.clone_from(&self.several);
        claim.labels.clone_from(&self.labels);
        (claim.min_hold, claim.fenced) = (self.min_hold, self.fenced);
        claim.wait = self.wait.map(|wait| wait.saturating_sub(waited));
        Ok(claim)
    }

    /// What is known of it at the nodes of a Redlock, key by key.
    fn ballots(&self) -> &[Arc<Ballot>] {
        self.ballots.get_or_init(|| self.keys().iter().map(|_| Arc::default()).collect())
    }

    fn ballots_of(&self, keys: &[LockKey]) -> OnceLock<Box<[Arc<Ballot>]>> {
        let theirs = |(key, ballot): (_, &Arc<Ballot>)| keys.contains(key).then(|| ballot.clone());
        OnceLock::from(
            self.keys().iter().zip(self.ballots()).filter_map(theirs).collect::<Box<[_]>>(),
        )
    }

    /// Takes note of the grant that a request sent at `sent` brought, if that matters later.
    pub(crate) fn granted(&self, sent: Moment) {
        if !self.min_hold.is_zero() {
            self.granted.get_or_init(|| sent);
        }
    }

    /// Takes note of whether a request with this token may still arrive at the server; for a Redlock
    /// the ballots tell more.
    pub(crate) fn settle(&self, settled: bool) {
        self.settled.store(settled, Ordering::Release);
    }

    pub(crate) fn is_settled(&self) -> bool {
        let mut ballots = self.ballots.get().into_iter().flatten();
        self.settled.load(Ordering::Acquire) && ballots.all(|ballot| ballot.is_clear())
    }

    /// Takes note that the server is asked to count until `end`.
    pub(crate) fn lengthened(&self, end: Moment) {
        let mut longest = self.longest.lock().unwrap_or_else(PoisonError::into_inner);
        *longest = (*longest).max(Some(end));
    }

    /// Whether a node of a Redlock may have a token that it has not said to be gone.
    pub(crate) fn is_doubtful(&self) -> bool {
        self.ballots.get().is_some_and(|all| all.iter().any(|ballot| ballot.is_doubtful()))
    }

    /// For how long the key, or a place in its line, may be there without a release.
    pub(crate) fn lasts(&self) -> Duration {
        let longest = *self.longest.lock().unwrap_or_else(PoisonError::into_inner);
        let place = self.wait.map_or(Duration::ZERO, |_| PLACE + CLAIM);
        self.ttl.max(longest.map_or(Duration::ZERO, |end| end.since(Moment::now()))).max(place)
    }

    /// How long the key has to stay when it is released now; zero without a grant.
    fn keep(&self) -> Duration {
        let until = self.granted.get().map(|granted| granted.after(self.min_hold));
        until.map_or(Duration::ZERO, |until| until.since(Moment::now()))
    }
}

/// What came of asking for a lock.
#[derive(Debug)]
pub(crate) enum Answer {
    /// It is held.
    Granted(Grant),
    /// Somebody else holds it, or the `nth` of several keys. `resent` as in [`Grant`].
    Busy { nth: usize, owner: Option<String>, left: Option<Duration>, line: Line, resent: bool },
    /// It was held, in part at least, and was lost before the caller was told. This is told when
    /// there is no time to begin anew; by another token, because what was sent for this one may
    /// still arrive.
    Lost(Box<Result<Answer, Failed>>),
}

/// What a caller that got no lock has to do with the line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Line {
    /// It was not to wait.
    Outside,
    /// It waited in vain, and so many were before it.
    Left(u32),
    /// There was no place any more.
    Full,
}

/// A lock that was granted.
#[derive(Debug)]
pub(crate) struct Grant {
    /// When the request that brought it left.
    pub(crate) sent: Moment,
    /// When it was there, as far as the caller knows.
    pub(crate) at: Moment,
    /// For how long. A lock that was handed over has less than was asked for until it is renewed.
    pub(crate) ttl: Duration,
    /// There was an earlier request whose fate is unknown.
    pub(crate) resent: bool,
    /// One for each key, if they were asked for.
    pub(crate) fences: Fences,
}

/// What a release found; of several, the last of these that one of them found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Released {
    /// The lock was still held.
    Held,
    /// It is not held now. Whether it was cannot be told: an earlier release had no answer.
    Unconfirmed,
    /// It was not held any more.
    NotHeld,
}

/// Why there is no answer. `written` tells that the token may have been written all the same.
#[derive(Debug)]
pub(crate) struct Failed {
    pub(crate) error: LockError,
    pub(crate) written: bool,
}

/// A question to a backend. Boxed: it takes kilobytes, and a future that waits for a lock, or holds
/// it, must not carry them. Without its type, which would be too deep for the compiler's default
/// `recursion_limit` in a caller's program.
pub(crate) type Asked<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

#[derive(Debug)]
pub(crate) enum Backend {
    Memory(Memory),
    Redis(Arc<Redis>),
    Redlock(Box<Redlock>),
}

impl Backend {
    /// The same locks through a connection of its own, for a thread with its own runtime.
    pub(crate) fn apart(&self) -> Self {
        match self {
            Backend::Memory(memory) => Backend::Memory(memory.clone()),
            Backend::Redis(redis) => Backend::Redis(Arc::new(redis.apart())),
            Backend::Redlock(redlock) => Backend::Redlock(Box::new(redlock.apart())),
        }
    }

    /// Asks for a lock once; for several keys all or nothing. Idempotent for a token. When it is
    /// dropped, the token may have been written all the same.
    pub(crate) fn acquire<'a>(&'a self, claim: &'a Claim) -> Asked<'a, Result<Answer, Failed>> {
        if claim.several.is_empty() {
            self.ask(claim, None)
        } else {
            self.take_in_turn(claim, None)
        }
    }

    /// Asks for one key, or for several that can be asked for at once. A server in trouble is given
    /// until then, if its caller waits anyway.
    fn ask<'a>(
        &'a self,
        claim: &'a Claim,
        until: Option<Instant>,
    ) -> Asked<'a, Result<Answer, Failed>> {
        match self {
            Backend::Memory(memory) => Box::pin(async move { Ok(memory.acquire(claim)) }),
            Backend::Redis(redis) => Box::pin(redis.acquire(claim, until)),
            Backend::Redlock(redlock) => Box::pin(redlock.acquire(claim)),
        }
    }

    /// Asks for a lock, and waits in line for at most `wait`; `Duration::MAX` is for ever. What is
    /// dropped may have been written, and may stand in line.
    pub(crate) fn wait<'a>(
        &'a self,
        claim: &'a Claim,
        wait: Duration,
    ) -> Asked<'a, Result<Answer, Failed>> {
        if !claim.several.is_empty() {
            return self.take_in_turn(claim, Some(wait));
        }
        match self {
            Backend::Memory(memory) => Box::pin(async move { Ok(memory.wait(claim, wait).await) }),
            Backend::Redis(redis) => Box::pin(redis.wait(claim, wait)),
            Backend::Redlock(redlock) => Box::pin(redlock.wait(claim, wait)),
        }
    }

    /// How long an answer may take.
    fn answer(&self) -> Duration {
        match self {
            Backend::Memory(_) => Duration::ZERO,
            Backend::Redis(redis) => redis.answer(),
            Backend::Redlock(redlock) => redlock.answer(),
        }
    }

    /// How many of these keys, from the first on, can be asked for at once.
    fn at_once(&self, keys: &[LockKey]) -> usize {
        match self {
            Backend::Memory(_) => keys.len(),
            Backend::Redis(redis) => redis.at_once(keys),
            Backend::Redlock(_) => 1,
        }
    }

    /// Takes the token away, or leaves it for what is left of the claim's `min_hold`; tells what it
    /// found: of several keys, whether all were held. Idempotent.
    pub(crate) fn release<'a>(
        &'a self,
        claim: &'a Claim,
    ) -> Asked<'a, Result<Released, LockError>> {
        if self.is_in_parts(claim) {
            return self.release_parts(claim);
        }
        match self {
            Backend::Memory(memory) => Box::pin(async move { Ok(memory.release(claim)) }),
            Backend::Redis(redis) => Box::pin(redis.release(claim)),
            Backend::Redlock(redlock) => Box::pin(redlock.release(claim)),
        }
    }

    /// Lets the lock's ttl run anew; tells whether the token still held the lock, and of several keys
    /// all. Never takes it.
    pub(crate) fn renew<'a>(
        &'a self,
        claim: &'a Claim,
        ttl: Duration,
    ) -> Asked<'a, Result<bool, LockError>> {
        if self.is_in_parts(claim) {
            return self.renew_parts(claim, move |backend, part| backend.renew(part, ttl));
        }
        match self {
            Backend::Memory(memory) => Box::pin(async move { Ok(memory.renew(claim, ttl)) }),
            Backend::Redis(redis) => Box::pin(redis.renew(claim, ttl)),
            Backend::Redlock(redlock) => Box::pin(redlock.renew(claim, ttl)),
        }
    }

    /// Has the lock kept for `left` at least, for which its holder believes in it; tells the same. A
    /// server that was replaced may have forgotten it, or how long it lasts.
    pub(crate) fn confirm<'a>(
        &'a self,
        claim: &'a Claim,
        left: Duration,
    ) -> Asked<'a, Result<bool, LockError>> {
        if self.is_in_parts(claim) {
            return self.renew_parts(claim, move |backend, part| backend.confirm(part, left));
        }
        match self {
            Backend::Redis(redis) => Box::pin(redis.confirm(claim, left)),
            Backend::Memory(_) | Backend::Redlock(_) => self.renew(claim, left),
        }
    }

    /// Has `tell` called when the server may be another one than the one that granted our locks.
    pub(crate) fn on_change(&self, tell: impl Fn() + Send + Sync + 'static) {
        match self {
            Backend::Memory(_) => {}
            Backend::Redis(redis) => redis.on_change(tell),
            // A node by itself does not decide.
            Backend::Redlock(_) => {}
        }
    }

    /// Whether it may forget locks while this process lives.
    pub(crate) fn forgets(&self) -> bool {
        matches!(self, Backend::Redis(_))
    }

    /// Whether it has to be looked at while locks are held: another server may take its place.
    pub(crate) fn fails_over(&self) -> bool {
        match self {
            Backend::Memory(_) | Backend::Redlock(_) => false,
            Backend::Redis(redis) => redis.fails_over(),
        }
    }

    /// Looks whether it is still there.
    pub(crate) async fn look(&self) {
        match self {
            Backend::Memory(_) | Backend::Redlock(_) => {}
            Backend::Redis(redis) => redis.look().await,
        }
    }

    /// Ends the connections; the next call makes new ones.
    pub(crate) fn disconnect(&self) {
        match self {
            Backend::Memory(_) => {}
            Backend::Redis(redis) => redis.disconnect(),
            Backend::Redlock(redlock) => redlock.disconnect(),
        }
    }
}
