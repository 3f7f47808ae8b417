//! The trait of a store whose locks can be inspected from outside.

use crate::inspect::found::{HeldLock, Listing, QueuedWaiter};
use crate::protocol::answer::StoreFuture;
use crate::value::error::LockError;
use crate::value::holder::Holder;
use crate::value::key::LockKey;

/// Reads the locks of all processes. No answer changes anything.
pub(crate) trait Inspection: Send + Sync {
    /// The locks whose keys match a pattern; with `foreign` also what other programs have written.
    fn held<'a>(
        &'a self,
        pattern: &'a str,
        foreign: bool,
        limit: usize,
    ) -> StoreFuture<'a, Result<Listing<HeldLock>, LockError>>;

    /// The lock on one key.
    fn holder<'a>(
        &'a self,
        key: &'a LockKey,
    ) -> StoreFuture<'a, Result<Option<HeldLock>, LockError>>;

    /// The holders of a key, those first whose leases end first, or that came first.
    fn holders<'a>(
        &'a self,
        key: &'a LockKey,
        limit: usize,
    ) -> StoreFuture<'a, Result<Listing<Holder>, LockError>>;

    /// The first waiters in the queue of a key.
    fn queue<'a>(
        &'a self,
        key: &'a LockKey,
        limit: usize,
    ) -> StoreFuture<'a, Result<Listing<QueuedWaiter>, LockError>>;

    /// The open transaction that has checked a fence of a key, where the store knows such.
    fn checked_by<'a>(
        &'a self,
        _key: &'a LockKey,
    ) -> StoreFuture<'a, Result<Option<String>, LockError>> {
        Box::pin(async { Ok(None) })
    }
}
