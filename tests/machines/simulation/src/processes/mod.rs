//! Simulated processes, which run the real runtime, and the network between them and the servers.

#[macro_use]
mod sim;
mod blocking;
mod bodies;
mod call;
mod callers;
mod deferred;
mod faults;
mod host;
pub mod many;
mod network;
mod opening;
pub mod parts;
mod polls;
mod process;
mod replay;
mod replicas;
pub mod run;
mod scenario;
mod scripts;
mod show;
mod stream;
mod thread;
mod tokens;
mod waits;
mod watchdog;
mod work;
mod world;
