//! The number of a manager's locks that are held or in flight, for which a shutdown waits; and
//! those whose release is in flight.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use scopeguard::guard;
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::protocol::request::Request;
use crate::sys::sync::{Mutex, until};
use crate::value::key::LockKey;

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

/// The releases in flight that no caller waits for, of locks that belong to no queue.
#[derive(Debug, Default)]
pub(crate) struct Trailing {
    requests: Mutex<Vec<Request>>,
    ended: Notify,
}

impl Trailing {
    /// Notes a release, until the result is dropped.
    pub(crate) fn join(self: &Arc<Self>, request: &Request) -> impl Send + use<> {
        self.requests.lock().push(request.clone());
        guard((Arc::clone(self), request.clone()), |(all, request)| {
            all.requests.lock().retain(|other| *other != request);
            all.ended.notify_waiters();
        })
    }

    /// Waits until no release of `key` is in flight; `false` where one still is after `longest`.
    pub(crate) async fn over(&self, key: &LockKey, longest: Duration) -> bool {
        let has = |request: &Request| request.ask.keys().contains(key);
        let over = until(&self.ended, || (!self.requests.lock().iter().any(has)).then_some(()));
        timeout(longest, over).await.is_ok()
    }
}

/// The owner of a token, to which the end of the token is reported.
pub(crate) trait TokenOwner: fmt::Debug + Send + Sync {
    /// Nothing is left of the token of `request`, or it is left to its ttl.
    fn gone(self: Arc<Self>, request: &Request);
}

/// Counts one lock, from before its request is sent until it is known to be released.
#[derive(Debug)]
pub(crate) struct InFlightGuard {
    all: Arc<InFlight>,
    /// The owner of its token, to which the drop of this is reported.
    pub(crate) owner: Option<(Arc<dyn TokenOwner>, Request)>,
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
