//! Locks on a majority of independent servers.

pub(crate) mod acquire;
pub(crate) mod node;
pub(crate) mod node_names;
pub(crate) mod release;
pub(crate) mod retry_delay;
pub(crate) mod round;
pub(crate) mod rules;
pub(crate) mod store;
pub(crate) mod url;
