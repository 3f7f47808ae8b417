//! The handle of a store: what every kind of store has in common, above its backend.

use std::fmt;
use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;

use crate::protocol::answer::{Answer, Failed, Released, StoreFuture};
use crate::protocol::request::Request;
use crate::store::backend::{Backend, Facts, RenewKind, Wait};
use crate::store::join::held_all;
use crate::store::shutdown::Shutdown;
use crate::sys::time::Moment;
use crate::value::applied::Applied;
use crate::value::error::{LockError, UnavailableReason};

/// A store of locks. Requests for several keys, or with replicas, are more than one call to its
/// backend.
#[derive(Clone)]
pub(crate) struct Store {
    /// For what one call to it does.
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) facts: Facts,
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.backend.fmt(f)
    }
}

impl Store {
    pub(crate) fn of(backend: impl Backend + 'static) -> Self {
        let facts = backend.facts();
        Self { backend: Arc::new(backend), facts }
    }

    /// The number of its handles.
    #[cfg(test)]
    pub(crate) fn handles(&self) -> usize {
        Arc::strong_count(&self.backend)
    }

    /// The same locks through a connection of its own: see [`Backend::apart`].
    pub(crate) fn apart(&self) -> Self {
        Self { backend: self.backend.apart(), facts: self.facts }
    }

    /// Makes every waiter in a queue repeat its request.
    pub(crate) fn alarm(&self) {
        if let Some(subscriptions) = self.backend.subscriptions() {
            subscriptions.alarm_where(|_| true);
        }
    }

    /// Whether there is no server.
    pub(crate) fn is_local(&self) -> bool {
        self.facts.answer_time().is_zero()
    }

    /// Requests a lock, waits for it if the request says so or until the manager is shut down, and
    /// waits for replicas if the store needs their acknowledgement. Several keys are acquired all
    /// or none. Idempotent for a token. The future borrows nothing, so that its caller can store
    /// it. When it is dropped, the token may have been written, and may be in a queue.
    ///
    /// The grant counts as stale, and nothing is sent, if a release of the token was sent before.
    pub(crate) fn acquire(
        &self,
        request: &Request,
        shutdown: &Arc<Shutdown>,
    ) -> StoreFuture<'static, Result<Answer, Failed>> {
        if request.token.was_released() {
            let detail = "the lock was released before its caller had it";
            let error = LockError::because(UnavailableReason::Local, detail);
            let failed = Failed { error, applied: Applied::Unknown };
            return Box::pin(ready(Ok(Answer::Stale(Box::new(Err(failed))))));
        }
        let until = request.ask.until.filter(|_| !request.ask.only_if_free);
        let wait = until.map_or(Wait::AtOnce(None), |until| {
            // Before a part is made of it, which has to be released like this one.
            request.token.note_queued();
            Wait::Waits(until.since(Moment::now()), Arc::clone(shutdown))
        });
        let is_single = request.ask.several.is_empty();
        // The common case needs one box only.
        if is_single && !self.facts.is_replicated {
            return self.ask(request.clone(), wait);
        }
        let store = self.clone();
        let request = request.clone();
        Box::pin(async move {
            let asked = if is_single {
                store.ask(request.clone(), wait)
            } else {
                store.take_one_by_one(&request, wait)
            };
            match asked.await {
                Ok(Answer::Granted(grant)) if store.facts.is_replicated => {
                    store.acknowledged(&request, grant).await
                }
                answer => answer,
            }
        })
    }

    /// Asks for one key, or several keys that one call can take: see [`Backend::ask`].
    pub(super) fn ask(
        &self,
        request: Request,
        wait: Wait,
    ) -> StoreFuture<'static, Result<Answer, Failed>> {
        Arc::clone(&self.backend).ask(request, wait)
    }

    /// Removes the token, or keeps the key for the rest of the request's `min_hold`. Returns
    /// whether the lock was held; of several keys, whether all were. Idempotent. The token never
    /// asks for the lock again, see [`acquire`](Store::acquire).
    pub(crate) fn release<'a>(
        &'a self,
        request: &'a Request,
    ) -> StoreFuture<'a, Result<Released, LockError>> {
        if !request.token.note_released() {
            return Box::pin(ready(Ok(Released::Unconfirmed)));
        }
        if self.is_in_parts(request) {
            Box::pin(self.release_parts(request))
        } else {
            self.backend.release(request)
        }
    }

    /// Restarts the lock's ttl. Returns whether the token still held the lock; of several keys, all
    /// of them. Never acquires the lock.
    pub(crate) fn renew<'a>(
        &'a self,
        request: &'a Request,
        ttl: Duration,
        how: RenewKind,
    ) -> StoreFuture<'a, Result<bool, LockError>> {
        if !self.is_in_parts(request) {
            return self.backend.renew(request, ttl, how);
        }
        Box::pin(async move {
            let parts = self.parts(request);
            held_all(parts.iter().map(|part| self.renew(part, ttl, how))).await
        })
    }

    /// Whether a request has more keys than a single call can take. It is sent in parts then, to
    /// all of them at the same time, and a failure of one does not stop the others.
    fn is_in_parts(&self, request: &Request) -> bool {
        !request.ask.several.is_empty()
            && self.backend.at_once(&request.ask.several) < request.ask.several.len()
    }

    fn parts(&self, request: &Request) -> Vec<Request> {
        let mut parts = Vec::new();
        let mut rest = request.ask.keys();
        while !rest.is_empty() {
            let (part, others) = rest.split_at(self.backend.at_once(rest));
            parts.push(request.part(part, request.ask.ttl));
            rest = others;
        }
        parts
    }

    async fn release_parts(&self, request: &Request) -> Result<Released, LockError> {
        let parts = self.parts(request);
        let all = join_all(parts.iter().map(|part| self.release(part))).await;
        let applied = parts.iter().map(|part| part.token.applied()).fold(Applied::No, Applied::and);
        if applied.is_known() {
            request.token.set_applied(applied);
        }
        all.into_iter().try_fold(Released::Held, |found, part| Ok(found.max(part?)))
    }
}
