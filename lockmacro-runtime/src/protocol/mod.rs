//! The rules of locks, without I/O: requests, answers, leases, and the counting of a quorum.

pub(crate) mod answer;
pub(crate) mod attempts;
pub(crate) mod lease;
pub(crate) mod quorum;
pub(crate) mod request;
pub(crate) mod shutdown;
