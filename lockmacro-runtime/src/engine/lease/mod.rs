//! A held lock.
//!
//! [`held`] has its acquisition, its lease and its tenure, and each way in which it ends: passed on
//! to a waiter of the process, released, dropped, or lost.

pub(crate) mod held;
