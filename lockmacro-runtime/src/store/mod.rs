//! Where locks are kept: in this process, on one Redis server or cluster, or on a majority of
//! servers.

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
mod tick;
pub(crate) mod waiters;
