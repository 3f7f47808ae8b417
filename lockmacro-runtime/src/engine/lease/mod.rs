//! A held lock.
//!
//! [`held`] has its acquisition and its lease, and each way in which it ends: passed on to a waiter
//! of the process, released, dropped, or lost. [`renewals`] is the table of all leases of a
//! manager, which are renewed by one task; [`held_renewal`] is what an answer does to a lock.
//! [`tenure_state`] is what its process may pass on.

pub(crate) mod held;
pub(crate) mod held_renewal;
pub(crate) mod renewals;
pub(crate) mod tenure_state;
