//! A held lock.
//!
//! [`held`] has its acquisition, its lease and its tenure, and each way in which it ends: passed on
//! to a waiter of the process, released, dropped, or lost. [`renewals`] is the table of all leases
//! of a manager, which are renewed by one task.

pub(crate) mod held;
pub(crate) mod renewals;
