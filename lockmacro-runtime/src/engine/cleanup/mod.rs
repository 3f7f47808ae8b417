//! Tokens, and what is left of them.
//!
//! An [`acquisition`] is a token, from before it is sent until it is known to be gone: a dropped
//! future or guard drops it, and its lock is [`dropped`]. The cleanup releases such locks until
//! that is answered, on the [`background`] thread of the manager. The same thread renews leases, by
//! the [`timetable`].

pub(crate) mod acquisition;
pub(crate) mod background;
pub(crate) mod dropped;
pub(crate) mod timetable;
