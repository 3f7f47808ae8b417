//! A body under a lock.

mod body;
mod driver;
mod lead;
#[cfg(feature = "test-util")]
pub(crate) mod waits;
