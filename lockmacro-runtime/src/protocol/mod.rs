//! The rules of locks as pure functions: every time is an argument, and there is no I/O.

pub(crate) mod answer;
pub(crate) mod attempts;
pub(crate) mod lease;
pub(crate) mod quorum;
pub(crate) mod request;
pub(crate) mod shutdown;
pub(crate) mod vote;
