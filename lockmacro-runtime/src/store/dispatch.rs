//! One store of three kinds, and the dispatch to it. Every kind has the same meaning; only what can
//! go wrong differs.

use crate::value::time::Moment;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

#[cfg(feature = "defer")]
use crate::jobs::deferrer::Deferrer;
#[cfg(feature = "defer")]
use crate::jobs::no_queue::NoQueue;
use crate::protocol::answer::{Answer, Asked, Failed, Released};
use crate::protocol::request::Request;
use crate::protocol::shutdown::Shutdown;
use crate::store::memory::Memory;
#[cfg(feature = "defer")]
use crate::store::redis::jobs::queue::RedisJobs;
use crate::store::redis::store::Redis;
use crate::store::redlock::store::Redlock;
use crate::store::waiters::{AbandonedToken, AbandonedTokens};
use crate::value::error::{AT, LockError};
use crate::value::key::LockKey;

#[derive(Debug)]
pub(crate) enum Store {
    Memory(Memory),
    Redis(Arc<Redis>),
    Redlock(Box<Redlock>),
}

impl Store {
    /// The same locks through a connection of its own, for a thread with its own runtime.
    pub(crate) fn apart(&self) -> Self {
        match self {
            Store::Memory(memory) => Store::Memory(memory.clone()),
            Store::Redis(redis) => Store::Redis(Arc::new(redis.apart())),
            Store::Redlock(redlock) => Store::Redlock(Box::new(redlock.apart())),
        }
    }

    /// Asks the servers whether they are there, and let us do what locks need.
    pub(crate) fn ready(&self) -> Asked<'_, Result<(), LockError>> {
        match self {
            Store::Memory(_) => Box::pin(async { Ok(()) }),
            Store::Redis(redis) => Box::pin(redis.ready()),
            Store::Redlock(redlock) => Box::pin(redlock.ready()),
        }
    }

    /// Asks for the lock of `claim`, waits for it where the claim says so, and has replicas
    /// acknowledge it where they are to. It borrows nothing, so that who waits for it can be kept
    /// without a box.
    pub(crate) fn asked(
        self: &Arc<Self>,
        request: &Arc<Request>,
        shutdown: &Arc<Shutdown>,
    ) -> Asked<'static, Result<Answer, Failed>> {
        let (store, request) = (Arc::clone(self), Arc::clone(request));
        let wait = request.until.map(|until| until.since(Moment::now()));
        if self.is_replicated() {
            let shutdown = Arc::clone(shutdown);
            return Box::pin(async move {
                match store.asked_for(&request, wait, &shutdown).await {
                    Ok(Answer::Granted(grant)) => store.acknowledged(&request, grant).await,
                    answer => answer,
                }
            });
        }
        match &**self {
            // One box where many wait, or a lock mostly is free.
            Store::Redis(redis) if request.several().is_empty() => {
                let redis = Arc::clone(redis);
                match wait {
                    None => Box::pin(async move { redis.acquire(&request, None).await }),
                    Some(wait) => Box::pin(Redis::wait(redis, request, wait, Arc::clone(shutdown))),
                }
            }
            _ => {
                let shutdown = Arc::clone(shutdown);
                Box::pin(async move { store.asked_for(&request, wait, &shutdown).await })
            }
        }
    }

    fn asked_for<'a>(
        &'a self,
        request: &'a Request,
        wait: Option<Duration>,
        shutdown: &'a Shutdown,
    ) -> Asked<'a, Result<Answer, Failed>> {
        match wait {
            None => self.acquire(request),
            Some(wait) => self.wait(request, wait, shutdown),
        }
    }

    /// Asks for a lock once; for several keys all or nothing. Idempotent for a token. When it is
    /// dropped, the token may have been written all the same.
    pub(crate) fn acquire<'a>(&'a self, request: &'a Request) -> Asked<'a, Result<Answer, Failed>> {
        if request.several().is_empty() {
            self.ask(request, None)
        } else {
            self.take_one_by_one(request, None)
        }
    }

    /// Asks for one key, or for several that can be asked for at once. A server in trouble is given
    /// until then, if its caller waits anyway.
    pub(crate) fn ask<'a>(
        &'a self,
        request: &'a Request,
        until: Option<Instant>,
    ) -> Asked<'a, Result<Answer, Failed>> {
        match self {
            Store::Memory(memory) => Box::pin(async move { memory.acquire(request) }),
            Store::Redis(redis) => Box::pin(redis.acquire(request, until)),
            Store::Redlock(redlock) => Box::pin(redlock.acquire(request)),
        }
    }

    /// Asks for a lock, and waits in line for at most `wait`, `Duration::MAX` is for ever, or until
    /// its manager is shut down. What is dropped may have been written, and may stand in line.
    pub(crate) fn wait<'a>(
        &'a self,
        request: &'a Request,
        wait: Duration,
        shutdown: &'a Shutdown,
    ) -> Asked<'a, Result<Answer, Failed>> {
        if !request.several().is_empty() {
            return Box::pin(
                shutdown.unless(self.take_one_by_one(request, Some((wait, shutdown)))),
            );
        }
        match self {
            Store::Memory(memory) => Box::pin(memory.wait(request, wait, shutdown)),
            Store::Redis(redis) => Box::pin(Redis::wait(&**redis, request, wait, shutdown)),
            Store::Redlock(redlock) => {
                Box::pin(shutdown.unless(Box::pin(redlock.wait(request, wait))))
            }
        }
    }

    /// A token that was given up, of which it is told when it is granted a lock all the same;
    /// `None` where that cannot be.
    pub(crate) fn given_up(&self, request: &Request) -> Option<AbandonedToken> {
        match self {
            Store::Redis(redis) if request.until.is_some() => Some(redis.given_up(&request.token)),
            // A grant there is made to who is there; a Redlock has no line.
            Store::Redis(_) | Store::Memory(_) | Store::Redlock(_) => None,
        }
    }

    /// What tells of tokens that were given up and are granted their lock all the same.
    pub(crate) fn gone(&self) -> Option<Arc<AbandonedTokens>> {
        match self {
            Store::Redis(redis) => Some(redis.gone()),
            Store::Memory(_) | Store::Redlock(_) => None,
        }
    }

    /// Has everybody ask again who stands in line.
    pub(crate) fn alarm(&self) {
        match self {
            Store::Memory(memory) => memory.alarm(),
            Store::Redis(redis) => redis.alarm(),
            // There is no line over several nodes.
            Store::Redlock(_) => {}
        }
    }

    /// Whether a server of the claim's keys is lost, so that nothing is to be had of it. Of a
    /// Redlock a majority may do.
    pub(crate) fn is_lost(&self, request: &Request) -> bool {
        matches!(self, Store::Redis(redis) if redis.is_lost(request.keys()))
    }

    /// Whether several servers decide together.
    pub(crate) fn is_of_several(&self) -> bool {
        matches!(self, Store::Redlock(_))
    }

    /// How long an answer may take.
    pub(crate) fn answer(&self) -> Duration {
        match self {
            Store::Memory(_) => Duration::ZERO,
            Store::Redis(redis) => redis.answer(),
            Store::Redlock(redlock) => redlock.answer(),
        }
    }

    /// How many of these keys, from the first on, can be asked for at once.
    pub(crate) fn at_once(&self, keys: &[LockKey]) -> usize {
        match self {
            Store::Memory(_) => keys.len(),
            Store::Redis(redis) => redis.at_once(keys),
            Store::Redlock(_) => 1,
        }
    }

    /// Takes the token away, or leaves it for what is left of the claim's `min_hold`; tells what it
    /// found: of several keys, whether all were held. Idempotent.
    pub(crate) fn release<'a>(
        &'a self,
        request: &'a Request,
    ) -> Asked<'a, Result<Released, LockError>> {
        if self.is_in_parts(request) {
            return self.release_parts(request);
        }
        match self {
            Store::Memory(memory) => Box::pin(async move { Ok(memory.release(request)) }),
            Store::Redis(redis) => Box::pin(redis.release(request)),
            Store::Redlock(redlock) => Box::pin(redlock.release(request)),
        }
    }

    /// Lets the lock's ttl run anew; tells whether the token still held the lock, and of several keys
    /// all. Never takes it.
    pub(crate) fn renew<'a>(
        &'a self,
        request: &'a Request,
        ttl: Duration,
    ) -> Asked<'a, Result<bool, LockError>> {
        if self.is_in_parts(request) {
            return self.renew_parts(request, move |store, part| store.renew(part, ttl));
        }
        match self {
            Store::Memory(memory) => Box::pin(async move { Ok(memory.renew(request, ttl)) }),
            Store::Redis(redis) => Box::pin(redis.renew(request, ttl)),
            Store::Redlock(redlock) => Box::pin(redlock.renew(request, ttl)),
        }
    }

    /// Has the lock kept for `left` at least, for which its holder believes in it; tells the same. A
    /// server that was replaced may have forgotten it, or how long it lasts.
    pub(crate) fn confirm<'a>(
        &'a self,
        request: &'a Request,
        left: Duration,
    ) -> Asked<'a, Result<bool, LockError>> {
        if self.is_in_parts(request) {
            return self.renew_parts(request, move |store, part| store.confirm(part, left));
        }
        match self {
            Store::Redis(redis) => Box::pin(redis.confirm(request, left)),
            Store::Memory(_) | Store::Redlock(_) => self.renew(request, left),
        }
    }

    /// Has `tell` called when the server may be another one than the one that granted our locks.
    pub(crate) fn on_change(&self, tell: impl Fn() + Send + Sync + 'static) {
        match self {
            Store::Memory(_) => {}
            Store::Redis(redis) => redis.on_change(tell),
            // A node by itself does not decide.
            Store::Redlock(_) => {}
        }
    }

    /// Where the server of the claim's first key is, as errors end with it; of a Redlock all are.
    pub(crate) fn at(&self, request: &Request) -> String {
        match self {
            Store::Memory(_) => String::new(),
            Store::Redis(redis) => [AT, &redis.server_of(&request.key)].concat(),
            Store::Redlock(redlock) => [AT, &redlock.servers()].concat(),
        }
    }

    /// Takes note of a call that has failed because of the servers; tells whether that is to be
    /// logged at WARN: not while one is lost, which was logged.
    pub(crate) fn call_failed(&self, error: &LockError) -> bool {
        match self {
            Store::Memory(_) => true,
            Store::Redis(redis) => redis.call_failed(error),
            Store::Redlock(redlock) => redlock.call_failed(error),
        }
    }

    /// Takes note of a lock that could not be kept.
    pub(crate) fn lock_lost(&self) {
        match self {
            Store::Memory(_) => {}
            Store::Redis(redis) => redis.lock_lost(),
            Store::Redlock(redlock) => redlock.lock_lost(),
        }
    }

    /// Whether it may forget locks while this process lives.
    pub(crate) fn forgets(&self) -> bool {
        matches!(self, Store::Redis(_))
    }

    /// Whether it has to be looked at while locks are held: another server may take its place.
    pub(crate) fn fails_over(&self) -> bool {
        match self {
            Store::Memory(_) | Store::Redlock(_) => false,
            Store::Redis(redis) => redis.fails_over(),
        }
    }

    /// Looks whether it is still there.
    pub(crate) async fn look(&self) {
        match self {
            Store::Memory(_) | Store::Redlock(_) => {}
            Store::Redis(redis) => redis.look().await,
        }
    }

    /// Ends the connections; the next call makes new ones.
    pub(crate) fn disconnect(&self) {
        match self {
            Store::Memory(_) => {}
            Store::Redis(redis) => redis.disconnect(),
            Store::Redlock(redlock) => redlock.disconnect(),
        }
    }
}

#[cfg(feature = "defer")]
impl Store {
    /// What keeps the deferred calls of a manager that was given no other.
    pub(crate) fn deferrer(&self, max_size: usize) -> Arc<dyn Deferrer> {
        match self {
            Store::Memory(memory) => Arc::new(memory.jobs.clone()),
            Store::Redis(redis) => Arc::new(RedisJobs::new(redis, max_size)),
            Store::Redlock(_) => Arc::new(NoQueue),
        }
    }
}
