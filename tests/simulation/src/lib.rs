//! Locks of simulated processes and servers, in one thread and on virtual time.

pub mod server;
