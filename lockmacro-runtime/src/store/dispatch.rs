//! The store of locks: one of three kinds, and the dispatch to it. Every kind has the same meaning;
//! only the possible failures differ.

use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;

#[cfg(feature = "defer")]
use crate::jobs::deferrer::{Deferrer, NoQueue};
use crate::protocol::answer::{Answer, Asked, Failed, Released};
use crate::protocol::request::Request;
use crate::protocol::shutdown::Shutdown;
use crate::store::join::held_all;
use crate::store::memory::Memory;
use crate::store::redis::store::Redis;
#[cfg(feature = "defer")]
use crate::store::redis::store::jobs::RedisJobs;
use crate::store::redlock::store::Redlock;
use crate::store::servers::Servers;
use crate::value::applied::Applied;
use crate::value::error::{LockError, Unavailability};
use crate::value::key::LockKey;
use crate::value::time::{Instant, Moment};

#[derive(Debug)]
pub(crate) enum Store {
    Memory(Memory),
    Redis(Arc<Redis>),
    Redlock(Box<Redlock>),
}

/// How a lock is renewed.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Renewing {
    /// With replication it fails unless replicas have acknowledged the renewal. Failed calls are
    /// repeated for no longer than this.
    Acknowledged(Duration),
    /// Without replicas, whose acknowledgement follows later.
    Alone,
    /// For the rest of the holder's lease, which the server should know already. A server that was
    /// replaced may have lost the lock, or its ttl.
    Kept,
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

    /// Requests a lock, waits for it if the request says so or until the manager is shut down, and
    /// waits for replicas if the store needs their acknowledgement. Several keys are acquired all
    /// or none. Idempotent for a token. The future borrows nothing, so that its caller can store
    /// it. When it is dropped, the token may have been written, and may be in a queue.
    ///
    /// The lock counts as lost, and nothing is sent, if a release of the token was sent before.
    pub(crate) fn acquire(
        self: &Arc<Self>,
        request: &Arc<Request>,
        shutdown: &Arc<Shutdown>,
    ) -> Asked<'static, Result<Answer, Failed>> {
        if request.was_released() {
            let detail = "the lock was released before its caller had it";
            let error = LockError::because(Unavailability::Local, detail);
            let failed = Failed { error, applied: Applied::Unknown };
            return Box::pin(ready(Ok(Answer::Lost(Box::new(Err(failed))))));
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
                let is_single = request.several().is_empty();
                let asked = match wait {
                    None if is_single => store.try_acquire(&request, None),
                    None => store.take_one_by_one(&request, None),
                    Some(wait) if is_single => store.wait(&request, wait, &shutdown),
                    Some(wait) => {
                        let taken = store.take_one_by_one(&request, Some((wait, &shutdown)));
                        Box::pin(shutdown.unless(taken))
                    }
                };
                match asked.await {
                    Ok(Answer::Granted(grant)) if store.is_replicated() => {
                        store.acknowledged(&request, grant).await
                    }
                    answer => answer,
                }
            }),
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

    /// Whether no lock is ever busy.
    pub(crate) fn excludes_nobody(&self) -> bool {
        matches!(self, Store::Memory(memory) if memory.is_disabled)
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
            return Box::pin(self.release_parts(request));
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
        how: Renewing,
    ) -> Asked<'a, Result<bool, LockError>> {
        if self.is_in_parts(request) {
            return Box::pin(async move {
                let parts = self.parts(request);
                held_all(parts.iter().map(|part| self.renew(part, ttl, how))).await
            });
        }
        match (self, how) {
            (Store::Memory(memory), _) => Box::pin(async move { Ok(memory.renew(request, ttl)) }),
            (Store::Redlock(redlock), _) => Box::pin(redlock.renew(request, ttl)),
            (Store::Redis(redis), Renewing::Acknowledged(within)) => {
                redis.renew_acknowledged(request, ttl, within)
            }
            (Store::Redis(redis), Renewing::Alone) => redis.renew(request, ttl, true),
            (Store::Redis(redis), Renewing::Kept) => redis.renew(request, ttl, false),
        }
    }

    /// Whether a request has more keys than a single call can take. It is sent in parts then, to
    /// all of them at the same time, and a failure of one does not stop the others.
    fn is_in_parts(&self, request: &Request) -> bool {
        !request.several().is_empty() && self.at_once(request.several()) < request.several().len()
    }

    fn parts(&self, request: &Request) -> Vec<Request> {
        let (mut parts, mut rest) = (Vec::new(), request.keys());
        while !rest.is_empty() {
            let (part, others) = rest.split_at(self.at_once(rest));
            parts.push(request.part(part));
            rest = others;
        }
        parts
    }

    async fn release_parts(&self, request: &Request) -> Result<Released, LockError> {
        let parts = self.parts(request);
        let all = join_all(parts.iter().map(|part| self.release(part))).await;
        let applied = parts.iter().map(Request::applied).fold(Applied::No, Applied::and);
        if applied.is_known() {
            request.set_applied(applied);
        }
        all.into_iter().try_fold(Released::Held, |found, part| Ok(found.max(part?)))
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
