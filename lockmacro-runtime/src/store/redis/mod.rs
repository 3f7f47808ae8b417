//! Locks on one Redis server, or on a cluster.

#[cfg(feature = "inspect")]
pub(crate) mod acl;
mod backend;
pub(crate) mod client;
mod down;
#[cfg(feature = "inspect")]
mod facts;
#[cfg(feature = "inspect")]
mod inspect;
#[cfg(feature = "defer")]
pub(crate) mod jobs;
mod ready;
pub(crate) mod release;
mod reply;
pub(crate) mod scripts;
mod single_node;
pub(crate) mod store;
#[cfg(test)]
mod tests;
mod topology;
#[cfg(feature = "reuse")]
mod value;
mod wait;
