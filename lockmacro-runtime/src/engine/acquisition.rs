//! A token, from before it is sent until it is known to be gone. Dropping the [`Acquisition`] at
//! any time releases the lock in the background.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::sleep;

use crate::engine::core::{Core, inside_runtime};
use crate::engine::in_flight::InFlightGuard;
use crate::protocol::answer::{Answer, Failed, Grant, Queueing, Released};
use crate::protocol::other_holder::OtherHolder;
use crate::protocol::request::Request;
use crate::store::dispatch::Store;
use crate::value::applied::Applied;
use crate::value::error::LockError;
use crate::value::key::LockKey;
use crate::value::time::Moment;

/// Pause before a lock that was lost at once is requested again.
pub(crate) const PAUSE: Duration = Duration::from_millis(20);

/// One request for a lock, and its release.
#[derive(Debug)]
pub(crate) struct Acquisition {
    manager: Arc<Core>,
    request: Arc<Request>,
    /// The manager counts it as in flight, because there may be something to release.
    is_counted: AtomicBool,
    /// The token is the first one of its caller.
    is_first: bool,
    /// The caller blocks its thread.
    is_blocking: bool,
}

/// Why the lock was not granted.
#[derive(Debug)]
pub(crate) enum Refusal {
    Contended { key: LockKey, holder: OtherHolder, queue: Queueing },
    Failed(LockError),
}

impl Acquisition {
    /// An acquisition whose request was not sent yet.
    pub(crate) fn new(manager: Arc<Core>, request: Request) -> Self {
        let (request, is_counted) = (Arc::new(request), AtomicBool::new(false));
        Self { manager, request, is_counted, is_first: true, is_blocking: false }
    }

    /// The same for a caller that blocks its thread.
    pub(crate) fn blocking(self) -> Self {
        let is_counted = AtomicBool::new(false);
        let (manager, request) = (Arc::clone(&self.manager), Arc::clone(&self.request));
        Self { manager, request, is_counted, is_first: self.is_first, is_blocking: true }
    }

    pub(crate) fn manager(&self) -> &Arc<Core> {
        &self.manager
    }

    pub(crate) fn request(&self) -> &Arc<Request> {
        &self.request
    }

    /// The store that the caller asks. The runtime of a blocked thread may be blocked with it, so
    /// such a caller asks through the connection of the background thread.
    pub(crate) fn store(&self) -> Arc<Store> {
        match self.is_blocking {
            true => self.manager.background().store(),
            false => Arc::clone(self.manager.shared_store()),
        }
    }

    /// Releases the lock, and returns the server's answer. After an error, dropping the
    /// acquisition releases the lock in the background.
    pub(crate) async fn release(&self) -> Result<Released, LockError> {
        let released = if inside_runtime().is_ok() {
            self.manager.store().release(&self.request).await
        } else {
            // A lock acquired by a plain thread may be released on another executor than tokio.
            let request = Arc::clone(&self.request);
            let ask = move |store: Arc<Store>| async move { store.release(&request).await };
            self.manager.background().call(ask).await.and_then(|released| released)
        };
        self.released(released)
    }

    /// Takes the token out, to be passed on; `None` when it was released already.
    pub(crate) fn give_away(&self) -> Option<Self> {
        let is_given = self.is_counted.swap(false, Ordering::AcqRel);
        is_given.then(|| self.of_same_token(Arc::clone(&self.request)))
    }

    /// The acquisition of a waiter that the lock was passed to.
    pub(crate) fn taken_up(self, draft: &Request, kept_until: Moment) -> Self {
        let request = draft.with_token_of(&self.request, kept_until);
        self.is_counted.store(false, Ordering::Release);
        self.of_same_token(Arc::new(request))
    }

    /// The acquisition for waiters that want another ttl, or a fence.
    pub(crate) fn with_wish(self, wish: (Duration, bool)) -> Self {
        let request = self.request.with_wish(wish);
        self.is_counted.store(false, Ordering::Release);
        self.of_same_token(Arc::new(request))
    }

    /// The next owner of the token. The lock is counted as in flight already.
    fn of_same_token(&self, request: Arc<Request>) -> Self {
        let (manager, is_counted) = (Arc::clone(&self.manager), AtomicBool::new(true));
        Self { manager, request, is_counted, is_first: false, is_blocking: false }
    }

    /// The same through another connection to the store.
    pub(crate) async fn release_at(&self, store: &Store) -> Result<Released, LockError> {
        self.released(store.release(&self.request).await)
    }

    /// Releases the lock in the background, unless it was released already.
    pub(crate) fn abandon(&self) {
        self.abandon_with(Vec::new());
    }

    /// The same. `more` is dropped when the lock was released.
    pub(crate) fn abandon_with(&self, more: Vec<InFlightGuard>) {
        let guard = self.leaves();
        // Of several keys, some may be held, or a part may be in a queue, although no request for
        // the other keys was sent.
        let may_be = self.request.applied().may_be() || !self.request.several().is_empty();
        if let Some(guard) = guard
            && may_be
        {
            self.manager.background().clean_up(Arc::clone(&self.request), guard.with(more));
        }
    }

    /// From here on the token may be sent, and dropping the acquisition releases it.
    pub(crate) fn enter(&self) -> Result<(), Refusal> {
        self.manager.count_in().map_err(Refusal::Failed)?;
        self.is_counted.store(true, Ordering::Release);
        Ok(())
    }

    /// Whether to request the lock again, because the lock was lost before its caller had it. A
    /// waiter does so until its deadline, and a caller that does not wait does so once.
    pub(crate) fn is_to_restart(&self, answer: &Result<Answer, Failed>) -> bool {
        matches!(answer, Ok(Answer::Lost(_)))
            && self.request.until.map_or(self.is_first, |until| Moment::now() < until)
    }

    /// Releases what is left of the lock, and requests it with another token.
    pub(crate) async fn restart(mut self) -> (Self, Result<(), Refusal>) {
        // After an error, dropping the replaced acquisition releases it in the background.
        _ = self.release_at(&self.store()).await;
        sleep(PAUSE).await;
        let renewed = self.renew_token();
        (self, renewed)
    }

    /// Becomes an acquisition of the same lock with another token.
    fn renew_token(&mut self) -> Result<(), Refusal> {
        let request = self.request.with_new_token().map_err(Refusal::Failed)?;
        let is_blocking = self.is_blocking;
        *self = Self::new(self.manager.clone(), request);
        (self.is_first, self.is_blocking) = (false, is_blocking);
        self.enter()
    }

    /// Records the outcome of the request, and returns the grant.
    pub(crate) fn take_answer(&self, answer: Result<Answer, Failed>) -> Result<Grant, Refusal> {
        match answer {
            Ok(Answer::Granted(grant)) => {
                self.request.granted(grant.at);
                self.request.set_applied(grant.earlier.and(Applied::Yes));
                Ok(grant)
            }
            Ok(Answer::Contended { nth, holder, queue, earlier }) => {
                let is_queued = matches!(queue, Queueing::Left(_));
                self.request.set_applied(match is_queued {
                    true => earlier.and(Applied::Yes),
                    false => earlier,
                });
                let key = self.request.keys().get(nth).unwrap_or(&self.request.key).clone();
                // A waiter whose wait is over leaves the queue when the acquisition is dropped. A
                // node of a Redlock may hold an earlier one of several keys although it has not
                // answered.
                self.forget_unless(!self.request.applied().is_known() || is_queued);
                Err(Refusal::Contended { key, holder, queue })
            }
            Ok(Answer::Lost(reported)) => self.take_answer(*reported),
            Err(Failed { error, applied }) => {
                self.forget_unless(applied.may_be());
                Err(Refusal::Failed(error))
            }
        }
    }

    pub(crate) fn released(
        &self,
        released: Result<Released, LockError>,
    ) -> Result<Released, LockError> {
        let found = released?;
        self.forget_unless(!self.request.applied().is_known());
        Ok(found)
    }

    /// Marks the token as gone, unless there may be something to release.
    fn forget_unless(&self, is_left: bool) {
        if !is_left {
            drop(self.leaves());
        }
    }

    /// Takes the guard that counts it as in flight; `None` when it was taken before.
    fn leaves(&self) -> Option<InFlightGuard> {
        self.is_counted.swap(false, Ordering::AcqRel).then(|| self.manager.guard())
    }
}

impl Drop for Acquisition {
    fn drop(&mut self) {
        self.abandon();
    }
}
