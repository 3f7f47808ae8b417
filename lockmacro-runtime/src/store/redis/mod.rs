//! Locks on one Redis server, or on a cluster.

#[cfg(feature = "inspect")]
pub(crate) mod acl;
pub(crate) mod client;
mod reply;
pub(crate) mod scripts;
pub(crate) mod store;
#[cfg(test)]
mod tests;
mod topology;
