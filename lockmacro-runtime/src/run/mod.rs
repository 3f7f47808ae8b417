//! A body under a lock.

mod body;
mod driver;
mod map_err;
mod recovering;
pub(crate) mod report;

pub use map_err::MapErr;
pub use recovering::Recovering;
