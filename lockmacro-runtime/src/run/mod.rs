//! A body under a lock, and what a loss does to it.
//!
//! `Lock::run` and `LockGuard::run` ([`body`]) make one future that owns the body ([`driver`]). It
//! acquires the lock, and then polls the body only while the lease lasts: before each poll it looks
//! at the clock, and it is woken when the lease ends. What becomes of the body then is the caller's
//! setting: it is dropped, or goes on and its result is an error. The body is dropped before the
//! lock is released, so that nothing of it outlives the lock. How an error reaches the caller's
//! return type is decided in `run_policy`; expansions of the attribute name it ([`with_policy`]).
//!
//! [`lead`] repeats that for as long as the program runs.

mod body;
pub(crate) mod driver;
mod lead;
#[cfg(any(feature = "defer", feature = "reuse"))]
pub(crate) mod same_value;
#[cfg(feature = "test-util")]
pub(crate) mod waits;
pub(crate) mod with_policy;
