//! A body under a lock.

mod body;
mod driver;
mod handlers;
pub(crate) mod report;

pub use handlers::{MapErr, Recovering};
