//! Where locks are kept: in this process, on one Redis server or cluster, or on a majority of
//! servers.

pub(crate) mod abandoned;
pub(crate) mod dispatch;
pub(crate) mod hand_off;
pub(crate) mod join;
pub(crate) mod memory;
pub(crate) mod memory_table;
pub(crate) mod parts;
pub(crate) mod redis;
pub(crate) mod redlock;
pub(crate) mod replica_acks;
pub(crate) mod servers;
pub(crate) mod several_keys;
pub(crate) mod tick;
pub(crate) mod waiters;
