//! A held lock.
//!
//! [`life`] decides: what a body may believe of its lock, when the lock is renewed, and how it ends:
//! passed on to a waiter of the process, released, or lost. It is a pure function of what happens
//! and of the time, and rests on `protocol/lease.rs`. [`held`] is its owner, and carries out what
//! follows; the manager's thread sends the renewals. Whoever looks at the lease finds out that it
//! has ended: the body's driver before each poll, a guard's methods, or the thread.

pub(crate) mod held;
pub(crate) mod life;
