//! The callers of one process for one key.
//!
//! [`key_queue`] decides: a pure machine of events and effects. Its owner, [`shared_queue`], locks
//! it, feeds it events, and carries the effects out. [`request`] is the queue's one request to the
//! store, on the background thread; [`watch`] feeds the queue the time. [`waiting`] is a caller
//! that waits, [`table`] has the queues of a manager by key.

pub(crate) mod holder;
pub(crate) mod key_queue;
pub(crate) mod shared_queue;
pub(crate) mod table;
