//! Locks on one Redis server, or on a cluster.

mod backend;
pub(crate) mod client;
mod down;
pub(crate) mod ready;
pub(crate) mod release;
pub(crate) mod reply;
pub(crate) mod scripts;
mod single_node;
pub(crate) mod store;
#[cfg(test)]
mod tests;
pub(crate) mod topology;
mod wait;
