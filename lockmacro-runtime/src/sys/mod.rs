//! The only users of the system: its clocks and its random numbers, tasks and parked threads, what
//! differs between systems, and the metrics of the process.
//!
//! A simulation replaces all of it by a [`world`]. Everything above takes from here what it would
//! otherwise ask the system for, so that a run can be repeated from its seed. Only connections are
//! opened elsewhere: in `store/redis/client/stream.rs`, and by the client of PostgreSQL.

pub(crate) mod backoff;
pub(crate) mod metrics;
pub(crate) mod parking;
pub(crate) mod platform;
pub(crate) mod random;
pub(crate) mod sync;
pub(crate) mod task;
pub(crate) mod time;
pub(crate) mod world;
