//! Locks of simulated processes and servers, in one thread and on virtual time.

pub mod mutants;
#[cfg(feature = "processes")]
pub mod processes;
pub mod server;
