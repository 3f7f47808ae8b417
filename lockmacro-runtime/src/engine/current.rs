//! The manager of a lock that names none: the one of the surrounding scope, or the installed one.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;

use tokio::task::{Id, try_id};

use crate::engine::manager::Manager;
use crate::value::error::LockError;

tokio::task_local! {
    /// The manager of the innermost scope, and the task of that scope. A task that is polled inside
    /// another task's poll, as in a `LocalSet`, is not in the scope.
    static CURRENT: (Arc<Manager>, Option<Id>);
}

/// The manager of the scope around the running code, if there is one.
pub(crate) fn here() -> Option<Arc<Manager>> {
    let (manager, task) = CURRENT.try_with(Clone::clone).ok()?;
    (task == try_id()).then_some(manager)
}

/// The manager of a lock that names none.
///
/// # Errors
/// [`LockError::NotInstalled`] when there is neither a scope nor an installed manager.
pub(crate) fn manager() -> Result<Arc<Manager>, LockError> {
    here().map_or_else(Manager::installed, Ok)
}

/// Runs `work` in the scope of a manager, if there is one, in whichever task it is polled.
pub(crate) async fn around<F: Future>(manager: Option<Arc<Manager>>, work: F) -> F::Output {
    let mut work = pin!(work);
    poll_fn(|cx| enter(manager.as_ref(), || work.as_mut().poll(cx))).await
}

/// The same for code that is not async.
pub(crate) fn enter<R>(manager: Option<&Arc<Manager>>, work: impl FnOnce() -> R) -> R {
    match manager {
        Some(manager) => CURRENT.sync_scope((Arc::clone(manager), try_id()), work),
        None => work(),
    }
}
