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
#[derive(Debug, Clone)]
pub(crate) struct Current(Option<Arc<Manager>>);

impl Current {
    pub(crate) fn here() -> Self {
        let current = CURRENT.try_with(Clone::clone).ok();
        Self(current.filter(|(_, task)| *task == try_id()).map(|(manager, _)| manager))
    }

    /// The scope of a manager.
    pub(crate) fn of(manager: &Arc<Manager>) -> Self {
        Self(Some(Arc::clone(manager)))
    }

    /// The manager of a lock that names none.
    ///
    /// # Errors
    /// [`LockError::NotInstalled`] when there is neither a scope nor an installed manager.
    pub(crate) fn manager_here() -> Result<Arc<Manager>, LockError> {
        Self::here().0.map_or_else(Manager::installed, Ok)
    }

    /// The scope here, or this one when there is none.
    pub(crate) fn unless_here(&self) -> Self {
        Self(Self::here().0.or_else(|| self.0.clone()))
    }

    /// Runs `work` in the scope, in whichever task it is polled.
    pub(crate) async fn around<F: Future>(self, work: F) -> F::Output {
        let mut work = pin!(work);
        poll_fn(|cx| self.enter(|| work.as_mut().poll(cx))).await
    }

    pub(crate) fn enter<R>(&self, work: impl FnOnce() -> R) -> R {
        match &self.0 {
            Some(manager) => CURRENT.sync_scope((manager.clone(), try_id()), work),
            None => work(),
        }
    }
}
