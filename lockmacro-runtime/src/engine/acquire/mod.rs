//! Acquiring a lock.
//!
//! A [`spec`] says what to lock and how, and becomes what a caller asks for. [`acquiring`] is the
//! future that acquires it: it arrives at the queue of the key, asks the store itself
//! ([`own_request`]) or waits in the queue, or asks [`outside`] of any queue. It returns the
//! [`outcome`], or logs an error that a return type cannot carry. A lock that is held around the
//! call is joined ([`reentry`]).

pub(crate) mod acquiring;
pub(crate) mod options;
pub(crate) mod outcome;
mod outside;
mod own_request;
pub(crate) mod reentry;
pub(crate) mod spec;
