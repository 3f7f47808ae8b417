//! Which locks the code that runs right now is under, so that the same lock can be entered again.

use std::sync::Arc;

use crate::LockManager;
use crate::held::Held;
use crate::key::LockKey;

tokio::task_local! {
    static INNERMOST: Scope;
}

/// A held lock and those around it. Belongs to one task: what is spawned inside is outside of it.
#[derive(Debug, Clone)]
pub(crate) struct Scope(Arc<Level>);

#[derive(Debug)]
struct Level {
    held: Arc<Held>,
    outer: Option<Scope>,
}

impl Scope {
    /// `held`, inside of what is held here already.
    pub(crate) fn inside(held: Arc<Held>) -> Self {
        Self(Arc::new(Level { held, outer: Self::current() }))
    }

    /// Runs `work` inside.
    pub(crate) fn enter<R>(&self, work: impl FnOnce() -> R) -> R {
        self.0.held.span().in_scope(|| INNERMOST.sync_scope(self.clone(), work))
    }

    /// The innermost lock here.
    pub(crate) fn innermost() -> Option<Arc<Held>> {
        Self::current().map(|scope| Arc::clone(&scope.0.held))
    }

    /// The lock on `key` here, if there is one that was not given back.
    pub(crate) fn find(manager: &LockManager, key: &LockKey) -> Option<Arc<Held>> {
        let mut next = Self::current();
        while let Some(scope) = next {
            let held = &scope.0.held;
            if held.key() == key && held.manager().is(manager) && !held.was_released() {
                return Some(Arc::clone(held));
            }
            next = scope.0.outer.clone();
        }
        None
    }

    fn current() -> Option<Self> {
        INNERMOST.try_with(Clone::clone).ok()
    }
}
