//! The engine's own key queue in a model of processes, callers, a network and a server.

mod caller;
pub mod explore;
mod guard;
#[allow(dead_code)]
#[path = "../../../lockmacro-runtime/src/engine/queue/key_queue.rs"]
mod key_queue;
pub mod mutants;
mod oracles;
pub mod order;
mod owner;
mod schedule;
mod server;
mod sleepers;
mod value;
pub mod world;
