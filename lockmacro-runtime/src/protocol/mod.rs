//! The rules of locks, without I/O and without a clock: what a caller asks for, what has become of
//! its token, the answers, and leases.

pub(crate) mod answer;
pub(crate) mod ask;
pub(crate) mod lease;
pub(crate) mod request;
pub(crate) mod token;
