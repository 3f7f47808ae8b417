//! Tokens, and what is left of them.
//!
//! An [`acquisition`] is a token, from before it is sent until it is known to be gone. Its owner is
//! a caller's future, then its guard. Where one of them is dropped, the lock is [`dropped`]: the
//! cleanup releases it on the manager's thread, and repeats that until it is answered, or the lock
//! has ended with its ttl. What is [`in_flight`] meanwhile is what a shutdown waits for.

pub(crate) mod acquisition;
pub(crate) mod dropped;
pub(crate) mod in_flight;
