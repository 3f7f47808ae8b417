//! Under which names a lock is counted and logged.

use std::borrow::Cow;

/// Under which labels a lock is counted.
#[derive(Debug, Clone)]
pub(crate) struct Labels {
    pub(crate) name: Cow<'static, str>,
    /// Of the whole key, a manager's prefix included.
    pub(crate) template: Cow<'static, str>,
}
