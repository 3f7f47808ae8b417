//! The call that a worker runs right now, for the function that it calls.

use std::sync::{Arc, Mutex, PoisonError};

use crate::LockGuard;
use crate::error::LockError;

tokio::task_local! {
    static RUNNING: Running;
}

/// Belongs to one task: what is spawned inside is outside of it.
#[derive(Debug, Clone)]
pub(super) struct Running(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    function: Arc<str>,
    /// As the function itself would store them: a map may be stored in any order.
    arguments: String,
    /// What went wrong that the function's return type may not tell.
    trouble: Mutex<Option<LockError>>,
}

impl Running {
    pub(super) fn new(function: Arc<str>, arguments: String) -> Self {
        Self(Arc::new(Inner { function, arguments, trouble: Mutex::new(None) }))
    }

    /// Runs `work` as this call.
    pub(super) async fn around<F: Future>(self, work: F) -> F::Output {
        RUNNING.scope(self, work).await
    }

    /// The same for code that is not async.
    pub(super) fn enter<R>(self, work: impl FnOnce() -> R) -> R {
        RUNNING.sync_scope(self, work)
    }

    /// What went wrong.
    pub(super) fn trouble(&self) -> Option<LockError> {
        self.0.trouble.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn note(&self, error: LockError) {
        *self.0.trouble.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
    }
}

/// Whether this is the call that a worker runs here. Then it is stored already, and its worker is told
/// that it was busy.
pub(super) fn is_running(function: &str, arguments: &str, busy: &LockError) -> bool {
    let is_this = |running: &Running| {
        let is_this = *running.0.function == *function && running.0.arguments == arguments;
        if is_this {
            running.note(busy.clone());
        }
        is_this
    };
    RUNNING.try_with(is_this).unwrap_or(false)
}

/// Takes note of an error that a return type cannot carry, so that the worker knows.
pub(crate) fn unreported(error: &LockError) {
    // What fails inside of the body is the body's own business.
    if LockGuard::current().is_some() {
        return;
    }
    // Outside of a worker there is nobody to tell.
    let _ = RUNNING.try_with(|running| running.note(error.clone()));
}
