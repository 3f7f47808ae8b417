//! The engine's own key queue in a model of processes, callers, a network and a server.

mod caller;
#[allow(dead_code)]
#[path = "../../../../../lockmacro-runtime/src/engine/queue/key_queue.rs"]
mod engine;
pub mod explore;
mod guard;
pub mod mutants;
mod oracles;
pub mod order;
mod owner;
mod schedule;
mod server;
mod sleepers;
pub(crate) mod sys;
pub(crate) mod value;
pub mod world;
