//! The rules of locks, without I/O and without a clock: requests, answers and leases.

pub(crate) mod answer;
pub(crate) mod lease;
pub(crate) mod request;
