//! One store of three kinds, and the dispatch to it. Every kind has the same meaning; only what can
//! go wrong differs.

use crate::value::time::Moment;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

#[cfg(feature = "defer")]
use crate::jobs::deferrer::Deferrer;
#[cfg(feature = "defer")]
use crate::jobs::nowhere::Nowhere;
use crate::protocol::answer::{Answer, Asked, Failed, Released};
use crate::protocol::request::Claim;
use crate::protocol::shutdown::Closing;
use crate::store::memory::Memory;
#[cfg(feature = "defer")]
use crate::store::redis::jobs::queue::RedisJobs;
use crate::store::redis::store::Redis;
use crate::store::redlock::store::Redlock;
use crate::store::waiters::{GivenUp, Gone};
use crate::value::error::{AT, LockError};
use crate::value::key::LockKey;

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

    /// Asks the servers whether they are there, and let us do what locks need.
    pub(crate) fn ready(&self) -> Asked<'_, Result<(), LockError>> {
        match self {
            Backend::Memory(_) => Box::pin(async { Ok(()) }),
            Backend::Redis(redis) => Box::pin(redis.ready()),
            Backend::Redlock(redlock) => Box::pin(redlock.ready()),
        }
    }

    /// Asks for the lock of `claim`, waits for it where the claim says so, and has replicas
    /// acknowledge it where they are to. It borrows nothing, so that who waits for it can be kept
    /// without a box.
    pub(crate) fn asked(
        self: &Arc<Self>,
        claim: &Arc<Claim>,
        closing: &Arc<Closing>,
    ) -> Asked<'static, Result<Answer, Failed>> {
        let (backend, claim) = (Arc::clone(self), Arc::clone(claim));
        let wait = claim.until.map(|until| until.since(Moment::now()));
        if self.is_replicated() {
            let closing = Arc::clone(closing);
            return Box::pin(async move {
                match backend.asked_for(&claim, wait, &closing).await {
                    Ok(Answer::Granted(grant)) => backend.acknowledged(&claim, grant).await,
                    answer => answer,
                }
            });
        }
        match &**self {
            // One box where many wait, or a lock mostly is free.
            Backend::Redis(redis) if claim.several().is_empty() => {
                let redis = Arc::clone(redis);
                match wait {
                    None => Box::pin(async move { redis.acquire(&claim, None).await }),
                    Some(wait) => Box::pin(Redis::wait(redis, claim, wait, Arc::clone(closing))),
                }
            }
            _ => {
                let closing = Arc::clone(closing);
                Box::pin(async move { backend.asked_for(&claim, wait, &closing).await })
            }
        }
    }

    fn asked_for<'a>(
        &'a self,
        claim: &'a Claim,
        wait: Option<Duration>,
        closing: &'a Closing,
    ) -> Asked<'a, Result<Answer, Failed>> {
        match wait {
            None => self.acquire(claim),
            Some(wait) => self.wait(claim, wait, closing),
        }
    }

    /// Asks for a lock once; for several keys all or nothing. Idempotent for a token. When it is
    /// dropped, the token may have been written all the same.
    pub(crate) fn acquire<'a>(&'a self, claim: &'a Claim) -> Asked<'a, Result<Answer, Failed>> {
        if claim.several().is_empty() {
            self.ask(claim, None)
        } else {
            self.take_in_turn(claim, None)
        }
    }

    /// Asks for one key, or for several that can be asked for at once. A server in trouble is given
    /// until then, if its caller waits anyway.
    pub(crate) fn ask<'a>(
        &'a self,
        claim: &'a Claim,
        until: Option<Instant>,
    ) -> Asked<'a, Result<Answer, Failed>> {
        match self {
            Backend::Memory(memory) => Box::pin(async move { memory.acquire(claim) }),
            Backend::Redis(redis) => Box::pin(redis.acquire(claim, until)),
            Backend::Redlock(redlock) => Box::pin(redlock.acquire(claim)),
        }
    }

    /// Asks for a lock, and waits in line for at most `wait`, `Duration::MAX` is for ever, or until
    /// its manager is shut down. What is dropped may have been written, and may stand in line.
    pub(crate) fn wait<'a>(
        &'a self,
        claim: &'a Claim,
        wait: Duration,
        closing: &'a Closing,
    ) -> Asked<'a, Result<Answer, Failed>> {
        if !claim.several().is_empty() {
            return Box::pin(closing.unless(self.take_in_turn(claim, Some((wait, closing)))));
        }
        match self {
            Backend::Memory(memory) => Box::pin(memory.wait(claim, wait, closing)),
            Backend::Redis(redis) => Box::pin(Redis::wait(&**redis, claim, wait, closing)),
            Backend::Redlock(redlock) => {
                Box::pin(closing.unless(Box::pin(redlock.wait(claim, wait))))
            }
        }
    }

    /// A token that was given up, of which it is told when it is granted a lock all the same;
    /// `None` where that cannot be.
    pub(crate) fn given_up(&self, claim: &Claim) -> Option<GivenUp> {
        match self {
            Backend::Redis(redis) if claim.until.is_some() => Some(redis.given_up(&claim.token)),
            // A grant there is made to who is there; a Redlock has no line.
            Backend::Redis(_) | Backend::Memory(_) | Backend::Redlock(_) => None,
        }
    }

    /// What tells of tokens that were given up and are granted their lock all the same.
    pub(crate) fn gone(&self) -> Option<Arc<Gone>> {
        match self {
            Backend::Redis(redis) => Some(redis.gone()),
            Backend::Memory(_) | Backend::Redlock(_) => None,
        }
    }

    /// Has everybody ask again who stands in line.
    pub(crate) fn alarm(&self) {
        match self {
            Backend::Memory(memory) => memory.alarm(),
            Backend::Redis(redis) => redis.alarm(),
            // There is no line over several nodes.
            Backend::Redlock(_) => {}
        }
    }

    /// Whether a server of the claim's keys is lost, so that nothing is to be had of it. Of a
    /// Redlock a majority may do.
    pub(crate) fn is_lost(&self, claim: &Claim) -> bool {
        matches!(self, Backend::Redis(redis) if redis.is_lost(claim.keys()))
    }

    /// Whether several servers decide together.
    pub(crate) fn is_of_several(&self) -> bool {
        matches!(self, Backend::Redlock(_))
    }

    /// How long an answer may take.
    pub(crate) fn answer(&self) -> Duration {
        match self {
            Backend::Memory(_) => Duration::ZERO,
            Backend::Redis(redis) => redis.answer(),
            Backend::Redlock(redlock) => redlock.answer(),
        }
    }

    /// How many of these keys, from the first on, can be asked for at once.
    pub(crate) fn at_once(&self, keys: &[LockKey]) -> usize {
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

    /// Where the server of the claim's first key is, as errors end with it; of a Redlock all are.
    pub(crate) fn at(&self, claim: &Claim) -> String {
        match self {
            Backend::Memory(_) => String::new(),
            Backend::Redis(redis) => [AT, &redis.server_of(&claim.key)].concat(),
            Backend::Redlock(redlock) => [AT, &redlock.servers()].concat(),
        }
    }

    /// Takes note of a call that has failed because of the servers; tells whether that is to be
    /// logged at WARN: not while one is lost, which was logged.
    pub(crate) fn call_failed(&self, error: &LockError) -> bool {
        match self {
            Backend::Memory(_) => true,
            Backend::Redis(redis) => redis.call_failed(error),
            Backend::Redlock(redlock) => redlock.call_failed(error),
        }
    }

    /// Takes note of a lock that could not be kept.
    pub(crate) fn lock_lost(&self) {
        match self {
            Backend::Memory(_) => {}
            Backend::Redis(redis) => redis.lock_lost(),
            Backend::Redlock(redlock) => redlock.lock_lost(),
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

#[cfg(feature = "defer")]
impl Backend {
    /// What keeps the deferred calls of a manager that was given no other.
    pub(crate) fn deferrer(&self, max_size: usize) -> Arc<dyn Deferrer> {
        match self {
            Backend::Memory(memory) => Arc::new(memory.jobs.clone()),
            Backend::Redis(redis) => Arc::new(RedisJobs::new(redis, max_size)),
            Backend::Redlock(_) => Arc::new(Nowhere),
        }
    }
}
