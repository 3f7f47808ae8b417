//! Which manager a lock has that names none: that of its task, before the installed one.

use crate::LockError;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;

use tokio::task::{Id, try_id};

use crate::engine::core::Core;

tokio::task_local! {
    /// The innermost one, and the task that it is for. A task that is polled from within another
    /// one's poll, as in a `LocalSet`, is outside.
    static CURRENT: (Arc<Core>, Option<Id>);
}

/// The manager of the code that runs right now, if it is in a scope.
#[derive(Debug, Clone)]
pub(crate) struct Current(Option<Arc<Core>>);

impl Current {
    pub(crate) fn here() -> Self {
        let current = CURRENT.try_with(Clone::clone).ok();
        Self(current.filter(|(_, task)| *task == try_id()).map(|(manager, _)| manager))
    }

    /// That of a scope of this manager.
    pub(crate) fn of(manager: &Arc<Core>) -> Self {
        Self(Some(Arc::clone(manager)))
    }

    /// The manager of a lock that names none: that of the scope around, or else the installed one.
    ///
    /// # Errors
    /// [`LockError::NotInstalled`] when there is none.
    pub(crate) fn manager_here() -> Result<Arc<Core>, LockError> {
        Self::here().0.map_or_else(Core::installed, Ok)
    }

    /// The one here, or else this one.
    pub(crate) fn unless_here(&self) -> Self {
        Self(Self::here().0.or_else(|| self.0.clone()))
    }

    /// Runs `work` with it, from its first poll to its last, in whichever task that is.
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
