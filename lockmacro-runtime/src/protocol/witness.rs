//! The receiver of the answers to a request that waits.

use std::fmt;

use crate::protocol::other_holder::OtherHolder;
use crate::value::error::LockError;

/// The answers to a request that waits, before its last one.
pub(crate) trait Witness: fmt::Debug + Send + Sync {
    /// Another holder has the lock.
    fn contended(&self, holder: &OtherHolder, rank: u32);

    /// There was no answer, and the request is repeated.
    fn failed(&self, error: LockError);

    /// `holder` is not known to have the lock, and the request is repeated.
    fn undecided(&self, holder: &OtherHolder);

    /// Number of callers that the request is for.
    fn callers(&self) -> usize;

    /// Whether one of them needs a fence.
    fn is_fenced(&self) -> bool;
}
