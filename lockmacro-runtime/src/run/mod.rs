//! A body under a lock.

mod body;
mod driver;
#[cfg(feature = "test-util")]
pub(crate) mod waits;
