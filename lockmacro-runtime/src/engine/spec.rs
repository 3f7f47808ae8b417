//! What a lock is asked for with.

use std::borrow::Cow;
use std::iter;
use std::sync::Arc;
use std::time::Duration;

use crate::engine::core::Core;
use crate::value::key::LockKey;
use crate::value::loss::OnLost;

/// What to lock, and how, as the engine takes it.
#[derive(Debug, Clone)]
pub struct LockSpec {
    pub(crate) key: LockKey,
    /// Further keys, as they were given.
    pub(crate) more: Box<[LockKey]>,
    /// Without one it is the manager's.
    pub(crate) ttl: Option<Duration>,
    /// As asked for; without it a lock that was given no ttl is renewed.
    pub(crate) renewed: Option<bool>,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) min_hold: Duration,
    pub(crate) on_lost: OnLost,
    /// Without one it is the manager's; zero is not to wait.
    pub(crate) wait: Option<Duration>,
    pub(crate) name: Cow<'static, str>,
    pub(crate) message: Option<Cow<'static, str>>,
    pub(crate) holder_note: Option<String>,
    pub(crate) manager: Option<Arc<Core>>,
}

impl LockSpec {
    /// A lock of which only the keys are known. Never inlined: every annotated function calls it.
    #[inline(never)]
    pub(crate) fn new(key: LockKey, more: Box<[LockKey]>) -> Box<Self> {
        Box::new(Self {
            key,
            more,
            ttl: None,
            renewed: None,
            max_hold: None,
            min_hold: Duration::ZERO,
            on_lost: OnLost::default(),
            wait: None,
            name: Cow::Borrowed(""),
            message: None,
            holder_note: None,
            manager: None,
        })
    }

    /// The same lock, which waits only if it was told to.
    pub(crate) fn without_default_wait(mut self: Box<Self>) -> Box<Self> {
        self.wait.get_or_insert_default();
        self
    }

    /// All keys as they were given.
    pub(crate) fn keys(&self) -> Vec<LockKey> {
        iter::once(&self.key).chain(&self.more).cloned().collect()
    }
}
