//! The queues of jobs in the stores of this crate. Each keeps the promises of
//! [`JobQueue`](super::job_queue::JobQueue), and asks its store as the locks do.
//!
//! `redis` has a script for each operation, and `postgres` a function of its schema. What they
//! share is how long a call with many bytes may take, and which jobs were stored before another.

mod budget;
pub(crate) mod memory;
pub(crate) mod none;
#[cfg(feature = "postgres")]
pub(crate) mod postgres;
#[cfg(feature = "redis")]
pub(crate) mod redis;
mod superseded;
