//! A body under a lock.

mod body;
mod driver;
