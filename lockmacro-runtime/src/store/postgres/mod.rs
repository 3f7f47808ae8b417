//! Locks in PostgreSQL: leases in rows, the database's time, a queue with hand-off, and fences that
//! a user's transaction can check. The functions of `schema.sql` and `jobs.sql` do each
//! operation in one round trip.

mod backend;
mod batch;
mod connection;
mod error;
#[cfg(feature = "inspect")]
mod facts;
mod hosts;
#[cfg(feature = "inspect")]
mod inspect;
#[cfg(feature = "defer")]
mod jobs;
mod limit;
mod live;
mod release;
mod renew;
pub(crate) mod schema;
pub(crate) mod store;
mod tls;
pub(crate) mod url;
#[cfg(feature = "reuse")]
mod value;
mod values;
mod wait;
