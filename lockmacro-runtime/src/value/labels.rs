//! Under which names a lock is counted and logged.

use std::borrow::Cow;
use std::sync::Arc;

use crate::value::key::LockKey;

/// Under which labels a lock is counted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Labels<'a> {
    pub(crate) name: &'a Cow<'static, str>,
    /// Has the template, with a manager's prefix: whoever waits keeps it once.
    pub(crate) key: &'a LockKey,
}

/// What is counted under labels.
pub(crate) trait Labelled {
    fn labels(&self) -> Labels<'_>;
}

impl<L: Labelled> Labelled for Arc<L> {
    fn labels(&self) -> Labels<'_> {
        (**self).labels()
    }
}
