//! Where locks are kept.
//!
//! The engine asks a [`handle::Store`], which puts together what takes more than one call: several
//! keys, and the acknowledgement of replicas. Below it a [`backend::Backend`] answers one call:
//! [`memory`] in this process, [`redis`] on a server or a cluster, [`redlock`] on a majority of
//! servers, or PostgreSQL. These do not know each other, but for a Redlock, whose nodes are Redis
//! servers. What they need to ask a server is in [`remote`]: time limits, retries, the health of a
//! server, and the wait of a waiter between its calls.

pub(crate) mod backend;
pub(crate) mod handle;
#[cfg(feature = "inspect")]
pub(crate) mod inspection;
mod join;
pub(crate) mod memory;
#[cfg(feature = "postgres")]
pub(crate) mod postgres;
pub(crate) mod redis;
pub(crate) mod redlock;
mod remote;
mod replica_acks;
mod several_keys;
pub(crate) mod shutdown;
pub(crate) mod subscriptions;
mod tick;
