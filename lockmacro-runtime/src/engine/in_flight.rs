//! How many locks of a manager are out, so that shutting down can wait for them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

#[derive(Debug, Clone, Default)]
pub(crate) struct InFlight(Arc<Count>);

#[derive(Debug, Default)]
struct Count {
    members: AtomicUsize,
    empty: Notify,
}

impl InFlight {
    pub(crate) fn join(&self) -> InFlightGuard {
        self.enter();
        self.guard()
    }

    /// Counts one that remembers this by itself, and leaves by [`member`](InFlight::member).
    pub(crate) fn enter(&self) {
        self.0.members.fetch_add(1, Ordering::SeqCst);
    }

    /// One that has entered; to be asked for once.
    pub(crate) fn guard(&self) -> InFlightGuard {
        InFlightGuard(Arc::clone(&self.0))
    }

    pub(crate) fn count(&self) -> usize {
        self.0.members.load(Ordering::SeqCst)
    }

    /// Waits until nobody is left.
    pub(crate) async fn empty(&self) {
        loop {
            // Registered before counting: who leaves in between is heard.
            let empty = self.0.empty.notified();
            if self.count() == 0 {
                return;
            }
            empty.await;
        }
    }
}

/// One lock, from before its request is sent until it is known to be given back. Dropping it
/// leaves.
#[derive(Debug)]
pub(crate) struct InFlightGuard(Arc<Count>);

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        if self.0.members.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.0.empty.notify_waiters();
        }
    }
}
