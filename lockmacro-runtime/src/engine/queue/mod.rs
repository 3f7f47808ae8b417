//! The callers of one process for one key.
//!
//! [`key_queue`] decides: a pure machine of events and effects. Its owner, [`shared_queue`], locks
//! it, feeds it events, and carries the effects out; below it are what a caller does, the queue's
//! one request to the store, and the watch, which feeds the queue the time. [`table`] has the
//! queues of a manager by key.

pub(crate) mod key_queue;
pub(crate) mod shared_queue;
pub(crate) mod table;
