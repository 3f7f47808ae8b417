//! The engine's own key queue in a model of processes, callers, a network and a server.

mod caller;
pub mod explore;
mod guard;
pub(crate) mod mutants;
mod oracles;
pub mod order;
mod owner;
mod schedule;
pub(crate) mod server;
mod sleepers;
pub(crate) mod sys;
pub(crate) mod value;
pub mod world;

use crate::engine::queue::key_queue as engine;
