//! The end of a manager, as those who wait hear of it.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Poll, ready};

use tokio::sync::Notify;

use crate::protocol::answer::Failed;
use crate::value::error::LockError;

/// Whether a manager was shut down.
#[derive(Debug, Default)]
pub(crate) struct Shutdown {
    closed: AtomicBool,
    /// Told when it is.
    told: Notify,
}

impl Shutdown {
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.told.notify_waiters();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// What is told to who waits for a lock, from then on.
    pub(crate) fn check(&self) -> Result<(), Failed> {
        if self.is_closed() { Err(shut_down()) } else { Ok(()) }
    }

    /// Waits until the manager is shut down.
    #[cfg(feature = "defer")]
    pub(crate) async fn closed(&self) {
        let mut told = pin!(self.told.notified());
        // From here on it is heard.
        told.as_mut().enable();
        if !self.is_closed() {
            told.await;
        }
    }

    /// Waits for the answer, or until the manager is shut down.
    pub(crate) async fn unless<T>(
        &self,
        mut asked: impl Future<Output = Result<T, Failed>> + Unpin,
    ) -> Result<T, Failed> {
        let mut told = pin!(self.told.notified());
        // From here on it is heard.
        told.as_mut().enable();
        poll_fn(|cx| {
            if self.is_closed() {
                return Poll::Ready(Err(shut_down()));
            }
            if let Poll::Ready(answer) = pin!(&mut asked).poll(cx) {
                return Poll::Ready(answer);
            }
            ready!(told.as_mut().poll(cx));
            Poll::Ready(Err(shut_down()))
        })
        .await
    }
}

fn shut_down() -> Failed {
    Failed { error: LockError::ShutDown, written: true }
}
