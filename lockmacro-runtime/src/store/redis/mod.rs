//! Locks on one Redis server, or on a cluster.

#[cfg(feature = "look")]
pub(crate) mod acl;
pub(crate) mod client;
#[cfg(feature = "look")]
mod inspect;
#[cfg(feature = "defer")]
pub(crate) mod jobs;
mod lost;
mod ready;
mod release;
mod reply;
pub(crate) mod scripts;
mod single_node;
pub(crate) mod store;
mod topology;
mod wait;
