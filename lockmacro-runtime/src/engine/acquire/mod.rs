//! Acquiring a lock.
//!
//! A [`spec`] says what to lock and how, and becomes a request. [`acquiring`] is the future that
//! acquires it: it arrives at the queue of the key, asks the store itself ([`own_request`]) or
//! waits in the queue, and returns the [`outcome`]. A lock that is held around the call is joined
//! ([`reentry`]). [`unreported`] logs the errors that a return type cannot carry.

pub(crate) mod acquiring;
pub(crate) mod outcome;
mod own_request;
pub(crate) mod reentry;
pub(crate) mod spec;
pub(crate) mod unreported;
