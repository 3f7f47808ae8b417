//! Locks of simulated processes and servers, in one thread and on virtual time.

#[cfg(feature = "processes")]
#[macro_use]
mod sim;
#[cfg(feature = "processes")]
mod bodies;
#[cfg(feature = "processes")]
mod faults;
#[cfg(feature = "processes")]
mod host;
#[cfg(feature = "processes")]
pub mod many;
pub mod mutants;
#[cfg(feature = "processes")]
mod network;
#[cfg(feature = "processes")]
mod process;
#[cfg(feature = "processes")]
pub mod run;
#[cfg(feature = "processes")]
mod scenario;
pub mod server;
#[cfg(feature = "processes")]
mod show;
#[cfg(feature = "processes")]
mod stream;
#[cfg(feature = "processes")]
mod waits;
#[cfg(feature = "processes")]
mod work;
#[cfg(feature = "processes")]
mod world;
