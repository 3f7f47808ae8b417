//! Locks on a majority of independent servers.

mod node;
mod node_names;
pub(crate) mod rules;
pub(crate) mod store;
pub(crate) mod url;
