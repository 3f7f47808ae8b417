//! Locks on a majority of independent servers: the Redlock algorithm.
//!
//! A [`store::Redlock`] asks all of its nodes at once, each by a [`node`] that may vote or not: one
//! that was restarted may have forgotten a lock, and does not vote for a while. The [`quorum`]
//! counts the votes. As a node may have a token without having answered, [`attempts`] keep what
//! each node was sent: a token that did not win is withdrawn before the node is asked again, and a
//! node that has forgotten the lock of a holder gets it back.

mod acquire;
pub(crate) mod attempts;
mod node;
mod node_names;
mod quorum;
mod release;
pub(crate) mod rules;
pub(crate) mod store;
pub(crate) mod url;
