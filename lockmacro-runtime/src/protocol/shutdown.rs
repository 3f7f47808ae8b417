//! The shutdown of a manager, as a signal for its waiters.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Poll, ready};

use tokio::sync::Notify;

use crate::protocol::answer::Failed;
use crate::value::applied::Applied;
use crate::value::error::LockError;

/// The signal that a manager was shut down.
#[derive(Debug, Default)]
pub(crate) struct Shutdown {
    closed: AtomicBool,
    signal: Notify,
}

impl Shutdown {
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.signal.notify_waiters();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// An error once the manager was shut down.
    pub(crate) fn check(&self) -> Result<(), Failed> {
        if self.is_closed() { Err(shut_down()) } else { Ok(()) }
    }

    /// Waits until the manager is shut down.
    #[cfg(feature = "defer")]
    pub(crate) async fn closed(&self) {
        let mut signal = pin!(self.signal.notified());
        // Registered before the check, so that no shutdown in between is missed.
        signal.as_mut().enable();
        if !self.is_closed() {
            signal.await;
        }
    }

    /// Waits for the answer. A shutdown ends the wait with an error.
    pub(crate) async fn unless<T>(
        &self,
        mut asked: impl Future<Output = Result<T, Failed>> + Unpin,
    ) -> Result<T, Failed> {
        let mut signal = pin!(self.signal.notified());
        // Registered before the check, so that no shutdown in between is missed.
        signal.as_mut().enable();
        poll_fn(|cx| {
            if self.is_closed() {
                return Poll::Ready(Err(shut_down()));
            }
            if let Poll::Ready(answer) = pin!(&mut asked).poll(cx) {
                return Poll::Ready(answer);
            }
            ready!(signal.as_mut().poll(cx));
            Poll::Ready(Err(shut_down()))
        })
        .await
    }
}

fn shut_down() -> Failed {
    Failed { error: LockError::ShutDown, applied: Applied::Unknown }
}
