//! Single flight across processes: one caller runs the body, and the others get its value.
//!
//! A [`ReusingLock`] looks for a [kept](values) value before it asks for its lock and once it has
//! it, and keeps that of its own body. No store knows of values: [`values`] keeps them beside the
//! locks of the stores that can, each in a file of its own. What others hold for this is
//! [`held`]: the last value that a queue's callers know, and the values of locks in memory.

mod held;
mod lock;
mod memory;
mod policy;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "redis")]
mod redis;
mod value;
mod values;

pub(crate) use held::{Noted, Values};
pub use lock::ReusingLock;
