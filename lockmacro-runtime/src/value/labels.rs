//! Labels of a lock in metrics and logs.

use std::borrow::Cow;

use crate::value::key::LockKey;

/// The labels of a lock in metrics.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Labels<'a> {
    pub(crate) name: &'a Cow<'static, str>,
    /// The key, which has the template with the manager's prefix.
    pub(crate) key: &'a LockKey,
}
