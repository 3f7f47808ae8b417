//! The shutdown of a manager, as a signal for its waiters.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::{Either, select};
use tokio::sync::Notify;

use crate::protocol::answer::Failed;
use crate::sys::sync::until;
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
    pub(crate) fn closed(&self) -> impl Future<Output = ()> {
        until(&self.signal, || self.is_closed().then_some(()))
    }

    /// Waits for the answer. A shutdown ends the wait with an error.
    pub(crate) async fn unless<T>(
        &self,
        asked: impl Future<Output = Result<T, Failed>> + Unpin,
    ) -> Result<T, Failed> {
        match select(pin!(self.closed()), asked).await {
            Either::Left(_) => Err(shut_down()),
            Either::Right((answer, _)) => answer,
        }
    }
}

fn shut_down() -> Failed {
    Failed { error: LockError::SHUT_DOWN, applied: Applied::Unknown }
}
