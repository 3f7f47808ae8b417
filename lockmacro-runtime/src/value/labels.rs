//! Labels of a lock in metrics and logs.

use std::borrow::Cow;
use std::sync::Arc;

use crate::value::key::LockKey;

/// The labels of a lock in metrics.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Labels<'a> {
    pub(crate) name: &'a Cow<'static, str>,
    /// The key, which has the template with the manager's prefix.
    pub(crate) key: &'a LockKey,
}

/// Has labels for metrics.
pub(crate) trait Labelled {
    fn labels(&self) -> Labels<'_>;
}

impl<L: Labelled> Labelled for Arc<L> {
    fn labels(&self) -> Labels<'_> {
        (**self).labels()
    }
}
