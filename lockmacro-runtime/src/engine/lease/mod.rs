//! A held lock.
//!
//! [`held`] has its acquisition, its lease and its tenure, and each way in which it ends: passed on
//! to a waiter of the process, released, dropped, or lost. What the client may believe of the lease
//! is decided in `protocol/lease.rs`, as a pure function of the answers and the time; here are its
//! owner, and the renewal, which the manager's thread sends. Whoever looks at the lease finds out
//! that it has ended: the body's driver before each poll, a guard's methods, or the thread.

pub(crate) mod held;
