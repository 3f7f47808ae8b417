//! A token, from before it is sent until it is known to be gone. Dropping the [`Acquisition`] at
//! any time releases the lock in the background.

use std::sync::Arc;
use std::time::Duration;

use crate::engine::core::Core;
use crate::engine::token::in_flight::{InFlightGuard, TokenOwner};
use crate::protocol::answer::{Answer, Contention, Failed, Grant, Queueing, Released};
use crate::protocol::ask::Ask;
use crate::protocol::request::Request;
use crate::store::handle::Store;
use crate::sys::random::secret;
use crate::value::applied::Applied;
use crate::value::error::LockError;
use crate::value::holder::Holder;
use crate::value::key::LockKey;

/// Pause before a lock is requested again after a stale grant.
pub(crate) const PAUSE: Duration = Duration::from_millis(20);

/// One request for a lock, and its release.
#[derive(Debug)]
pub(crate) struct Acquisition {
    manager: Arc<Core>,
    request: Request,
    /// Counts it as in flight, because there may be something to release.
    guard: Option<InFlightGuard>,
}

/// Why the lock was not granted.
#[derive(Debug)]
pub(crate) enum Refusal {
    Contended { key: LockKey, holder: Box<Holder>, queue: Queueing },
    Failed(LockError),
}

/// The request of a caller, with a token of its own.
pub(crate) fn drawn(ask: &Arc<Ask>) -> Result<Request, LockError> {
    let random = secret().map_err(LockError::no_random)?;
    Ok(Request::new(Arc::clone(ask), ask.token(random)))
}

impl Acquisition {
    /// The acquisition of a token that may be sent from here on. `guard` counts it as in flight.
    /// `owner`: the queue, if it is in one.
    pub(crate) fn new(
        mut guard: InFlightGuard,
        manager: Arc<Core>,
        request: Request,
        owner: Option<Arc<dyn TokenOwner>>,
    ) -> Self {
        guard.owner = owner.map(|owner| (owner, request.clone()));
        Self { manager, request, guard: Some(guard) }
    }

    pub(crate) fn manager(&self) -> &Arc<Core> {
        &self.manager
    }

    pub(crate) fn request(&self) -> &Request {
        &self.request
    }

    /// Releases the lock through this connection to the store, and returns the server's answer.
    /// After an error, dropping the acquisition releases the lock in the background.
    pub(crate) async fn release_at(&mut self, store: &Store) -> Result<Released, LockError> {
        let found = store.release(&self.request).await?;
        if self.request.token.applied().is_known() {
            self.guard = None;
        }
        Ok(found)
    }

    /// Takes the token out, for the request of its next owner.
    pub(crate) fn give_to(&mut self, request: Request) -> Self {
        Self { manager: Arc::clone(&self.manager), request, guard: self.guard.take() }
    }

    /// The token is released by another owner of it.
    pub(crate) fn forget(mut self) {
        drop(self.guard.take().map(|mut guard| guard.owner.take()));
    }

    /// Records the outcome of the request, and returns the grant.
    pub(crate) fn take_answer(&mut self, answer: Result<Answer, Failed>) -> Result<Grant, Refusal> {
        match answer {
            Ok(Answer::Granted(grant)) => {
                self.request.note_granted(grant.at);
                self.request.token.set_applied(grant.earlier.and(Applied::Yes));
                Ok(grant)
            }
            Ok(Answer::Contended(Contention { nth, holder, queue, earlier, .. })) => {
                let is_queued = matches!(queue, Queueing::Behind(_));
                self.request.token.set_applied(if is_queued {
                    earlier.and(Applied::Yes)
                } else {
                    earlier
                });
                let key = self.request.ask.keys().get(nth).unwrap_or(&self.request.ask.key).clone();
                // A waiter whose wait is over leaves the queue when the acquisition is dropped. A
                // node of a Redlock may hold an earlier one of several keys although it has not
                // answered.
                self.forget_unless(!self.request.token.applied().is_known() || is_queued);
                Err(Refusal::Contended { key, holder, queue })
            }
            Ok(Answer::Stale(reported)) => self.take_answer(*reported),
            Err(Failed { error, applied }) => {
                self.request.token.set_applied(applied);
                self.forget_unless(applied.may_be());
                Err(Refusal::Failed(error))
            }
        }
    }

    /// Marks the token as gone, unless there may be something to release. A queue is told of that
    /// by the drop, after it knows the answer.
    fn forget_unless(&mut self, is_left: bool) {
        drop(self.guard.take_if(|guard| !is_left && guard.owner.is_none()));
    }
}

/// Releases the lock in the background, unless it was released already.
impl Drop for Acquisition {
    fn drop(&mut self) {
        // Of several keys, some may be held, or a part may be in a queue, although no request for
        // the other keys was sent.
        if let Some(guard) = self.guard.take()
            && (self.request.token.applied().may_be() || !self.request.ask.several.is_empty())
        {
            self.manager.background.clean_up(self.request.clone(), guard);
        }
    }
}
