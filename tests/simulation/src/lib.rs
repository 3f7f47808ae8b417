//! Locks of simulated processes and servers, in one thread and on virtual time.

#[macro_use]
mod sim;
mod bodies;
mod faults;
mod host;
pub mod many;
pub mod mutants;
mod network;
mod process;
pub mod run;
mod scenario;
pub mod server;
mod show;
mod stream;
mod waits;
mod work;
mod world;
