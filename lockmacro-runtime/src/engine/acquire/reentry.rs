//! Re-entry: the locks held around the running code, so that the same lock can be joined.

use std::sync::Arc;

use tokio::task::{Id, try_id};

use crate::engine::lease::held::Held;
use crate::value::error::LockError;
use crate::value::key::LockKey;

tokio::task_local! {
    /// The innermost scope, and its task. A task that is polled inside another task's poll, as
    /// under a `block_on` or in a `LocalSet`, is not in the scope.
    static INNERMOST: (Scope, Option<Id>);
}

/// A held lock and the locks around it. It belongs to one task: a spawned task is not in it.
#[derive(Debug, Clone)]
pub(crate) struct Scope {
    held: Arc<Held>,
    outer: Option<Arc<Scope>>,
}

impl Scope {
    /// The scope of `held`, inside the current scope.
    pub(crate) fn inside(held: Arc<Held>) -> Self {
        Self { held, outer: Self::current().map(Arc::new) }
    }

    /// Runs `work` in the scope.
    pub(crate) fn enter<R>(&self, work: impl FnOnce() -> R) -> R {
        let here = (self.clone(), try_id());
        self.held.span.in_scope(|| INNERMOST.sync_scope(here, work))
    }

    /// The innermost held lock.
    pub(crate) fn innermost() -> Option<Arc<Held>> {
        Self::current().map(|scope| scope.held)
    }

    /// The innermost held lock for which `wanted` is true, unless it was released.
    pub(crate) fn find(wanted: impl Fn(&Held) -> bool) -> Option<Arc<Held>> {
        let innermost = Self::current();
        let mut next = innermost.as_ref();
        while let Some(Self { held, outer }) = next {
            if wanted(held) && !held.was_released() {
                return Some(Arc::clone(held));
            }
            next = outer.as_deref();
        }
        None
    }

    fn current() -> Option<Self> {
        let innermost = INNERMOST.try_with(Clone::clone).ok();
        innermost.filter(|(_, task)| *task == try_id()).map(|(scope, _)| scope)
    }
}

/// The innermost held lock that has all of `keys`; an error when a held lock has only some of them.
pub(crate) fn around(
    keys: &[LockKey],
    ours: impl Fn(&Held) -> bool,
) -> Result<Option<Arc<Held>>, LockError> {
    let has = |held: &Held, key: &LockKey| held.nth(key).is_some();
    if let Some(held) = Scope::find(|held| ours(held) && keys.iter().all(|key| has(held, key))) {
        return Ok(Some(held));
    }
    let partly = |key: &&LockKey| Scope::find(|held| ours(held) && has(held, key)).is_some();
    match keys.iter().find(partly) {
        Some(key) => {
            let why =
                "and other keys of the same lock are not: acquire all of them in the outer lock";
            Err(LockError::nested(key, why))
        }
        None => Ok(None),
    }
}
