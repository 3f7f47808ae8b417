//! The store of locks: one of three kinds, and the dispatch to it. Every kind has the same meaning;
//! only the possible failures differ.

use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

#[cfg(feature = "defer")]
use crate::jobs::deferrer::Deferrer;
#[cfg(feature = "defer")]
use crate::jobs::no_queue::NoQueue;
use crate::protocol::answer::{Answer, Asked, Failed, Released};
use crate::protocol::request::Request;
use crate::protocol::shutdown::Shutdown;
use crate::store::abandoned::AbandonedTokens;
use crate::store::memory::Memory;
#[cfg(feature = "defer")]
use crate::store::redis::jobs::queue::RedisJobs;
use crate::store::redis::store::Redis;
use crate::store::redlock::store::Redlock;
use crate::store::servers::Servers;
use crate::value::applied::Applied;
use crate::value::error::LockError;
use crate::value::key::LockKey;
use crate::value::time::{Instant, Moment};
use crate::value::unavailability::Unavailability;

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

    /// The servers behind the store.
    pub(crate) fn servers(&self) -> &dyn Servers {
        match self {
            Store::Memory(memory) => memory,
            Store::Redis(redis) => &**redis,
            Store::Redlock(redlock) => &**redlock,
        }
    }

    /// Requests a lock, waits for it if the request says so, and waits for replicas if the store
    /// needs their acknowledgement. The future borrows nothing, so that its caller can store it.
    ///
    /// The lock counts as lost, and nothing is sent, if a release of the token was sent before.
    pub(crate) fn acquire(
        self: &Arc<Self>,
        request: &Arc<Request>,
        shutdown: &Arc<Shutdown>,
    ) -> Asked<'static, Result<Answer, Failed>> {
        if request.was_released() {
            return Box::pin(ready(Ok(Answer::Lost(Box::new(Err(released()))))));
        }
        let (store, request, shutdown) =
            (Arc::clone(self), Arc::clone(request), Arc::clone(shutdown));
        let until = request.until.filter(|_| request.waits());
        let wait = until.map(|until| until.since(Moment::now()));
        match &**self {
            // The common cases need one box only.
            Store::Redis(redis) if request.several().is_empty() && !redis.is_replicated() => {
                let redis = Arc::clone(redis);
                match wait {
                    None => Box::pin(async move { redis.acquire(&request, None).await }),
                    Some(wait) => Box::pin(Redis::wait(redis, request, wait, shutdown)),
                }
            }
            _ => Box::pin(async move {
                match store.acquire_unacknowledged(&request, wait, &shutdown).await {
                    Ok(Answer::Granted(grant)) if store.is_replicated() => {
                        store.acknowledged(&request, grant).await
                    }
                    answer => answer,
                }
            }),
        }
    }

    /// Requests a lock without waiting for replicas to acknowledge it. It waits for the lock for at
    /// most `wait` (`Duration::MAX` is for ever) or until the manager is shut down; several keys
    /// all or none. Idempotent for a token. When the future is dropped, the token may have been
    /// written, and may be in a queue.
    fn acquire_unacknowledged<'a>(
        &'a self,
        request: &'a Request,
        wait: Option<Duration>,
        shutdown: &'a Shutdown,
    ) -> Asked<'a, Result<Answer, Failed>> {
        match wait {
            None if request.several().is_empty() => self.try_acquire(request, None),
            None => self.take_one_by_one(request, None),
            Some(wait) if request.several().is_empty() => self.wait(request, wait, shutdown),
            Some(wait) => {
                let taken = self.take_one_by_one(request, Some((wait, shutdown)));
                Box::pin(shutdown.unless(taken))
            }
        }
    }

    /// Requests one key, or several keys that one call can take. With `until`, a failing server is
    /// asked again until then, because the caller waits anyway; and a Redlock repeats its attempts
    /// no longer than that.
    pub(super) fn try_acquire<'a>(
        &'a self,
        request: &'a Request,
        until: Option<Instant>,
    ) -> Asked<'a, Result<Answer, Failed>> {
        match self {
            Store::Memory(memory) => Box::pin(async move { memory.acquire(request) }),
            Store::Redis(redis) => Box::pin(redis.acquire(request, until)),
            Store::Redlock(redlock) => Box::pin(redlock.acquire(request, until)),
        }
    }

    /// Requests one key and waits for it, for at most `wait` or until the manager is shut down.
    pub(super) fn wait<'a>(
        &'a self,
        request: &'a Request,
        wait: Duration,
        shutdown: &'a Shutdown,
    ) -> Asked<'a, Result<Answer, Failed>> {
        match self {
            Store::Memory(memory) => Box::pin(memory.wait(request, wait, shutdown)),
            Store::Redis(redis) => Box::pin(Redis::wait(&**redis, request, wait, shutdown)),
            Store::Redlock(redlock) => {
                Box::pin(shutdown.unless(Box::pin(redlock.wait(request, wait))))
            }
        }
    }

    /// The tokens of abandoned waiters, which may still be granted their lock; `None` where there
    /// can be no later grant.
    pub(crate) fn abandoned(&self) -> Option<Arc<AbandonedTokens>> {
        match self {
            Store::Redis(redis) => Some(Arc::clone(&redis.grants.waiters.abandoned)),
            // In memory only a waiter that exists gets a grant. A Redlock has no queue.
            Store::Memory(_) | Store::Redlock(_) => None,
        }
    }

    /// Makes every waiter repeat its request.
    pub(crate) fn alarm(&self) {
        match self {
            Store::Memory(memory) => memory.alarm(),
            Store::Redis(redis) => redis.grants.waiters.alarm_where(|_| true),
            // There is no queue over several nodes.
            Store::Redlock(_) => {}
        }
    }

    /// Whether no lock is ever busy.
    pub(crate) fn excludes_nobody(&self) -> bool {
        matches!(self, Store::Memory(memory) if memory.is_disabled())
    }

    /// Fails for a request that the store refuses without asking a server.
    pub(crate) fn check(&self, request: &Request) -> Result<(), LockError> {
        match self {
            Store::Redlock(redlock) => redlock.check_request(request),
            Store::Memory(_) | Store::Redis(_) => Ok(()),
        }
    }

    /// How many of these keys, from the first one on, a single call can take.
    pub(super) fn at_once(&self, keys: &[LockKey]) -> usize {
        match self {
            Store::Memory(_) => keys.len(),
            Store::Redis(redis) => redis.at_once(keys),
            Store::Redlock(_) => 1,
        }
    }

    /// Removes the token, or keeps the key for the rest of the request's `min_hold`. Returns
    /// whether the lock was held; of several keys, whether all were. Idempotent. The token never
    /// asks for the lock again, see [`acquire`](Store::acquire).
    pub(crate) fn release<'a>(
        &'a self,
        request: &'a Request,
    ) -> Asked<'a, Result<Released, LockError>> {
        if !request.note_released() {
            return Box::pin(ready(Ok(Released::Unconfirmed)));
        }
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
    pub(super) fn renew<'a>(
        &'a self,
        request: &'a Request,
        ttl: Duration,
    ) -> Asked<'a, Result<bool, LockError>> {
        if self.is_in_parts(request) {
            return self.renew_parts(request, move |store, part| store.renew(part, ttl));
        }
        match self {
            Store::Memory(memory) => Box::pin(async move { Ok(memory.renew(request, ttl)) }),
            Store::Redis(redis) => redis.renew(request, ttl, true),
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
            Store::Redis(redis) => redis.renew(request, left, false),
            Store::Memory(_) | Store::Redlock(_) => self.renew(request, left),
        }
    }
}

/// The failure of a request with a token whose release was sent.
fn released() -> Failed {
    let detail = "the lock was released before its caller had it";
    let error = LockError::unavailable(Unavailability::Local, detail);
    Failed { error, applied: Applied::Unknown }
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
