//! Locks in PostgreSQL: leases in rows, the database's time, a queue with hand-off, and fences that
//! a user's transaction can check. The functions of `schema.sql` do each operation in one round
//! trip.

mod backend;
pub(crate) mod client;
mod release;
mod renew;
pub(crate) mod schema;
pub(crate) mod store;
mod wait;
