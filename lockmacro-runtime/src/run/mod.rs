//! A body under a lock.

mod body;
mod driver;
pub(crate) mod report;

pub use body::{MapErr, Recovering};
