//! Deferred calls as values, the trait of their queue, and the queue in memory.

pub(crate) mod call;
pub(crate) mod deferrer;
pub(crate) mod limits;
pub(crate) mod memory;
pub(crate) mod superseded;
