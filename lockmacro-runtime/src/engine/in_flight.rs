//! The number of a manager's locks that are held or in flight. A shutdown waits for them.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

use crate::protocol::request::Request;
use crate::value::sync::until;

/// A counter of locks that may have to be released.
#[derive(Debug, Default)]
pub(crate) struct InFlight {
    count: AtomicUsize,
    empty: Notify,
}

impl InFlight {
    /// Counts one more, until the guard is dropped.
    pub(crate) fn join(self: &Arc<Self>) -> InFlightGuard {
        self.count.fetch_add(1, Ordering::SeqCst);
        InFlightGuard { all: Arc::clone(self), owner: None }
    }

    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }

    /// Waits until the count is zero.
    pub(crate) async fn empty(&self) {
        until(&self.empty, || (self.count() == 0).then_some(())).await;
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
    all: Arc<InFlight>,
    /// The owner of its token, to which the drop of this is reported.
    pub(crate) owner: Option<(Arc<dyn TokenOwner>, Arc<Request>)>,
}

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        if self.all.count.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.all.empty.notify_waiters();
        }
        if let Some((owner, request)) = self.owner.take() {
            owner.gone(&request);
        }
    }
}
