//! Locks on one Redis server, or on a cluster.

#[cfg(feature = "look")]
pub(crate) mod acl;
pub(crate) mod client;
#[cfg(feature = "look")]
pub(crate) mod inspect;
#[cfg(feature = "defer")]
pub(crate) mod jobs;
pub(crate) mod lost;
pub(crate) mod release;
pub(crate) mod replica_acks;
pub(crate) mod reply;
pub(crate) mod rights;
pub(crate) mod role;
pub(crate) mod scripts;
pub(crate) mod several_keys;
pub(crate) mod single_node;
pub(crate) mod store;
pub(crate) mod topology;
pub(crate) mod wait;
