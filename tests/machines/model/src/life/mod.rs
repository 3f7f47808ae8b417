//! The engine's own life of a lock, and its own key queue, under every short sequence of events.
//!
//! One process holds the lock of one server, and another of its callers may wait. Between any two
//! events the clock stands still, or goes on a little, or to the next moment at which anything
//! changes by itself. What has to hold then is said in `oracles`, in words of the world: what the
//! server has, what was answered, and what the body was told.

pub mod explore;
pub(crate) mod mutants;
mod oracles;
mod world;
