//! A token, from before it is sent until it is known to be gone. Dropping the [`Acquisition`] at
//! any time releases the lock in the background.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::engine::core::{Core, inside_runtime};
use crate::engine::in_flight::{InFlightGuard, TokenOwner};
use crate::protocol::answer::{Answer, Failed, Grant, Queueing, Released};
use crate::protocol::request::Request;
use crate::store::dispatch::Store;
use crate::value::applied::Applied;
use crate::value::error::LockError;
use crate::value::holder::Holder;
use crate::value::key::LockKey;

/// Pause before a lock that was lost at once is requested again.
pub(crate) const PAUSE: Duration = Duration::from_millis(20);

/// One request for a lock, and its release.
#[derive(Debug)]
pub(crate) struct Acquisition {
    manager: Arc<Core>,
    request: Arc<Request>,
    /// The manager counts it as in flight, because there may be something to release.
    is_counted: AtomicBool,
    /// Informed when nothing is left of the token.
    owner: Option<Arc<dyn TokenOwner>>,
}

/// Why the lock was not granted.
#[derive(Debug)]
pub(crate) enum Refusal {
    Contended { key: LockKey, holder: Box<Holder>, queue: Queueing },
    Failed(LockError),
}

impl Acquisition {
    /// An acquisition whose request was not sent yet.
    pub(crate) fn new(manager: Arc<Core>, request: Arc<Request>) -> Self {
        Self { manager, request, is_counted: AtomicBool::new(false), owner: None }
    }

    /// The same in a queue, which is informed when nothing is left of the token.
    pub(crate) fn of_queue(mut self, owner: Arc<dyn TokenOwner>) -> Self {
        self.owner = Some(owner);
        self
    }

    pub(crate) fn manager(&self) -> &Arc<Core> {
        &self.manager
    }

    pub(crate) fn request(&self) -> &Arc<Request> {
        &self.request
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
            self.manager.background.call(ask).await.and_then(|released| released)
        };
        self.released(released)
    }

    /// The same through this connection to the store.
    pub(crate) async fn release_at(&self, store: &Store) -> Result<Released, LockError> {
        self.released(store.release(&self.request).await)
    }

    /// Takes the token out, which this acquisition does not release any more.
    pub(crate) fn give_away(&self) -> Self {
        self.give_to(Arc::clone(&self.request))
    }

    /// The opposite: this acquisition releases the token that was taken out.
    pub(crate) fn take_back(&self, given: &Self) {
        self.is_counted.store(given.is_counted.swap(false, Ordering::AcqRel), Ordering::Release);
    }

    /// The same with another request, which has the same token.
    pub(crate) fn give_to(&self, request: Arc<Request>) -> Self {
        let is_counted = AtomicBool::new(self.is_counted.swap(false, Ordering::AcqRel));
        let (manager, owner) = (Arc::clone(&self.manager), self.owner.clone());
        Self { manager, request, is_counted, owner }
    }

    /// The token is released by another owner of it.
    pub(crate) fn forget(&self) {
        if self.is_counted.swap(false, Ordering::AcqRel) {
            drop(self.manager.guard());
        }
    }

    /// Releases the lock in the background, unless it was released already.
    pub(crate) fn abandon(&self) {
        let guard = self.leaves();
        // Of several keys, some may be held, or a part may be in a queue, although no request for
        // the other keys was sent.
        let may_be = self.request.applied().may_be() || !self.request.several().is_empty();
        if let Some(guard) = guard
            && may_be
        {
            self.manager.background.clean_up(Arc::clone(&self.request), guard);
        }
    }

    /// From here on the token may be sent, and dropping the acquisition releases it.
    pub(crate) fn enter(&self) -> Result<(), LockError> {
        self.manager.count_in()?;
        self.is_counted.store(true, Ordering::Release);
        Ok(())
    }

    /// The same for a token that another owner has sent, also after a shutdown.
    pub(crate) fn counted(self) -> Self {
        self.manager.in_flight.enter();
        self.is_counted.store(true, Ordering::Release);
        self
    }

    /// Becomes an acquisition of the same lock with another token.
    pub(crate) fn renew_token(&mut self) -> Result<(), LockError> {
        let request = Arc::new(self.request.with_new_token()?);
        *self = Self::new(Arc::clone(&self.manager), request);
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
                Err(Refusal::Contended { key, holder: Box::new(holder), queue })
            }
            Ok(Answer::Lost(reported)) => self.take_answer(*reported),
            Err(Failed { error, applied }) => {
                self.forget_unless(applied.may_be());
                Err(Refusal::Failed(error))
            }
        }
    }

    fn released(&self, released: Result<Released, LockError>) -> Result<Released, LockError> {
        let found = released?;
        if self.request.applied().is_known() {
            drop(self.leaves());
        }
        Ok(found)
    }

    /// Marks the token as gone, unless there may be something to release. A queue is told of that
    /// by the drop, after it knows the answer.
    fn forget_unless(&self, is_left: bool) {
        if !is_left && self.owner.is_none() {
            drop(self.leaves());
        }
    }

    /// Takes the guard that counts it as in flight; `None` when it was taken before.
    fn leaves(&self) -> Option<InFlightGuard> {
        let is_counted = self.is_counted.swap(false, Ordering::AcqRel);
        let owner = || self.owner.clone().map(|owner| (owner, Arc::clone(&self.request)));
        is_counted.then(|| self.manager.guard().of_token(owner()))
    }
}

impl Drop for Acquisition {
    fn drop(&mut self) {
        self.abandon();
    }
}
