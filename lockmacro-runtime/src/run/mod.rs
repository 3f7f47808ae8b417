//! A body under a lock.

mod body;
mod driver;
mod lead;
#[cfg(feature = "reuse")]
pub(crate) mod reuse;
#[cfg(feature = "test-util")]
pub(crate) mod waits;
