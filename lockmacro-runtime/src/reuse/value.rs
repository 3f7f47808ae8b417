//! Whose value it is, and a value as a store has kept it.

use std::sync::Arc;
use std::time::Duration;

use crate::value::key::LockKey;

/// Whose value it is. A lock that joins one around it has the request of that one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ValueOf<'a> {
    pub(crate) key: &'a LockKey,
    /// Of the function.
    pub(crate) name: &'a str,
}

/// A value that a holder has kept.
#[derive(Debug, Clone)]
pub(crate) struct KeptText {
    pub(crate) text: Arc<str>,
    /// How much longer the store keeps it.
    pub(crate) left: Duration,
}
