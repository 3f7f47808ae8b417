//! The number of a manager's locks that are held or in flight. A shutdown waits for them.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

use crate::protocol::request::Request;
use crate::value::sync::until;

/// A counter of locks that may have to be released.
#[derive(Debug, Clone, Default)]
pub(crate) struct InFlight(Arc<Count>);

#[derive(Debug, Default)]
struct Count {
    count: AtomicUsize,
    empty: Notify,
}

impl InFlight {
    pub(crate) fn join(&self) -> InFlightGuard {
        self.enter();
        self.guard()
    }

    /// Counts a lock without a guard. The count ends with the guard that [`guard`](InFlight::guard)
    /// makes.
    pub(crate) fn enter(&self) {
        self.0.count.fetch_add(1, Ordering::SeqCst);
    }

    /// The guard of a lock that has entered. Called once for each.
    pub(crate) fn guard(&self) -> InFlightGuard {
        InFlightGuard { count: Arc::clone(&self.0), owner: None }
    }

    pub(crate) fn count(&self) -> usize {
        self.0.count.load(Ordering::SeqCst)
    }

    /// Waits until the count is zero.
    pub(crate) async fn empty(&self) {
        until(&self.0.empty, || (self.count() == 0).then_some(())).await;
    }
}

/// The owner of a token, to which the end of the token is reported.
pub(crate) trait TokenOwner: fmt::Debug + Send + Sync {
    /// Nothing is left of the token of `request`, or it is left to its ttl.
    fn gone(self: Arc<Self>, request: &Arc<Request>);
}

/// Counts one lock, from before its request is sent until it is known to be released.
#[derive(Debug)]
pub(crate) struct InFlightGuard {
    count: Arc<Count>,
    owner: Option<(Arc<dyn TokenOwner>, Arc<Request>)>,
}

impl InFlightGuard {
    /// The same guard, whose drop is reported to this owner of the token.
    pub(crate) fn of_token(mut self, owner: Option<(Arc<dyn TokenOwner>, Arc<Request>)>) -> Self {
        self.owner = owner;
        self
    }
}

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        if self.count.count.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.count.empty.notify_waiters();
        }
        if let Some((owner, request)) = self.owner.take() {
            owner.gone(&request);
        }
    }
}
