//! Stores that others write: the public trait, and its adapter to the [`Backend`] that the engine
//! asks.
//!
//! A store answers a question and nothing else. The adapter gives it what every store on a network
//! needs: a limit for each answer, retries, the health of the server, and for a waiter the pause
//! between two questions. After a turn it rests, so that other processes find the key free. A grant
//! whose lease is over when it arrives is not used.
//!
//! [`Backend`]: super::backend::Backend

pub(crate) mod adapter;
mod contract;
mod error;
mod limits;
mod messages;
mod rests;

pub use contract::LockStore;
pub use error::StoreError;
pub use limits::StoreLimits;
pub use messages::{AcquireRequest, HeldKey, Outcome};
