//! The store of locks: one of three kinds, and the dispatch to it. Every kind has the same meaning;
//! only the possible failures differ.

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
use crate::store::abandoned::{AbandonedToken, AbandonedTokens};
use crate::store::memory::Memory;
#[cfg(feature = "defer")]
use crate::store::redis::jobs::queue::RedisJobs;
use crate::store::redis::store::Redis;
use crate::store::redlock::store::Redlock;
use crate::value::error::{AT, LockError};
use crate::value::key::LockKey;
use crate::value::time::Moment;

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

    /// Checks that the servers answer, and that the user has the rights that locks need.
    pub(crate) fn ready(&self) -> Asked<'_, Result<(), LockError>> {
        match self {
            Store::Memory(_) => Box::pin(async { Ok(()) }),
            Store::Redis(redis) => Box::pin(redis.ready()),
            Store::Redlock(redlock) => Box::pin(redlock.ready()),
        }
    }

    /// Sends a request, waits for its lock if the request says so, and waits for replicas if the
    /// store needs their acknowledgement. The future borrows nothing, so that its caller can store
    /// it.
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
            // The common cases need one box only.
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

    /// Requests a lock once; several keys all or none. Idempotent for a token. When the future is
    /// dropped, the token may have been written.
    pub(crate) fn acquire<'a>(&'a self, request: &'a Request) -> Asked<'a, Result<Answer, Failed>> {
        if request.several().is_empty() {
            self.ask(request, None)
        } else {
            self.take_one_by_one(request, None)
        }
    }

    /// Requests one key, or several keys that one call can take. With `until`, a failing server is
    /// asked again until then, because the caller waits anyway.
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

    /// Requests a lock and waits for it, for at most `wait` (`Duration::MAX` is for ever) or until
    /// the manager is shut down. When the future is dropped, the token may have been written, and
    /// may be in the queue.
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

    /// Marks the request's token as abandoned, so that a later grant to it is noticed; `None` where
    /// there can be no later grant.
    pub(crate) fn abandon(&self, request: &Request) -> Option<AbandonedToken> {
        match self {
            Store::Redis(redis) if request.until.is_some() => Some(redis.abandon(&request.token)),
            // In memory only a waiter that exists gets a grant. A Redlock has no queue.
            Store::Redis(_) | Store::Memory(_) | Store::Redlock(_) => None,
        }
    }

    /// The abandoned tokens, which may still be granted their lock.
    pub(crate) fn abandoned(&self) -> Option<Arc<AbandonedTokens>> {
        match self {
            Store::Redis(redis) => Some(redis.abandoned()),
            Store::Memory(_) | Store::Redlock(_) => None,
        }
    }

    /// Makes every waiter repeat its request.
    pub(crate) fn alarm(&self) {
        match self {
            Store::Memory(memory) => memory.alarm(),
            Store::Redis(redis) => redis.alarm(),
            // There is no queue over several nodes.
            Store::Redlock(_) => {}
        }
    }

    /// Whether a server of the request's keys is lost, so that it grants nothing. Never true of a
    /// Redlock, where a majority is enough.
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

    /// How many of these keys, from the first one on, a single call can take.
    pub(crate) fn at_once(&self, keys: &[LockKey]) -> usize {
        match self {
            Store::Memory(_) => keys.len(),
            Store::Redis(redis) => redis.at_once(keys),
            Store::Redlock(_) => 1,
        }
    }

    /// Removes the token, or keeps the key for the rest of the request's `min_hold`. Returns
    /// whether the lock was held; of several keys, whether all were. Idempotent.
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

    /// Restarts the lock's ttl. Returns whether the token still held the lock; of several keys, all
    /// of them. Never acquires the lock.
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

    /// Confirms that the server keeps the lock for at least `left`, the rest of the holder's lease.
    /// Returns the same as [`renew`](Store::renew). A server that was replaced may have lost the
    /// lock, or its ttl.
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

    /// Sets a callback for when the server may not be the one that granted the locks any more.
    pub(crate) fn on_change(&self, callback: impl Fn() + Send + Sync + 'static) {
        match self {
            Store::Memory(_) => {}
            Store::Redis(redis) => redis.on_change(callback),
            // A single node does not decide.
            Store::Redlock(_) => {}
        }
    }

    /// The address of the server of the request's first key, for the end of an error text; the
    /// addresses of all nodes of a Redlock.
    pub(crate) fn at(&self, request: &Request) -> String {
        match self {
            Store::Memory(_) => String::new(),
            Store::Redis(redis) => [AT, &redis.server_of(&request.key)].concat(),
            Store::Redlock(redlock) => [AT, &redlock.servers()].concat(),
        }
    }

    /// Records a call that failed because of the servers. Returns whether to log it at WARN: not
    /// while a server is lost, because that loss was logged.
    pub(crate) fn call_failed(&self, error: &LockError) -> bool {
        match self {
            Store::Memory(_) => true,
            Store::Redis(redis) => redis.call_failed(error),
            Store::Redlock(redlock) => redlock.call_failed(error),
        }
    }

    /// Records that a lock was lost.
    pub(crate) fn lock_lost(&self) {
        match self {
            Store::Memory(_) => {}
            Store::Redis(redis) => redis.lock_lost(),
            Store::Redlock(redlock) => redlock.lock_lost(),
        }
    }

    /// Whether the store may forget locks while this process lives.
    pub(crate) fn forgets(&self) -> bool {
        matches!(self, Store::Redis(_))
    }

    /// Whether the server has to be checked while locks are held, because another one may replace
    /// it.
    pub(crate) fn fails_over(&self) -> bool {
        match self {
            Store::Memory(_) | Store::Redlock(_) => false,
            Store::Redis(redis) => redis.fails_over(),
        }
    }

    /// Checks that the server is still the same.
    pub(crate) async fn look(&self) {
        match self {
            Store::Memory(_) | Store::Redlock(_) => {}
            Store::Redis(redis) => redis.look().await,
        }
    }

    /// Closes the connections; the next call opens new ones.
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
    /// The queue of deferred calls of a manager without another one.
    pub(crate) fn deferrer(&self, max_size: usize) -> Arc<dyn Deferrer> {
        match self {
            Store::Memory(memory) => Arc::new(memory.jobs.clone()),
            Store::Redis(redis) => Arc::new(RedisJobs::new(redis, max_size)),
            Store::Redlock(_) => Arc::new(NoQueue),
        }
    }
}
