//! The description of a lock: its keys, and how to acquire it.

use std::borrow::Cow;
use std::iter;
use std::sync::Arc;
use std::time::Duration;

use crate::engine::core::Core;
use crate::value::key::LockKey;
use crate::value::loss::OnLost;

/// The description of a lock: its keys and its options.
#[derive(Debug, Clone)]
pub struct LockSpec {
    pub(crate) key: LockKey,
    /// Further keys, in the caller's order.
    pub(crate) more: Box<[LockKey]>,
    /// `None`: the manager's.
    pub(crate) ttl: Option<Duration>,
    /// `None`: renewed.
    pub(crate) renewed: Option<bool>,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) min_hold: Duration,
    pub(crate) on_lost: OnLost,
    /// The body's value is returned without waiting for the release.
    pub(crate) releases_in_background: bool,
    /// `None`: the manager's; zero: not at all.
    pub(crate) wait: Option<Duration>,
    pub(crate) name: Cow<'static, str>,
    pub(crate) message: Option<Cow<'static, str>>,
    pub(crate) holder_note: Option<String>,
    pub(crate) manager: Option<Arc<Core>>,
}

impl LockSpec {
    /// A lock with these keys, and defaults for everything else. Never inlined, as every annotated
    /// function calls it.
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
            releases_in_background: false,
            wait: None,
            name: Cow::Borrowed(""),
            message: None,
            holder_note: None,
            manager: None,
        })
    }

    /// The same lock, which does not wait unless the caller has set a wait.
    pub(crate) fn without_default_wait(mut self: Box<Self>) -> Box<Self> {
        self.wait.get_or_insert_default();
        self
    }

    /// All keys, in the caller's order.
    pub(crate) fn keys(&self) -> Vec<LockKey> {
        iter::once(&self.key).chain(&self.more).cloned().collect()
    }
}
