//! Locks on a majority of independent servers.

mod acquire;
mod node;
mod node_names;
mod release;
mod retry_delay;
mod round;
pub(crate) mod rules;
pub(crate) mod store;
pub(crate) mod url;
