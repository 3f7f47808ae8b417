//! A body under a lock.

pub(crate) mod body;
pub(crate) mod driver;
pub(crate) mod map_err;
pub(crate) mod recovering;
pub(crate) mod report;
